package inputs

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// seeds takes what a target adds.
type seeds [][]any

func (s *seeds) Add(args ...any) { *s = append(*s, args) }

// many calls a target as go test does for its seeds: a text and a number.
func many(t *testing.T, f *seeds, fn func(t *testing.T, b []byte, n uint64), changes ...Change) {
	t.Helper()
	target := Many(f, fn, changes...)
	for _, s := range *f {
		target(t, s[0].([]byte), s[1].(uint64))
	}
}

func TestInputsFollowFromTheSeed(t *testing.T) {
	t.Setenv("UNSPOOL_INPUTS", "5000")
	run := func(seed string, changes ...Change) (sum uint64, different int) {
		t.Setenv("UNSPOOL_INPUTS_SEED", seed)
		h, all, calls := fnv.New64(), make(map[string]bool), 0
		f := &seeds{{[]byte("the first one"), uint64(1)}, {[]byte("another"), uint64(2)}}
		many(t, f, func(t *testing.T, b []byte, n uint64) {
			calls++
			s := fmt.Sprint(b, n)
			h.Write([]byte(s))
			all[s] = true
			clear(b) // what a target does to its input is its own matter
		}, changes...)
		if calls != 5000 {
			t.Errorf("%d calls", calls)
		}
		return h.Sum64(), len(all)
	}
	first, different := run("1")
	if again, _ := run("1"); again != first {
		t.Error("the same seed makes other inputs")
	}
	if other, _ := run("2"); other == first {
		t.Error("another seed makes the same inputs")
	}
	if different < 3000 {
		t.Errorf("%d of 5000 inputs differ", different)
	}
}

func TestChangesAreMadeWhereATargetSays(t *testing.T) {
	t.Setenv("UNSPOOL_INPUTS", "5000")
	const text = "never here|here|and never here"
	within, elsewhere, repaired := 0, 0, 0
	many(t, &seeds{{[]byte(text), uint64(1)}}, func(t *testing.T, b []byte, n uint64) {
		if len(b) != len(text) {
			return
		}
		differ, at := 0, 0
		for i := range text {
			if b[i] != text[i] && (i > 0 || b[i] != '!') {
				differ++
				at = i
			}
		}
		switch {
		case differ == 1 && at >= 11 && at < 15:
			within++
		case differ == 1:
			elsewhere++
		}
		if b[0] == '!' {
			repaired++
		}
	}, In(func(b []byte) [][2]int {
		return [][2]int{{11, 15}, {40, 99}, {5, 5}} // not all of them are places
	}), Repaired(func(b []byte) {
		if len(b) == len(text) {
			b[0] = '!'
		}
	}))
	if within < elsewhere || elsewhere == 0 || repaired < 1000 {
		t.Errorf("%d changes within, %d elsewhere, %d repaired", within, elsewhere, repaired)
	}
}

// FuzzPlanted has faults: TestFaultsAreFound looks for them.
func FuzzPlanted(f *testing.F) {
	f.Add([]byte("abcd"), uint64(7))
	f.Fuzz(Many(f, func(t *testing.T, b []byte, n uint64) {
		if Total() == 0 && os.Getenv("PLANTED") == "" {
			return
		}
		switch {
		case len(b) > 6:
			t.Fatal("too long")
		case n > 1<<60:
			panic("too large")
		}
	}))
}

// A wrong result and a panic are found, told, and happen again with the inputs that were saved.
func TestFaultsAreFound(t *testing.T) {
	dir := t.TempDir()
	run := func(pattern string, env ...string) string {
		cmd := exec.Command("/proc/self/exe", "-test.run", pattern)
		cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "PLANTED=1"), env...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Fatalf("%s passes:\n%s", pattern, out)
		}
		return string(out)
	}
	out := run("^FuzzPlanted$", "UNSPOOL_INPUTS=100000")
	for _, want := range []string{"too long", "panic: too large", "of seed 1: go test -run '^FuzzPlanted$/",
		fmt.Sprintf("failures=%d", failures)} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	saved, err := filepath.Glob(filepath.Join(dir, "testdata/fuzz/FuzzPlanted/*"))
	if err != nil || len(saved) < 2 {
		t.Fatalf("saved: %q, %v", saved, err)
	}
	for _, name := range saved {
		out := run("^FuzzPlanted$/^"+filepath.Base(name)+"$", "UNSPOOL_INPUTS=")
		if !strings.Contains(out, "too l") {
			t.Errorf("%s:\n%s", name, out)
		}
	}
}
