package debugfile

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCacheIsWherePerfHasIt has settings of perf in its own file, and in the one that is named.
func TestCacheIsWherePerfHasIt(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PERF_CONFIG", "")
	own, named := filepath.Join(home, ".perfconfig"), filepath.Join(home, "named")
	for _, c := range []struct{ file, text, want string }{
		{own, "", filepath.Join(home, ".debug")},
		{own, "[report]\n\tdir = /wrong\n[buildid]\n\t# dir = /comment\n\tdir = /cache/of builds\n", "/cache/of builds"},
		{own, "[buildid]\ndir = relative\n", filepath.Join(home, ".debug")},
		{named, "[buildid]\ndir=/named\n", "/named"},
	} {
		if err := os.WriteFile(c.file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.file == named {
			t.Setenv("PERF_CONFIG", named)
		}
		if got := Cache(); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}
