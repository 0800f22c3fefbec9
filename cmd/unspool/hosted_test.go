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
			r := recordRuns(t, program, how)
			if how != "entered" {
				r.whole(t)
			} else if by := r.stats.Unwind.FramesBy["resumed"]; by < r.stats.Samples.User ||
				r.stats.Unwind.Ended["no_cfi"]*100 < r.stats.Samples.User*95 {
				// Frames that are found after a gap do not make the stack complete.
				t.Errorf("%d frames by going on elsewhere; ended: %v", by, r.stats.Unwind.Ended)
			}
			stacks, samples := generatedStacks(t, r)
			right := 0
			for _, s := range stacks {
				// A handler that ends the program after its time can have interrupted the code.
				handled := s.last > 0 && s.names[s.last-1] == "__restore_rt"
				if s.frames == 1 && (s.leaf || handled) && s.last+1 < len(s.names) && s.names[s.last+1] == caller {
					right += s.count
				} else {
					t.Logf("%d samples lead elsewhere: %v in %v", s.count, s.names, s.files)
				}
			}
			t.Logf("%d of %d stacks with generated code lead to %s", right, samples, caller)
			if samples < enough || right != samples {
				t.Errorf("%d of %d stacks with generated code lead to %s\n%s", right, samples, caller, r.stderr)
			}
		})
	}
}

// TestGeneratedCodeInFiles records code that a runtime generates into a file, to which it keeps writing.
func TestGeneratedCodeInFiles(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := buildCase(t, "jitfile.c")
	for name, file := range map[string]string{"memfd": "memfd", "file": filepath.Join(t.TempDir(), "code")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := record(t, "-F", "1999", "--", program, "2", file)
			r.whole(t)
			chain, err := programs.ParseChain(firstLine(r.stdout))
			if err != nil {
				t.Fatal(err)
			}
			matchLeaves(t, r, chain)
		})
	}
}
