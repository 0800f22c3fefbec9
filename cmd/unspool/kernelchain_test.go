package main

import (
	"slices"
	"strconv"
	"testing"

	"unspool/testdata/programs"
)

// TestDeeperThanTheCopy records recursion of which the copy holds eight frames. The frames above have frame
// pointers, which the kernel has followed. With --no-join they are not read from the process.
func TestDeeperThanTheCopy(t *testing.T) {
	t.Parallel()
	needRoot(t)
	ownStart := []string{"-fno-omit-frame-pointer", "-DOWN_START", "-nostartfiles"}
	for _, c := range []struct {
		name  string
		flags []string
		depth string
		args  []string
		root  bool // is reached
		added bool // frames are found by the kernel
	}{
		{"to the root", ownStart, "60", []string{"--no-join"}, true, true},
		{"deeper than the kernel walks", ownStart, "200", []string{"--no-join"}, false, true},
		{"strict", ownStart, "60", []string{"--strict"}, false, false},
		{"without frame pointers", []string{"-fomit-frame-pointer"}, "60", []string{"--no-join"}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			proc := programs.Start(t, buildCase(t, "pointers.c", c.flags...), 20, c.depth)
			r := recordEnough(t, append([]string{"--stack-size", "8192", "-p", strconv.Itoa(proc.Process.Pid)},
				c.args...)...)
			if c.root {
				matchChain(t, r, proc.Chain, programs.Program{Name: "pointers"})
				r.whole(t)
				if by := r.stats.Unwind.CompleteBy; by["fallback"]*100 < r.stats.Unwind.Complete*99 {
					t.Errorf("complete by: %v", by)
				}
			} else {
				truncatedChain(t, r, proc.Chain)
			}
			if by := r.stats.Unwind.FramesBy["kernel_fp"]; (by > 0) != c.added {
				t.Errorf("%d frames by the kernel", by)
			}
		})
	}
}

// truncatedChain compares stacks with a chain whose root they do not reach.
func truncatedChain(t *testing.T, r recording, chain programs.Chain) {
	t.Helper()
	own := ownProfile(t, r.path)
	var samples, frames int
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		if !slices.Contains(stack, chain.Leaf()) {
			continue
		}
		samples += int(s.Count)
		frames += int(s.Count) * len(stack)
		if !isTruncated(chain, stack) {
			t.Errorf("%d samples of %d frames: %.600s", s.Count, len(stack), describe(own, s.Node))
		}
	}
	if samples < enough {
		t.Fatalf("%d samples", samples)
	}
	t.Logf("%d samples, %.1f frames each, ended: %v", samples, float64(frames)/float64(samples),
		r.stats.Unwind.Ended)
	if short := r.stats.Unwind.Ended["dump_too_short"]; short*100 < r.stats.Samples.User*99 {
		t.Errorf("ended: %v", r.stats.Unwind.Ended)
	}
}

// TestInterruptedStackByTheKernel records a handler on an alternate stack that does not wait: only the
// kernel's walk, along frame pointers, shows what it has interrupted.
func TestInterruptedStackByTheKernel(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := programs.Program{Name: "signal", Args: []string{"other"}}
	proc := programs.Start(t, programs.Build(t, p.Name, "-fno-omit-frame-pointer"), 20, p.Args...)
	r := recordEnough(t, "-p", strconv.Itoa(proc.Process.Pid))
	matchChain(t, r, proc.Chain, p)
	if by := r.stats.Unwind.FramesBy["kernel_fp"]; by < r.stats.Samples.User {
		t.Errorf("%d frames by the kernel; %v by %v", by, r.stats.Unwind.Ended, r.stats.Unwind.FramesBy)
	}
}
