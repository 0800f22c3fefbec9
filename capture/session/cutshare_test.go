package session

import "testing"

// TestCutShares: stacks are read while more than one of 200 of a program's is cut off, however many others there are.
func TestCutShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		on           bool
		samples, cut int // of program 1
		others       int // samples of program 2, none of which is cut off
		want         bool
	}{
		{"nothing was sampled", false, 0, 0, 0, false},
		{"nothing was sampled since it is on", true, 0, 0, 0, true},
		{"a first few", true, 300, 0, 50, true},
		{"enough of which none is cut off", true, 300, 0, 100, false},
		{"one", false, 10, 1, 0, false},
		{"some", false, 10, leastCut, 0, true},
		{"too few", false, 200 * leastCut, leastCut, 0, false},
		{"as few, once it is on", true, 200 * leastCut, leastCut, 0, true},
		{"beside a large program", false, 100, leastCut, 2000, true},
	} {
		var shares cutShares
		for i := range c.samples {
			if s := shares.sampled(1, uint64(i)); i < c.cut {
				s.cut++
			}
		}
		for i := range c.others {
			shares.sampled(2, uint64(i))
		}
		if got := shares.want(c.on); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestCutSharesAreBounded: programs that were not sampled for a while, and many at a time, are forgotten.
func TestCutSharesAreBounded(t *testing.T) {
	t.Parallel()
	var shares cutShares
	for i := range uint64(10 * mostPrograms) {
		if shares.sampled(i, i).cut = leastCut; len(shares.by) > mostPrograms {
			t.Fatalf("%d programs", len(shares.by))
		}
	}
	shares.sampled(0, 10*silentFor).samples = 1000
	if shares.want(false) || len(shares.by) != 1 {
		t.Errorf("%d programs", len(shares.by))
	}
}

// TestCutSharesThatAreRead: links are waited for where more than one of 64 of a program's cut stacks is not read.
func TestCutSharesThatAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cut, read uint64
		want      bool
	}{{0, 0, false}, {10, 0, false}, {10, 10, true}, {64, 63, true}, {64, 62, false}, {1000, 990, true}} {
		if got := (&cutShare{cut: c.cut, read: c.read}).isRead(); got != c.want {
			t.Errorf("%d of %d: %v", c.read, c.cut, got)
		}
	}
}
