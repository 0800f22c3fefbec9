package main

import (
	"testing"

	"unspool/testdata/programs"
)

// TestTablesThatDoNotFollowTheCode records a program in an epilogue and between functions, where the unwind
// tables do not say what its code did.
func TestTablesThatDoNotFollowTheCode(t *testing.T) {
	t.Parallel()
	needRoot(t)
	r := record(t, "-F", "1999", "--", buildCase(t, "epilogue.c"), "2")
	r.whole(t)
	for _, leaf := range []string{"aligned_leaf", "padded_leaf"} {
		matchLeaves(t, r, programs.Chain{Kind: programs.Main,
			Frames: []string{"main", "inner", "own_frame", leaf}})
	}
}
