package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/testdata/programs"
)

// TestStacksOnPagesThatWereNeverTouched records stacks of which the kernel copies nothing. They are user
// stacks all the same: with the sampled PC, and what the kernel's own walk has found where there are frame
// pointers.
func TestStacksOnPagesThatWereNeverTouched(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, c := range []struct {
		name, mode string
		flags      []string
		want       string // of a stack that begins in the leaf
		least      uint64 // of so many samples in a hundred nothing was copied
	}{
		{"in a large frame", "leaf", []string{"-fomit-frame-pointer"}, "fresh_leaf", 95},
		{"in a large frame, with frame pointers", "leaf", []string{"-fno-omit-frame-pointer"},
			"fresh_leaf fresh_caller main", 95},
		{"in recursion", "deep", []string{"-fomit-frame-pointer"}, "fresh_down", 30},
		{"in recursion, with frame pointers", "deep", []string{"-fno-omit-frame-pointer"}, "fresh_down", 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			proc := programs.Start(t, buildCase(t, "fresh.c", c.flags...), 20, c.mode)
			// Less than the kernel can copy, so that there is something to advise.
			what := []string{"-p", strconv.Itoa(proc.Process.Pid), "--stack-size", "32768"}
			if c.mode == "leaf" {
				// Its pages are there after a tenth of a second.
				isRead(t, recordEnough(t, append(what, "-d", "1")...), "fresh_leaf fresh_caller main")
			} else {
				what = append(what, "-d", "2") // many samples, as the share is not far from the least
			}
			r := recordEnough(t, append(what, "--no-join")...)
			st := &r.stats
			t.Logf("%+v, cut: %v, frames by: %v", st.Samples, st.Unwind.Cut, st.Unwind.FramesBy)
			if none := st.Unwind.Cut["no_copy"]; st.Samples.User < enough || none*100 < c.least*st.Samples.User {
				t.Fatalf("of %d user stacks, nothing was copied of %d", st.Samples.User, none)
			}
			if st.Samples.KernelOnly*100 > st.Samples.Total { // threads that are being made or end
				t.Errorf("%d of %d samples are said to be in the kernel only", st.Samples.KernelOnly,
					st.Samples.Total)
			}
			// A page that was read in the meantime is there, so that the kernel copies on, maybe up to the size of
			// a copy: more bytes help such stacks only.
			deep := st.Unwind.Cut["too_deep"]
			if !strings.Contains(r.stderr, "never touched") ||
				strings.Contains(r.stderr, "--stack-size") != (deep > 0) || deep*100 > 2*st.Samples.User {
				t.Errorf("the summary:\n%s", r.stderr)
			}
			leads(t, r, c.want)
			if pointers := slices.Contains(c.flags, "-fno-omit-frame-pointer"); pointers !=
				(st.Unwind.FramesBy["kernel_fp"] > 0) {
				t.Errorf("%d frames by the kernel", st.Unwind.FramesBy["kernel_fp"])
			}
		})
	}
}

// TestConvertsStacksOnPagesThatWereNeverTouched converts them as perf has recorded them, without the kernel's
// own walk.
func TestConvertsStacksOnPagesThatWereNeverTouched(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	output(t, dir, "perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "--call-graph", "dwarf,8192", "-o",
		"raw.data", "--", buildCase(t, "fresh.c"), "1", "leaf")
	e := unspool(t, dir, "convert", "raw.data", "-o", "perf.data", "--stats", "stats.json")
	if e.status != 0 {
		t.Fatal(e.stderr)
	}
	content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	st := readStatistics(t, content)
	st.addUp(t)
	if st.Samples.User < enough || st.Unwind.Cut["no_copy"]*100 < 90*st.Samples.User {
		t.Errorf("%+v, cut: %v", st.Samples, st.Unwind.Cut)
	}
	leads(t, recording{path: filepath.Join(dir, "perf.data"), stats: st, ended: e}, "fresh_leaf")
}

// isRead has most stacks completed by reads of the process, and holds what they begin with against want.
func isRead(t *testing.T, r recording, want string) {
	t.Helper()
	st := &r.stats
	if st.Samples.User < enough || st.Unwind.Complete*2 < st.Samples.User || st.Unwind.FramesBy["live"] == 0 {
		t.Errorf("%d of %d user stacks are complete, %v", st.Unwind.Complete, st.Samples.User, st.Unwind.FramesBy)
	}
	leadOn(t, r, want, 2)
}

// leads holds against want, leaf first, what the stacks begin with that have its leaf there.
func leads(t *testing.T, r recording, want string) {
	t.Helper()
	leadOn(t, r, want, 1)
}

// leadOn is leads for the stacks of so many frames or more.
func leadOn(t *testing.T, r recording, want string, frames int) {
	t.Helper()
	own := ownProfile(t, r.path)
	leaf, _, _ := strings.Cut(want, " ")
	var samples uint64
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		if len(stack) < frames || stack[0] != leaf {
			continue
		}
		samples += s.Count
		if got := strings.Join(stack, " ") + " "; !strings.HasPrefix(got, want+" ") {
			t.Errorf("%d samples: %s", s.Count, got)
		}
	}
	if samples < enough/2 {
		t.Errorf("%d samples begin in %s", samples, leaf)
	}
}
