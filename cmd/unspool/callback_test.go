package main

import (
	"slices"
	"testing"

	"unspool/testdata/programs"
)

// TestFunctionPointerIsNoReturnAddress records code without CFI whose BP points to a pointer to a function,
// as a frame pointer does to a return address.
func TestFunctionPointerIsNoReturnAddress(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, c := range []struct {
		name  string
		flags []string
		args  []string
	}{
		{"in a file", nil, nil},
		{"generated", nil, []string{"generated"}},
		{"i386", []string{"-m32"}, nil},
		{"i386, generated", []string{"-m32"}, []string{"generated"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if slices.Contains(c.flags, "-m32") {
				programs.NeedMode(t, "-m32", "gcc")
			}
			program := buildCase(t, "callback.c", append(c.flags, "-fno-omit-frame-pointer")...)
			r := record(t, slices.Concat(programs.Faults(), []string{"--", program, programs.Times(counted)},
				c.args)...)
			own := ownProfile(t, r.path)
			var samples, wrong int
			for _, s := range own.Samples {
				stack := userStack(own, s.Node)
				image := own.Images[own.Frames[own.Nodes[s.Node].Frame].Image].Name
				if len(stack) == 0 || stack[0] != "loop_begin" && !isGenerated(image) {
					continue
				}
				samples += int(s.Count)
				if len(stack) > 1 && stack[1] != "submit" {
					wrong += int(s.Count)
					t.Logf("%d samples: %.300s", s.Count, describe(own, s.Node))
				}
			}
			t.Logf("%d samples, %d wrong; ended: %v; by %v", samples, wrong, r.stats.Unwind.Ended,
				r.stats.Unwind.FramesBy)
			if samples != counted || wrong > 0 {
				t.Errorf("%d of %d stacks have a caller that called nothing; there are %d", wrong, samples, counted)
			}
		})
	}
}
