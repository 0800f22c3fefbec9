package main

import (
	"testing"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestMachineCodeThatMovesAgainAndAgain records a program that moves its code, which no record tells: the
// mappings are read again each time. How often they may be read depends on how long that takes, which is why
// not all need be found.
func TestMachineCodeThatMovesAgainAndAgain(t *testing.T) {
	lane.Machine(t, 0.9) // how often maps are read again is bounded by time
	needRoot(t)
	const places = counted / 5
	proc := programs.StartCounted(t, buildCase(t, "moves.c"), counted)
	own := ownProfile(t, recordSteps(t, proc, places).path)
	found, lost := 0, 0
	for _, s := range own.Samples {
		switch stack := userStack(own, s.Node); {
		case proc.Chain.Match(stack) == nil:
			found += int(s.Count)
		case len(stack) == 1:
			lost += int(s.Count)
		case stack[0] == "mremap": // what moves the code
		default:
			t.Errorf("%d samples: %s", s.Count, describe(own, s.Node))
		}
	}
	if found+lost < counted || found < counted/2 {
		t.Errorf("%d stacks found, %d that end at once, of %d", found, lost, counted)
	}
}
