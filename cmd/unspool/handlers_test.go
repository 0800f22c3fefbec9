package main

import (
	"slices"
	"testing"
)

// TestInterruptedByTurns records handlers on an alternate stack: the interrupted stack is not in the copy,
// and when it is read from the process, the next handler may run where the sampled one did.
func TestInterruptedByTurns(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := buildCase(t, "handlers.c")
	for _, differ := range []string{"signals", "callers", "stays"} {
		t.Run(differ, func(t *testing.T) {
			t.Parallel()
			r := record(t, "-F", "1999", "--", program, "2", differ)
			// on a busy machine it is rarely seen to sleep
			if differ == "stays" && r.stats.Unwind.FramesBy["live"] == 0 {
				r = record(t, "-F", "1999", "--", program, "8", differ)
			}
			own := ownProfile(t, r.path)
			var samples, wrong int
			for _, s := range own.Samples {
				stack := userStack(own, s.Node)
				for _, names := range [][2]string{{"work_one", "two"}, {"work_two", "one"}} {
					if slices.Contains(stack, names[0]) {
						samples += int(s.Count)
						if slices.Contains(stack, names[1]) {
							wrong += int(s.Count)
						}
					}
				}
			}
			by, complete := r.stats.Unwind.FramesBy["live"], int(r.stats.Unwind.Complete)
			t.Logf("%d samples in handlers, %d with the wrong caller; %d live frames; %d samples in all, %d complete",
				samples, wrong, by, r.stats.Samples.User, complete)
			if samples < enough || wrong > 0 {
				t.Errorf("of %d stacks %d have a caller that cannot be", samples, wrong)
			}
			if rest := int(r.stats.Samples.User) - samples; complete > rest {
				t.Errorf("%d stacks are said to be complete, %d have no handler", complete, rest)
			}
			if differ == "stays" && by == 0 {
				t.Error("a handler that stays: nothing was read of what it has interrupted")
			}
		})
	}
}
