package main

import (
	"strings"
	"testing"

	"unspool/testdata/programs"
)

// TestReadsAskNobody records a program whose stack has pages that userfaultfd(2) would have to give: the copies end
// there, and what is behind them is looked for. The program is not asked for these pages, as it would be by a thread
// that touches them.
func TestReadsAskNobody(t *testing.T) {
	t.Parallel()
	needRoot(t)
	path := buildCase(t, "userfault.c", "-Wno-error")
	for _, size := range []string{"65528", "32768", "16384"} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			fifo := programs.FIFO(t)
			s := startUnsampled(t, append(programs.Faults(), "--stack-size", size, "-D", "0", "--", path,
				programs.Times(counted), fifo.Name())...)
			s.goOn(t, fifo)
			r := s.end(t)
			u := r.stats.Unwind
			if n := u.Cut["gap"] + u.Cut["too_deep"] + u.Read; n < counted {
				t.Errorf("%d stacks are not in their copies: %+v", n, u)
			}
			if !strings.HasSuffix(r.stdout, "\nasked 0 times\n") {
				t.Errorf("the program says: %s", r.stdout)
			}
		})
	}
}
