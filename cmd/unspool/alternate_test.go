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
	// Not all the others are complete: the end of a coroutine itself, glibc's __start_context, has CFI that says it has a
	// caller, and is sampled where its page comes in.
}

// TestFileThatIsRewritten records two programs that are written alternately to the same file and run from
// there: some time before the next one is written, as a file is opened some time after it was mapped, or
// right before. In the second case the file may already be the next one, which must be noticed.
func TestFileThatIsRewritten(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const runs, times = 3, 5
	for _, c := range []struct {
		name   string
		rounds int
		stays  bool // its last run stays until the file has been opened
	}{
		{"a while later", 3, true},
		{"at once", 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cache := t.TempDir() // with both, by build ID
			file, fifo := filepath.Join(t.TempDir(), "program"), programs.FIFO(t)
			script := ""
			for _, size := range []string{"64", "3000"} {
				name := map[string]string{"64": "one", "3000": "two"}[size]
				path := buildCase(t, "rewritten.c", "-no-pie", "-DNAME="+name, "-DSIZE="+size, "-Wl,--build-id=sha1")
				built := filepath.Join(filepath.Dir(path), name)
				if err := os.Rename(path, built); err != nil {
					t.Fatal(err)
				}
				keepByBuildID(t, built, cache)
				run := fmt.Sprintf("%s =%d", file, times)
				script += fmt.Sprintf("cat %s >%s; chmod +x %s; ", built, file, file)
				if c.stays {
					script += strings.Repeat(run+"; ", runs-1) + run + " " + fifo.Name() + "; "
				} else {
					script += run + "; "
				}
			}
			s := startUnsampled(t, slices.Concat(programs.Faults(), []string{"-D", "0", "--stack-size", "8192", "--", "sh", "-c",
				strings.Repeat(script, c.rounds)})...)
			each := c.rounds * times
			if c.stays {
				each *= runs
				for range 2 * c.rounds {
					s.goOn(t, fifo)
				}
			}
			r := s.end(t)
			if err := os.Remove(file); err != nil { // which gave its names to the other one
				t.Fatal(err)
			}
			found := alternating(t, profileWith(t, r.path, symbols.Options{Cache: cache}))
			t.Logf("%+v, %v by %v", found, r.stats.Unwind.Ended, r.stats.Unwind.FramesBy)
			// Of a file that could not be opened in time, the functions have no names.
			ended := r.stats.Unwind.Ended
			late := int(ended["no_image"])
			if found.both > 0 || c.stays && (found.one+late < each || found.two+late < each || found.one < times ||
				found.two < times) {
				t.Errorf("%+v and %d late, of %d each", found, late, each)
			}
			// Tables of another file would end the others elsewhere.
			if ended["bad_cfi"]+ended["no_cfi"]+ended["unmapped"] > 0 {
				t.Errorf("ended: %v\n%s", ended, r.stderr)
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
