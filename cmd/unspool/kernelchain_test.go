package main

import (
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
			proc := programs.StartCounted(t, buildCase(t, "pointers.c", c.flags...), counted, c.depth)
			r := recordCounted(t, proc, append([]string{"--stack-size", "8192"}, c.args...)...)
			if c.root {
				matchCounted(t, r, proc.Chain, programs.Program{Name: "pointers"})
				r.whollyComplete(t)
				if by := r.stats.Unwind.CompleteBy; by["fallback"] < counted {
					t.Errorf("complete by: %v", by)
				}
			} else {
				truncatedChain(t, r, proc.Chain)
			}
			if by := r.stats.Unwind.FramesBy["kernel_fp"]; (by > 0) != c.added || r.stats.Unwind.Read > 0 {
				t.Errorf("%d frames by the kernel, %d stacks read", by, r.stats.Unwind.Read)
			}
		})
	}
}

// truncatedChain compares stacks with a chain whose root they do not reach.
func truncatedChain(t *testing.T, r recording, chain programs.Chain) {
	t.Helper()
	own := ownProfile(t, r.path)
	samples := 0
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		if len(stack) == 0 || stack[0] != chain.Leaf() {
			continue
		}
		samples += int(s.Count)
		if !isTruncated(chain, stack) {
			t.Errorf("%d samples of %d frames: %.600s", s.Count, len(stack), describe(own, s.Node))
		}
	}
	if ended := r.stats.Unwind.Ended; samples != counted || ended["dump_too_short"] < counted {
		t.Errorf("%d samples, want %d; ended: %v", samples, counted, ended)
	}
}

// TestInterruptedStackByTheKernel records a handler on an alternate stack that does not wait: only the
// kernel's walk, along frame pointers, shows what it has interrupted.
func TestInterruptedStackByTheKernel(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := programs.Program{Name: "signal", Args: []string{"other"}}
	proc := programs.StartCounted(t, programs.Build(t, p.Name, "-fno-omit-frame-pointer"), counted, p.Args...)
	r := recordCounted(t, proc)
	matchCounted(t, r, proc.Chain, p)
	if by := r.stats.Unwind.FramesBy["kernel_fp"]; by < counted {
		t.Errorf("%d frames by the kernel; %v by %v", by, r.stats.Unwind.Ended, r.stats.Unwind.FramesBy)
	}
}
