package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/testdata/programs"
)

// TestCodeThatMovesAgainAndAgain records a program that moves its code three times a second, which no record
// tells: the mappings are read again each time.
func TestCodeThatMovesAgainAndAgain(t *testing.T) {
	t.Parallel()
	needRoot(t)
	proc := programs.Start(t, buildCase(t, "moves.c"), 20)
	var r recording
	for _, seconds := range []string{"2", "10"} { // the second where a busy machine brings too few samples
		r = record(t, "-F", "999", "-d", seconds, "-p", strconv.Itoa(proc.Process.Pid))
		if r.stats.Samples.User >= enough {
			break
		}
	}
	t.Logf("%d samples, ended: %v", r.stats.Samples.User, r.stats.Unwind.Ended)
	if r.stats.Samples.User < enough || r.stats.incomplete() > 0.2 {
		t.Errorf("of %d stacks ended: %v\n%s", r.stats.Samples.User, r.stats.Unwind.Ended, r.stderr)
	}
}

// TestCodeThatTakesTurns records two pieces of code that are moved to the same address alternately, which no
// record tells: the frames of one must not be found by the rules of the other, whichever is there when maps
// is read.
func TestCodeThatTakesTurns(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := buildCase(t, "swap.c")
	t.Run("from the first instruction", func(t *testing.T) {
		t.Parallel()
		takeTurns(t, record(t, "-F", "1999", "--", program, "3"))
	})
	t.Run("in step with the reading of the rings", func(t *testing.T) {
		t.Parallel()
		takeTurns(t, record(t, "-F", "1999", "--", program, "2", "100"))
	})
	t.Run("that runs", func(t *testing.T) {
		t.Parallel()
		proc := programs.Start(t, program, 20)
		var r recording
		for _, seconds := range []string{"3", "10"} { // see above
			r = record(t, "-F", "1999", "-d", seconds, "-p", strconv.Itoa(proc.Process.Pid))
			if r.stats.Samples.User >= 4*enough {
				break
			}
		}
		takeTurns(t, r)
	})
}

func takeTurns(t *testing.T, r recording) {
	t.Helper()
	own := ownProfile(t, r.path)
	found := alternating(t, own)
	t.Logf("%+v, %v by %v", found, r.stats.Unwind.Ended, r.stats.Unwind.FramesBy)
	if found.both > 0 || found.one < enough || found.two < enough {
		t.Errorf("%+v", found)
	}
	// Until both have been seen, only one of them is known.
	if r.stats.incomplete() > 0.1 {
		t.Errorf("of %d stacks ended: %v\n%s", r.stats.Samples.User, r.stats.Unwind.Ended, r.stderr)
	}
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		if len(stack) < 2 || !strings.HasSuffix(stack[0], "_leaf") {
			continue
		}
		kind, _, _ := strings.Cut(stack[0], "_")
		want := []string{kind + "_leaf", kind + "_inner", kind + "_outer", "main"}
		if len(stack) < len(want) || !slices.Equal(stack[:len(want)], want) {
			t.Errorf("%d samples: %v", s.Count, stack)
		}
	}
}
