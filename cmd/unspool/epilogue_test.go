package main

import (
	"slices"
	"testing"

	"unspool/testdata/programs"
)

// TestTablesThatDoNotFollowTheCode records a program in an epilogue and between functions, where the unwind
// tables do not say what its code did.
func TestTablesThatDoNotFollowTheCode(t *testing.T) {
	t.Parallel()
	needRoot(t)
	r := record(t, slices.Concat(programs.Faults(), []string{"--", buildCase(t, "epilogue.c"),
		programs.Times(counted)})...)
	r.whollyComplete(t)
	for _, leaf := range []string{"aligned_leaf", "padded_leaf"} {
		matchCounted(t, r, programs.Chain{Kind: programs.Main,
			Frames: []string{"main", "inner", "own_frame", leaf}}, programs.Program{Name: "epilogue"})
	}
}
