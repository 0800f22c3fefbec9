package profile

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/unwind"
)

// points returns the points of a thread.
func points(t testing.TB, line *Timeline, thread int32) (all []Point) {
	t.Helper()
	if err := line.Each(thread, func(p Point) error { all = append(all, p); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func newTimeline(t testing.TB) *Timeline {
	t.Helper()
	line, err := NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	return line
}

// The points that were added are returned by thread, for counts around the size of a block, and a second
// time.
func TestTimelineKeepsEveryPoint(t *testing.T) {
	const full = blockSize / pointSize
	for _, counts := range [][]int{{0}, {1}, {full - 1}, {full}, {full + 1}, {3 * full, 0, 2*full + 5},
		{1, 9000, full}} {
		t.Run(fmt.Sprint(counts), func(t *testing.T) {
			line := newTimeline(t)
			want := make([][]Point, len(counts))
			add := func() {
				for i := range slices.Max(counts) {
					for thread, n := range counts { // the threads by turns
						if i >= n {
							continue
						}
						s := Sample{Thread: int32(thread), Node: int32(i), Event: int32(i % 3), CPU: int32(i%5) - 1,
							End: End(i % 7), Period: math.MaxUint64 - uint64(i)}
						time := uint64(thread)<<60 + uint64(i)
						if err := line.Add(time, &s); err != nil {
							t.Fatal(err)
						}
						want[thread] = append(want[thread], Point{time, s.Node, s.Event, s.CPU, s.End, s.Period})
					}
				}
			}
			for range 2 {
				add()
				for thread := range counts {
					if got := points(t, line, int32(thread)); !slices.Equal(got, want[thread]) {
						t.Errorf("thread %d: %d points, want %d, or others", thread, len(got), len(want[thread]))
					}
				}
			}
			if got := points(t, line, int32(len(counts))); got != nil {
				t.Errorf("a thread that has none: %v", got)
			}
		})
	}
}

func TestTimelineNodesChangeTwice(t *testing.T) {
	line := newTimeline(t)
	for node := range int32(3) {
		if err := line.Add(0, &Sample{Node: node}); err != nil {
			t.Fatal(err)
		}
	}
	line.remapped([]int32{0, 2, 3})
	line.remapped([]int32{0, 0, 1, 7})
	var nodes []int32
	for _, p := range points(t, line, 0) {
		nodes = append(nodes, p.Node)
	}
	if want := []int32{0, 1, 7}; !slices.Equal(nodes, want) {
		t.Errorf("nodes %v, want %v", nodes, want)
	}
}

func TestTimelineStopsAtAnError(t *testing.T) {
	line := newTimeline(t)
	for i := range 100 {
		if err := line.Add(uint64(i), &Sample{}); err != nil {
			t.Fatal(err)
		}
	}
	enough := errors.New("enough")
	for _, stop := range []int{0, 31, 32, 99} {
		n := 0
		err := line.Each(0, func(Point) error {
			if n++; n > stop {
				return enough
			}
			return nil
		})
		if err != enough || n != stop+1 {
			t.Errorf("%v after %d points, want %d", err, n, stop+1)
		}
	}
	line.Close()
	if err := line.Each(0, func(Point) error { return nil }); err == nil {
		t.Error("no error of a file that is closed")
	}
}

// The points of a recording add up to the samples of its profile, also if inlined functions have changed its
// nodes.
func TestTimelineOfARecording(t *testing.T) {
	t.Parallel()
	path := record(t, "-g", "-e", "page-faults")
	for _, lines := range []bool{false, true} {
		r, err := perfdata.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		line := newTimeline(t)
		p, err := Load(r, symbols.New(symbols.Options{}), Options{Timeline: line, Lines: lines})
		if err != nil {
			t.Fatal(err)
		}
		have := map[weightKey]Sample{}
		for thread := range p.Threads {
			var last uint64
			for _, at := range points(t, line, int32(thread)) {
				if at.Time < last || at.Time < p.First || at.CPU < 0 {
					t.Errorf("%+v after %d", at, last)
				}
				last = at.Time
				s := Sample{Thread: int32(thread), Node: at.Node, Event: at.Event, CPU: -1, End: at.End}
				sum := have[s.key()]
				sum.Count++
				sum.Period += at.Period
				have[s.key()] = sum
			}
		}
		for _, s := range p.Samples {
			if sum := have[s.key()]; sum.Count != s.Count || sum.Period != s.Period {
				t.Errorf("%+v, but the points add up to %d, %d", s, sum.Count, sum.Period)
			}
		}
		if len(have) != len(p.Samples) || p.Count() < 50 {
			t.Errorf("%d kinds of points, %d samples", len(have), len(p.Samples))
		}
	}
}

func TestEndsHaveWords(t *testing.T) {
	if Unsaid.String() != "" || Complete.String() != "complete" || Ended(unwind.Root) != Complete {
		t.Errorf("%q, %q, %d", Unsaid, Complete, Ended(unwind.Root))
	}
	seen := map[string]bool{}
	for r := range unwind.Reason(unwind.NumReasons) {
		s := Ended(r).String()
		if s == "" || seen[s] || r != unwind.Root && s != r.String() {
			t.Errorf("%d: %q", r, s)
		}
		seen[s] = true
	}
}
