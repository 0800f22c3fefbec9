package buildidcache

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/programs"
)

// emptyCache is a cache in a folder that is not there yet.
func emptyCache(t *testing.T) *cache {
	t.Helper()
	c := newCache(false)
	c.path, c.confine = filepath.Join(t.TempDir(), "cache"), func() {}
	return c
}

// removed is a copy of a program, mapped by a name, that was removed.
func removed(t *testing.T, program, name string) *sampled {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	os.Remove(path)
	id, err := elf.ReadBuildID(file)
	if err != nil || len(id) == 0 {
		t.Fatalf("build ID %x, %v", id, err)
	}
	s, ok := look(file, name, id, uint32(os.Getuid()))
	if !ok {
		t.Fatal("it is no file")
	}
	return &s
}

func TestLimits(t *testing.T) {
	program := programs.Build(t, "plain")
	for _, c := range []struct {
		name   string
		change func(*cache, *sampled)
		why    string // "" for a file that is kept
	}{
		{"kept", func(*cache, *sampled) {}, ""},
		{"in all, to the byte", func(c *cache, s *sampled) { c.report.Bytes = Most - s.at.Size }, ""},
		{"in all", func(c *cache, s *sampled) { c.report.Bytes = Most - s.at.Size + 1 }, "beyond 512 MiB in all"},
		{"files", func(c *cache, _ *sampled) { c.report.Files = mostFiles }, "more than 1024"},
		{"a file", func(_ *cache, s *sampled) { s.at.Size = mostOfFile + 1 }, "larger than 64 MiB"},
		{"another build", func(_ *cache, s *sampled) { s.id[0]++ }, "written to since it was recorded"},
		{"no build ID was recorded", func(_ *cache, s *sampled) { s.id = nil }, "without a build ID"},
		{"cut", func(_ *cache, s *sampled) { s.Truncate(s.at.Size - 1) }, "written to since it was recorded"},
		{"a file in place of a folder", func(c *cache, s *sampled) {
			os.MkdirAll(c.path, 0o700)
			os.WriteFile(filepath.Join(c.path, "usr"), nil, 0o600)
		}, "that could not be written (not a directory)"},
		{"a link in place of a folder", func(c *cache, s *sampled) {
			os.MkdirAll(c.path, 0o700)
			os.Symlink(t.TempDir(), filepath.Join(c.path, "usr"))
		}, "that could not be written (not a directory)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache, s := emptyCache(t), removed(t, program, "/usr/bin/program")
			c.change(cache, s)
			before := cache.report.Files
			cache.add(s)
			elves, _ := filepath.Glob(cache.path + "/usr/bin/program/*/*")
			if c.why == "" {
				if cache.report.Files != before+1 || len(elves) != 1 || len(cache.report.Omitted) > 0 {
					t.Errorf("%+v, %q", cache.report, elves)
				}
				return
			}
			if left := cache.report.Omitted; len(left) != 1 || left[0] != (Omission{1, c.why, "program"}) || len(elves) > 0 {
				t.Errorf("%+v, want %q; %q", left, c.why, elves)
			}
		})
	}
}

// What is there is not written again, and a link that leads nowhere is made anew.
func TestEntriesStay(t *testing.T) {
	c, program := emptyCache(t), programs.Build(t, "plain")
	first := removed(t, program, "/first")
	c.add(first)
	written := c.report.Bytes
	c.add(removed(t, program, "/second"))
	c.add(first) // of another part of the recording
	entries, _ := filepath.Glob(c.path + "/*/*/elf")
	if c.report.Files != 2 || c.report.Bytes != written || len(entries) != 1 {
		t.Errorf("%+v, %q", c.report, entries)
	}
	digits := hex.EncodeToString(first.id)
	link := filepath.Join(c.path, ".build-id", digits[:2], digits[2:])
	os.RemoveAll(filepath.Join(c.path, "first"))
	c.add(removed(t, program, "/third"))
	want, _ := os.ReadFile(program)
	if got, err := os.ReadFile(filepath.Join(link, "elf")); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
	}
}

func TestPathsInTheCache(t *testing.T) {
	for name, want := range map[string]string{
		"/usr/bin/gcc":                 "usr/bin/gcc",
		"/usr/bin/gcc (deleted)":       "usr/bin/gcc",
		"/memfd:code (deleted)":        "memfd:code",
		"/a/../../../etc/x":            unnamed,
		"/./x":                         unnamed,
		"/.build-id/ab/cdef":           unnamed,
		"/":                            unnamed,
		"":                             unnamed,
		"/x\x00y":                      unnamed,
		"/" + strings.Repeat("x", 256): unnamed,
		"/" + strings.Repeat("x/", 65): unnamed,
		"(unreachable)/x":              "(unreachable)/x",
		"//toolong":                    "toolong",
		"/a/.build-id/" + strings.Repeat("a", 38): "a/.build-id/" + strings.Repeat("a", 38),
	} {
		if got := strings.Join(within(name), "/"); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestMessages(t *testing.T) {
	s := removed(t, programs.Build(t, "plain"), "/usr/bin/program (deleted)")
	m := message(s.name, s.id, 4711)
	got, ok := parse(m, s.File)
	if !ok || got.name != s.name || got.uid != 4711 || !slices.Equal(got.id, s.id) || got.at.Ino != s.at.Ino {
		t.Errorf("%+v", got)
	}
	for n := range len(m) - len(s.name) {
		if _, ok := parse(m[:n], s.File); ok {
			t.Errorf("%d bytes are a message", n)
		}
	}
	if message(strings.Repeat("x", unix.PathMax+100), nil, 0) != nil {
		t.Error("a name of any length is sent")
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, ok := parse(m, dir); ok {
		t.Error("a folder is taken")
	}
}

func TestReport(t *testing.T) {
	var r Summary
	if got := r.String(); got != "" {
		t.Errorf("%q", got)
	}
	r = Summary{Folder: "/root/.debug", Files: 2, Bytes: 2048}
	r.leave("/a/evil\x1b (deleted)", "larger than 64 MiB")
	r.leave("/b", "larger than 64 MiB")
	r.leave("/c", "that you may not read")
	want := "files that are gone or of another root: 2 kept in /root/.debug for the names (2.0 KiB written); " +
		"not kept: 2 larger than 64 MiB (evil? …), 1 that you may not read (c)"
	if got := r.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
