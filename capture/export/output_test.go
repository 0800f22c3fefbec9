package export

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("file", "old")
	write("target", "old")
	if err := os.Symlink("target", path("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, lands string
		keep        bool
		want        string // what is there then; "" for nothing
	}{
		{"new", "new", true, "new"},
		{"given up", "given up", false, ""},
		{"file", "file", false, "old"},
		{"file", "file", true, "new"},
		{"link", "target", false, "old"},
		{"link", "target", true, "new"},
	} {
		o, err := create(path(c.name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.WriteString("new"); err != nil {
			t.Fatal(err)
		}
		if c.keep {
			if err := o.keep(); err != nil {
				t.Fatal(err)
			}
		}
		o.discard()
		if b, _ := os.ReadFile(path(c.lands)); string(b) != c.want {
			t.Errorf("%s: %q, want %q", c.name, b, c.want)
		}
	}
	if st, err := os.Lstat(path("link")); err != nil || st.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link: %v, %v", st, err)
	}
	if left, _ := filepath.Glob(path(".*")); left != nil {
		t.Errorf("left: %v", left)
	}

	for _, c := range []struct{ output, input, want string }{
		{"missing", "file", ""},
		{"file", "target", ""},
		{"folder", "", "is a directory"},
		{"file", "file", "same file"},
		{"link", "target", "same file"},
	} {
		input := c.input
		if input != "" {
			input = path(input)
		}
		err := CheckOutput(path(c.output), input)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s from %s: %v, want %q", c.output, c.input, err, c.want)
		}
	}
	if err := CheckOutput("-", "-"); err != nil {
		t.Error(err)
	}
}
