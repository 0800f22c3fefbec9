package capture

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"unspool/capture/perfdata"
	"unspool/testdata/recordings"
)

// open opens a recording, and closes it when the test ends.
func open(t *testing.T, path string) *Recording {
	t.Helper()
	rec, err := Open(context.Background(), path, Options{Symfs: recordings.Root(t)})
	if rec == nil {
		t.Fatal(err)
	}
	t.Cleanup(rec.Close)
	return rec
}

// names are the functions of a sample's stack.
func names(s *Sample) (names []string) {
	for i := range s.Stack {
		names = append(names, s.Stack[i].Name)
	}
	return names
}

// TestSamplesAgain: a loop that ends early ends the reading, and the next one begins anew. A recording that has
// callchains, and one whose stacks are unwound, are read alike.
func TestSamplesAgain(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, name := range []string{"shapes", "raw", "raw-pipe"} {
		rec := open(t, recordings.Path(t, name))
		var all [][]string
		for s, err := range rec.Samples() {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, names(s))
		}
		if len(all) < 20 || !slices.ContainsFunc(all, func(s []string) bool { return len(s) > 3 }) {
			t.Errorf("%s: stacks: %v", name, all)
		}
		n := 0
		for s, err := range rec.Samples() {
			if err != nil || !slices.Equal(names(s), all[n]) {
				t.Fatalf("%s: sample %d the second time: %v, %v", name, n, s, err)
			}
			if n++; n == 5 {
				break
			}
		}
		if n != 5 {
			t.Errorf("%s: %d samples the second time", name, n)
		}
		rec.Close()
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// TestSamplesOfDamage: the samples before the damage come first, then an error that says where it is.
func TestSamplesOfDamage(t *testing.T) {
	for _, name := range []string{"shapes", "raw-pipe"} {
		whole, err := os.ReadFile(recordings.Path(t, name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "perf.data")
		if err := os.WriteFile(path, whole[:len(whole)*2/3], 0o600); err != nil {
			t.Fatal(err)
		}
		var damage *perfdata.DamageError
		n := 0
		for s, err := range open(t, path).Samples() {
			switch {
			case damage != nil:
				t.Errorf("%s: more behind the error", name)
			case err == nil:
				n++
			case s != nil || !errors.As(err, &damage):
				t.Fatalf("%s: %v, %v", name, s, err)
			}
		}
		if n == 0 || damage == nil {
			t.Errorf("%s: %d samples, %v", name, n, damage)
		}
	}
}

func TestOpenNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.data")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, path + "-that-is-not-there"} {
		if rec, err := Open(context.Background(), path, Options{}); rec != nil || err == nil {
			t.Errorf("%s: %v, %v", path, rec, err)
		}
	}
}
