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
	r := record(t, "-F", "1999", "--", buildCase(t, "samepid.c"), "2", one, two)
	pid, err := strconv.Atoi(firstLine(r.stdout))
	if err != nil {
		t.Skipf("no PID can be chosen here: %s", r.stdout)
	}
	r.whole(t)
	own := ownProfile(t, r.path)
	for _, name := range []string{"one", "two"} {
		matchLeaves(t, r, programs.Chain{Kind: programs.Main,
			Frames: []string{"main", name + "_work", name + "_leaf"}})
		for _, s := range own.Samples {
			if got := own.Threads[s.Thread].PID; got != uint32(pid) &&
				slices.Contains(userStack(own, s.Node), name+"_leaf") {
				t.Errorf("a sample of %s is of PID %d", name, got)
			}
		}
	}
}
