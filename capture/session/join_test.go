package session

import (
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/unwind"
)

// TestCutStacksWantHelp: of a process, as many walks are logged as its cut stacks are worth.
func TestCutStacksWantHelp(t *testing.T) {
	t.Parallel()
	const many = 2 * maxHelpers / helpersOfCut
	walk := &perfdata.Walked{Sample: &perfring.Sample{StackSize: 1 << 10}, Result: &unwind.Result{}}
	for _, c := range []struct{ cuts, logged int }{
		{0, 0}, {1, helpersOfCut}, {3, 3 * helpersOfCut}, {many, maxHelpers},
	} {
		j := NewJoiner(sessiontest.Discard{}, 100, JoinAfter)
		for range c.cuts {
			j.cut(1)
		}
		logged := 0
		for range 2 * maxHelpers {
			if walk.SpaceID = 1; j.mayHelp(walk) {
				logged++
			}
			if walk.SpaceID = 2; j.mayHelp(walk) {
				t.Fatal("another process is logged")
			}
		}
		if logged != c.logged || len(j.wanted) > 0 {
			t.Errorf("%d cut stacks: %d walks are logged, want %d; %v", c.cuts, logged, c.logged, j.wanted)
		}
		for space := range uint64(3 * maxCutSpaces) {
			j.cut(space)
			if n := len(j.wanted); n > maxCutSpaces {
				t.Fatalf("%d processes are remembered", n)
			}
		}
	}
	deep := &unwind.Result{Frames: []unwind.Frame{{SP: 1 << 16}, {SP: 1<<16 + 1<<9}}}
	walk.Result = deep
	if j := NewJoiner(sessiontest.Discard{}, 100, JoinAfter); !j.mayHelp(walk) {
		t.Error("a stack of half the copy is not logged")
	}
}
