package compare

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A file is looked for by all its names at once, as dpkg-query reads the lists of all packages for each
// query.
func TestPackageOfAFile(t *testing.T) {
	dpkg, err := exec.LookPath("dpkg-query")
	if err != nil {
		t.Skip("dpkg-query is not installed")
	}
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	counting := fmt.Sprintf("#!/bin/sh\necho $1 >>%s\nexec %s \"$@\"\n", asked, dpkg)
	if err := os.WriteFile(filepath.Join(dir, "dpkg-query"), []byte(counting), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	packages := Packages{patience: time.Minute} // the machine may be busy
	for _, c := range []struct{ path, owner, queries string }{
		{"/usr/bin/dpkg-query", "dpkg ", "-S -W"},
		{"/bin/dpkg-query", "dpkg ", "-S -W"}, // where /usr is merged; the package has it below /usr
		{"/lib/x86_64-linux-gnu/libc.so.6", "libc6 ", "-S -W"},
		{"/usr/lib/x86_64-linux-gnu/libc.so.6", "libc6 ", "-S -W"},
		{filepath.Join(dir, "none"), "", "-S"},
	} {
		if err := os.WriteFile(asked, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := packages.Of(c.path); !strings.HasPrefix(got, c.owner) || c.owner == "" && got != "" ||
			strings.ContainsAny(got, ":\n") {
			t.Errorf("%s is in %q, want %q", c.path, got, c.owner)
		}
		queries, err := os.ReadFile(asked)
		if got := strings.Join(strings.Fields(string(queries)), " "); err != nil || got != c.queries {
			t.Errorf("%s: queries %q, %v, want %q", c.path, got, err, c.queries)
		}
	}
}
