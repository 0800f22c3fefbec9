package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/capture/profile"
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
	}{
		{"in a large frame", "leaf", []string{"-fomit-frame-pointer"}, "untouched_leaf"},
		{"in a large frame, with frame pointers", "leaf", []string{"-fno-omit-frame-pointer"},
			"untouched_leaf untouched_caller main"},
		{"in recursion", "deep", []string{"-fomit-frame-pointer"}, "untouched_down"},
		{"in recursion, with frame pointers", "deep", []string{"-fno-omit-frame-pointer"}, "untouched_down"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Less than the kernel can copy, so that there would be something to advise.
			r, _ := recordCountedCommandWith(t, []string{"--no-join", "--stack-size", "32768"},
				buildCase(t, "untouched.c", c.flags...), c.mode)
			st := &r.stats
			t.Logf("%+v, cut: %v, frames by: %v", st.Samples, st.Unwind.Cut, st.Unwind.FramesBy)
			// Where the call of the next function has touched the page, there are some bytes.
			if none := st.Unwind.Cut["no_copy"]; none < counted || st.Samples.KernelOnly > 0 ||
				st.Unwind.Complete+none+st.Unwind.Cut["gap"] != st.Samples.User {
				t.Errorf("of %+v, nothing was copied of %d: %v", st.Samples, none, st.Unwind.Ended)
			}
			if !strings.Contains(r.stderr, "never touched") || strings.Contains(r.stderr, "--stack-size") {
				t.Errorf("the summary:\n%s", r.stderr)
			}
			leads(t, r, c.want, counted)
			if pointers := slices.Contains(c.flags, "-fno-omit-frame-pointer"); pointers !=
				(st.Unwind.FramesBy["kernel_fp"] >= counted) {
				t.Errorf("%d frames by the kernel", st.Unwind.FramesBy["kernel_fp"])
			}
		})
	}
}

// TestUntouchedPagesAreRead records such stacks until enough of them have been completed by reads of the process.
func TestUntouchedPagesAreRead(t *testing.T) {
	t.Parallel()
	needRoot(t)
	proc := programs.StartCounted(t, buildCase(t, "untouched.c"), 1<<16, "leaf", "slowly")
	s := startUnsampled(t, slices.Concat(programs.Faults(), []string{"-p", strconv.Itoa(proc.Process.Pid),
		"--stack-size", "8192"})...)
	s.control("enable")
	proc.Continue()
	s.until(t, "stacks that were completed", func(p *profile.Profile) bool {
		complete := 0
		for _, sample := range p.Samples {
			whole := sample.End == profile.Complete || sample.End == profile.Joined
			if whole && userStack(p, sample.Node)[0] == "untouched_leaf" {
				complete += int(sample.Count)
			}
		}
		return complete >= counted
	})
	proc.Process.Kill()
	r := s.end(t)
	if r.stats.Unwind.FramesBy["live"] == 0 {
		t.Errorf("frames by: %v", r.stats.Unwind.FramesBy)
	}
	for _, stack := range leafStacks(t, r, "untouched_leaf") {
		if len(stack) > 1 && !strings.HasPrefix(strings.Join(stack, " ")+" ", "untouched_leaf untouched_caller main ") {
			t.Errorf("a stack: %s", stack)
		}
	}
}

// TestConvertsStacksOnPagesThatWereNeverTouched converts them as perf has recorded them, without the kernel's
// own walk.
func TestConvertsStacksOnPagesThatWereNeverTouched(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	output(t, dir, "perf", slices.Concat([]string{"record", "-q", "-m", "16M"}, programs.Faults(), []string{"--call-graph",
		"dwarf,8192", "-o", "raw.data", "--", buildCase(t, "untouched.c"), programs.Times(counted), "leaf"})...)
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
	if none := st.Unwind.Cut["no_copy"]; none < counted {
		t.Errorf("%+v, cut: %v", st.Samples, st.Unwind.Cut)
	}
	leads(t, recording{path: filepath.Join(dir, "perf.data"), stats: st, ended: e}, "untouched_leaf", counted)
}

// leafStacks are the stacks that begin in a function, leaf first, each as often as it was sampled.
func leafStacks(t *testing.T, r recording, leaf string) (stacks [][]string) {
	t.Helper()
	own := ownProfile(t, r.path)
	for _, s := range own.Samples {
		if stack := userStack(own, s.Node); len(stack) > 0 && stack[0] == leaf {
			stacks = append(stacks, slices.Repeat([][]string{stack}, int(s.Count))...)
		}
	}
	return stacks
}

// leads holds against want, leaf first, what the stacks begin with that have its leaf there, of which there
// are n or more.
func leads(t *testing.T, r recording, want string, n int) {
	t.Helper()
	leaf, _, _ := strings.Cut(want, " ")
	stacks := leafStacks(t, r, leaf)
	if len(stacks) < n {
		t.Errorf("%d samples begin in %s, of %d", len(stacks), leaf, n)
	}
	for _, stack := range stacks {
		if got := strings.Join(stack, " ") + " "; !strings.HasPrefix(got, want+" ") {
			t.Errorf("a stack: %s", got)
		}
	}
}
