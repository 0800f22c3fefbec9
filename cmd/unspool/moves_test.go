package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/capture/profile"
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

// TestCodeThatTakesTurns records two pieces of code that are moved to the same address alternately, which no
// record tells: the frames of one must not be found by the rules of the other, whichever is there when maps
// is read.
func TestCodeThatTakesTurns(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const each, turns = 5, 8
	proc := programs.StartCounted(t, buildCase(t, "swap.c"), each*turns)
	own := ownProfile(t, recordSteps(t, proc, turns).path)
	found := takingTurns(t, own)
	if found.both > 0 || found.one < each || found.two < each {
		t.Errorf("%+v", found)
	}
}

// takingTurns holds each stack against the chains of the two, and counts those that are found.
func takingTurns(t *testing.T, p *profile.Profile) (found chains) {
	t.Helper()
	found = alternating(t, p)
	for _, s := range p.Samples {
		stack := userStack(p, s.Node)
		if len(stack) < 2 || !strings.HasSuffix(stack[0], "_leaf") {
			continue
		}
		kind, _, _ := strings.Cut(stack[0], "_")
		want := []string{kind + "_leaf", kind + "_inner", kind + "_outer", "main"}
		if len(stack) < len(want) || !slices.Equal(stack[:len(want)], want) {
			t.Errorf("%d samples: %v", s.Count, stack)
		}
	}
	return found
}

// TestMachineCodeThatTakesTurns has them take turns by the clock, also in step with the reading of the rings.
func TestMachineCodeThatTakesTurns(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	program := buildCase(t, "swap.c")
	takeTurns := func(t *testing.T, r recording) {
		t.Helper()
		found := takingTurns(t, ownProfile(t, r.path))
		lane.Figure(t, "%+v, %v by %v", found, r.stats.Unwind.Ended, r.stats.Unwind.FramesBy)
		if found.both > 0 || found.one < enough || found.two < enough {
			t.Errorf("%+v", found)
		}
		// Until both have been seen, only one of them is known.
		if r.stats.incomplete() > 0.1 {
			t.Errorf("of %d stacks ended: %v\n%s", r.stats.Samples.User, r.stats.Unwind.Ended, r.stderr)
		}
	}
	t.Run("from the first instruction", func(t *testing.T) {
		takeTurns(t, record(t, "-F", "1999", "--", program, "3"))
	})
	t.Run("in step with the reading of the rings", func(t *testing.T) {
		takeTurns(t, record(t, "-F", "1999", "--", program, "2", "100"))
	})
	t.Run("that runs", func(t *testing.T) {
		proc := programs.Start(t, program, 20)
		takeTurns(t, record(t, "-F", "1999", "-d", "3", "-p", strconv.Itoa(proc.Process.Pid)))
	})
}
