package main

import (
	"testing"

	"unspool/testdata/programs"
)

// TestCodeFarApart records programs whose code spans more addresses than 32 bits
// can tell apart.
func TestCodeFarApart(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, pie := range []string{"no-pie", "pie"} {
		t.Run(pie, func(t *testing.T) {
			t.Parallel()
			// The assembler's own CFI is of 32 bits, as is the search table.
			path := programs.Build(t, "qsort", "-"+pie, "-f"+pie, "-mcmodel=large", "-ffunction-sections",
				"-fno-dwarf2-cfi-asm", "-Wl,--no-eh-frame-hdr", "-Wl,-T,"+source(t, "far.ld"))
			proc := programs.StartCounted(t, path, counted)
			r := recordCounted(t, proc)
			// The page of the leaf's code is one more.
			if n := matchEnd(t, ownProfile(t, r.path), proc.Chain); n < counted || n > counted+1 {
				t.Errorf("%d stacks at the chain's end, want %d", n, counted)
			}
			r.whollyComplete(t)
		})
	}
}
