package main

import (
	"slices"
	"strconv"
	"testing"

	"unspool/testdata/programs"
)

// TestPIDsThatAreUsedAgain records two programs that have the same PID alternately, and their functions at
// the same addresses.
func TestPIDsThatAreUsedAgain(t *testing.T) {
	t.Parallel()
	needRoot(t)
	one := buildCase(t, "worker.c", "-no-pie", "-DNAME=one", "-DSIZE=64")
	two := buildCase(t, "worker.c", "-no-pie", "-DNAME=two", "-DSIZE=3000")
	const turns, each = 10, 3
	r := record(t, slices.Concat(programs.Faults(), []string{"--stack-size", "16384", "--",
		buildCase(t, "samepid.c"), strconv.Itoa(turns), one, two})...)
	pid, err := strconv.Atoi(firstLine(r.stdout))
	if err != nil {
		t.Skipf("no PID can be chosen here: %s", r.stdout)
	}
	r.whollyComplete(t)
	own := ownProfile(t, r.path)
	for _, name := range []string{"one", "two"} {
		chain := programs.Chain{Kind: programs.Main, Frames: []string{"main", name + "_work", name + "_leaf"}}
		if n := matchEnd(t, own, chain); n != turns/2*each {
			t.Errorf("%d samples of %s, want %d", n, name, turns/2*each)
		}
		for _, s := range own.Samples {
			if got := own.Threads[s.Thread].PID; got != uint32(pid) &&
				slices.Contains(userStack(own, s.Node), name+"_leaf") {
				t.Errorf("a sample of %s is of PID %d", name, got)
			}
		}
	}
}
