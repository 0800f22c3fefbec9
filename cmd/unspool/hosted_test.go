package main

import (
	"path/filepath"
	"testing"

	"unspool/testdata/programs"
)

// TestInterpreterHostsItsCode records code that was generated at run time and runs on the frame of the
// interpreter that has jumped to it. How it returns cannot be read from the code.
func TestInterpreterHostsItsCode(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := buildCase(t, "hosted.c")
	callers := map[string]string{"call": "directly", "pointer": "through_pointer", "entered": "enter"}
	for how, caller := range callers {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := recordSteps(t, programs.StartCounted(t, program, counted, how), 1)
			if how != "entered" {
				r.whollyComplete(t)
			} else if by := r.stats.Unwind.FramesBy["resumed"]; by < counted ||
				r.stats.Unwind.Ended["no_cfi"] != counted {
				// Frames that are found after a gap do not make the stack complete.
				t.Errorf("%d frames by going on elsewhere; ended: %v", by, r.stats.Unwind.Ended)
			}
			stacks, samples := generatedStacks(t, r)
			right := 0
			for _, s := range stacks {
				if s.frames == 1 && s.leaf && len(s.names) > 1 && s.names[1] == caller {
					right += s.count
				} else {
					t.Errorf("%d samples lead elsewhere: %v in %v", s.count, s.names, s.files)
				}
			}
			if samples != counted || right != counted {
				t.Errorf("%d of %d stacks with generated code lead to %s, of %d\n%s", right, samples, caller, counted,
					r.stderr)
			}
		})
	}
}

// TestGeneratedCodeInFiles records code that a runtime generates into a file, to which it keeps writing. The file
// is empty when the recording begins, and more of it is mapped later.
func TestGeneratedCodeInFiles(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := buildCase(t, "jitfile.c")
	for name, file := range map[string]string{"memfd": "memfd", "file": filepath.Join(t.TempDir(), "code")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc := programs.StartCounted(t, program, counted, file)
			r := recordSteps(t, proc, 1)
			r.whollyComplete(t)
			matchCounted(t, r, proc.Chain, programs.Program{Name: "jitfile"})
		})
	}
}
