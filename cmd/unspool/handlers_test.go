package main

import (
	"slices"
	"strconv"
	"testing"

	"unspool/capture/profile"
	"unspool/testdata/programs"
)

// TestInterruptedByTurns records handlers on an alternate stack: the interrupted stack is not in the copy, and is read
// when the thread is sampled again. Two interrupt the same stack at different places by turns.
func TestInterruptedByTurns(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := buildCase(t, "handlers.c")
	for _, differ := range []string{"signals", "callers"} {
		t.Run(differ, func(t *testing.T) {
			t.Parallel()
			r := record(t, slices.Concat(programs.Faults(), []string{"--stack-size", "8192", "--", program,
				programs.Times(2 * counted), differ})...)
			if one, two := interrupted(t, r); one != counted || two != counted {
				t.Errorf("%d and %d samples in handlers, of %d each", one, two, counted)
			}
		})
	}
	t.Run("stays", func(t *testing.T) {
		t.Parallel()
		proc := programs.StartCounted(t, program, 1<<16, "stays")
		s := startUnsampled(t, slices.Concat(programs.Faults(), []string{"-p", strconv.Itoa(proc.Process.Pid),
			"--stack-size", "8192"})...)
		s.control("enable")
		proc.Continue()
		s.until(t, "a caller of the interrupted function that was read", func(p *profile.Profile) bool {
			return slices.ContainsFunc(p.Samples, func(sample profile.Sample) bool {
				stack := userStack(p, sample.Node)
				return slices.Contains(stack, "work_one") && slices.Contains(stack, "main")
			})
		})
		proc.Process.Kill()
		r := s.end(t)
		interrupted(t, r)
		if r.stats.Unwind.FramesBy["live"] == 0 {
			t.Errorf("frames by: %v", r.stats.Unwind.FramesBy)
		}
	})
}

// interrupted counts the samples in the handlers for each function. None has the other function for its caller.
func interrupted(t *testing.T, r recording) (one, two int) {
	t.Helper()
	own := ownProfile(t, r.path)
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		wrong := ""
		switch {
		case slices.Contains(stack, "work_one"):
			one, wrong = one+int(s.Count), "two"
		case slices.Contains(stack, "work_two"):
			two, wrong = two+int(s.Count), "one"
		}
		if wrong != "" && slices.Contains(stack, wrong) {
			t.Errorf("%d samples have a caller that cannot be: %s", s.Count, describe(own, s.Node))
		}
	}
	t.Logf("%d and %d samples in handlers; by %v", one, two, r.stats.Unwind.FramesBy)
	return one, two
}
