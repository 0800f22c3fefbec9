package firefox

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"unspool/capture/profile"
)

// TestGapsBetweenSamples has two samples of a thread, at 1,000 Hz, with some time in between. If that is more
// than three intervals, the thread has not run: one interval after the first sample there is a row without a
// stack and without weight.
func TestGapsBetweenSamples(t *testing.T) {
	const none = 2 // rows
	for _, c := range []struct {
		between uint64 // ns
		rows    int
	}{
		{millisecond, none}, {2 * millisecond, none}, {3*millisecond - 1, none}, {3 * millisecond, none},
		{3*millisecond + 3, none + 1}, {4 * millisecond, none + 1}, {second, none + 1},
	} {
		s := newSynthetic(t)
		node := s.Stack(s.Frame(profile.Frame{Name: "work", Known: true}))
		th := s.thread(7, 7, "prog")
		s.sample(second, th, node, 0)
		s.sample(second+c.between, th, node, 0)
		got := s.written(Options{}).Threads[0].Samples
		if got.Length != c.rows {
			t.Errorf("%d ns: %d rows, want %d", c.between, got.Length, c.rows)
			continue
		}
		if c.rows == none {
			continue
		}
		if got.Stack[1] != nil || !slices.Equal(got.Weight, []int{1, 0, 1}) || !near(got.TimeDeltas[1], 1) ||
			!near(got.TimeDeltas[2], float64(c.between)/millisecond-1) {
			t.Errorf("%d ns: %+v", c.between, got)
		}
	}
}

// TestThreadsThatUseAnIDAgain numbers threads with the same PID and TID, the one with the most samples first.
func TestThreadsThatUseAnIDAgain(t *testing.T) {
	s := newSynthetic(t)
	node := s.Stack(s.Frame(profile.Frame{Name: "work", Known: true}))
	for i, th := range []int32{s.thread(7, 8, "first"), s.thread(7, 8, "second"), s.thread(7, 8, "third"),
		s.thread(9, 8, "elsewhere"), s.thread(7, 7, "main")} {
		for n := range []int{2, 5, 3, 1, 4}[i] {
			s.sample(second+uint64(n)*millisecond, th, node, 0)
		}
	}
	var got []string
	for _, th := range s.written(Options{}).Threads {
		got = append(got, fmt.Sprintf("%s %s/%s", th.Name, th.PID, th.TID))
	}
	want := []string{"first 7/8.2", "second 7/8", "third 7/8.1", "elsewhere 9/8", "main 7/7"}
	if !slices.Equal(got, want) {
		t.Errorf("%s, want %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}
