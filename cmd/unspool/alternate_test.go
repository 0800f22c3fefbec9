package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/dwarfcfi/elf"
	"unspool/testdata/programs"
)

// chains counts the stacks with functions of each of two kinds, which are called one_ and two_. No stack has
// both.
type chains struct{ one, two, both int }

func alternating(t *testing.T, p *profile.Profile) (c chains) {
	t.Helper()
	for _, s := range p.Samples {
		stack := userStack(p, s.Node)
		has := func(kind string) bool {
			return slices.ContainsFunc(stack, func(name string) bool { return strings.HasPrefix(name, kind) })
		}
		switch one, two := has("one_"), has("two_"); {
		case one && two:
			c.both += int(s.Count)
			t.Logf("%d samples: %s", s.Count, describe(p, s.Node))
		case one:
			c.one += int(s.Count)
		case two:
			c.two += int(s.Count)
		}
	}
	return c
}

// TestCoroutinesThatAlternate records a program that runs two known chains alternately on the same stack, so
// that whatever is remembered of one is wrong for the other.
func TestCoroutinesThatAlternate(t *testing.T) {
	t.Parallel()
	needRoot(t)
	r := record(t, slices.Concat(programs.Faults(), []string{"--stack-size", "8192", "--",
		buildCase(t, "alternate.c"), programs.Times(2 * counted)})...)
	for _, kind := range []string{"one", "two"} {
		matchCounted(t, r, programs.Chain{Kind: programs.Coroutine,
			Frames: []string{kind + "_coroutine", kind + "_outer", kind + "_inner", kind + "_leaf"}},
			programs.Program{Name: "alternate"})
	}
	if found := alternating(t, ownProfile(t, r.path)); found.both > 0 {
		t.Errorf("%+v", found)
	}
	r.whollyComplete(t)
}

// TestFileThatIsRewritten records two programs that are written alternately to the same file and run from
// there: some time before the next one is written, as a file is opened some time after it was mapped, or
// right before. In the second case the file may already be the next one, which must be noticed.
func TestFileThatIsRewritten(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, c := range []struct {
		name       string
		rounds     string
		runs       string // of each program in a round
		pause      string
		incomplete float64
	}{
		{"a while later", "1 2 3", "1 2 3 4 5", "0.3", 0.01},
		{"at once", "$(seq 25)", "1", "0", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cache := t.TempDir() // with both, by build ID
			script := fmt.Sprintf("for i in %s; do", c.rounds)
			file := filepath.Join(t.TempDir(), "program")
			for _, size := range []string{"64", "3000"} {
				name := map[string]string{"64": "one", "3000": "two"}[size]
				path := buildCase(t, "worker.c", "-no-pie", "-DNAME="+name, "-DSIZE="+size, "-Wl,--build-id=sha1")
				built := filepath.Join(filepath.Dir(path), name)
				if err := os.Rename(path, built); err != nil {
					t.Fatal(err)
				}
				keepByBuildID(t, built, cache)
				script += fmt.Sprintf(" cat %s >%s; chmod +x %s; for run in %s; do %s; done; sleep %s;",
					built, file, file, c.runs, file, c.pause)
			}
			r := record(t, "-F", "1999", "--", "sh", "-c", script+" done")
			found := alternating(t, profileWith(t, r.path, symbols.Options{Cache: cache}))
			t.Logf("%+v, %v by %v", found, r.stats.Unwind.Ended, r.stats.Unwind.FramesBy)
			if found.both > 0 || found.one < enough/2 || found.two < enough/2 {
				t.Errorf("%+v", found)
			}
			if r.stats.incomplete() > c.incomplete {
				t.Errorf("ended: %v\n%s", r.stats.Unwind.Ended, r.stderr)
			}
		})
	}
}

// keepByBuildID puts a file into a cache like perf's.
func keepByBuildID(t *testing.T, path, cache string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := elf.ReadBuildID(f)
	if err != nil || len(id) < 2 {
		t.Fatalf("%s: build ID %x, %v", path, id, err)
	}
	dir := filepath.Join(cache, ".build-id", fmt.Sprintf("%x", id[:1]), fmt.Sprintf("%x", id[1:]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, path, filepath.Join(dir, "elf"))
}

// profileWith is ownProfile with names from elsewhere.
func profileWith(t *testing.T, path string, o symbols.Options) *profile.Profile {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(o), profile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
