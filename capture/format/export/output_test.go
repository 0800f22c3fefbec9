package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/perfring"
)

// If the output can't be written, files that exist stay, and nothing new appears.
func TestRefusedOutputs(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(path("in"), []byte("no recording"), 0o600),
		os.WriteFile(path("old"), []byte("old"), 0o600),
		os.Symlink("in", path("link")),
		os.Link(path("in"), path("hard link")),
		os.Mkdir(path("folder"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	format, err := Find("folded", "")
	if err != nil {
		t.Fatal(err)
	}
	before, _ := filepath.Glob(path("*"))
	for _, c := range []struct{ output, want string }{
		{"new", "not a perf.data file"},
		{"old", "not a perf.data file"},
		{"folder", "is a directory"},
		{"in", "same file"},
		{"link", "same file"},
		{"hard link", "same file"},
	} {
		_, err := Write(context.Background(), Options{Format: format, Input: path("in"), Output: path(c.output)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.output, err, c.want)
		}
	}
	if after, _ := filepath.Glob(path("*")); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("there are %v", after)
	}
	if left, _ := filepath.Glob(path(".*")); left != nil {
		t.Errorf("left: %v", left)
	}
	for name, want := range map[string]string{"in": "no recording", "old": "old"} {
		if b, _ := os.ReadFile(path(name)); string(b) != want {
			t.Errorf("%s: %q", name, b)
		}
	}
}

// Of an export that is interrupted, a file is there if it was complete by then, and an error that has another cause is
// told.
func TestInterruptedExport(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	w, err := perfdata.Create(perfdata.Options{Path: in, Events: []perfring.Attr{{Name: "cpu-clock"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err        error
		want, file string
	}{
		{perfdata.ErrStopped, "interrupted: nothing was written", ""},
		{errors.New("failed"), "failed", ""},
		{nil, "<nil>", "all of it"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		format := Format{Name: "interrupted", write: func(_ *job, w io.Writer) (*profile.Profile, error) {
			interrupt()
			_, err := io.WriteString(w, "all of it")
			return new(profile.Profile), errors.Join(err, c.err)
		}}
		_, err := Write(ctx, Options{Format: format, Input: in, Output: out})
		if got := fmt.Sprint(err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
		if b, _ := os.ReadFile(out); string(b) != c.file {
			t.Errorf("%v: the file has %q, want %q", c.err, b, c.file)
		}
	}
}

// An export that fails half-way leaves the files that were there before, and nothing else.
func TestFailedExportLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	w, err := perfdata.Create(perfdata.Options{Path: in, Events: []perfring.Attr{{Name: "cpu-clock"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.WriteFile(out, []byte("old"), 0o600)); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	format := Format{Name: "half", write: func(_ *job, w io.Writer) (*profile.Profile, error) {
		_, err := w.Write(make([]byte, 1<<20))
		return nil, errors.Join(err, failed)
	}}
	_, err = Write(context.Background(), Options{Format: format, Input: in, Output: out})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	if b, _ := os.ReadFile(out); string(b) != "old" {
		t.Errorf("%d bytes", len(b))
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left: %v", entries)
	}
}
