package flamegraph

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
	"time"

	"unspool/capture/profile"
)

const (
	mostSteps   = 1024 // about as many as a window has pixels
	fewestSteps = 16   // with less, a strip of time says nothing
	// A point takes about 1.5 bytes of the page. A page with few distinct stacks has at most mostPoints, one
	// with many at most so many for each weight, which takes 50 bytes and more.
	mostPoints      = 250_000
	pointsForWeight = 16
)

// steps is a recording's time in steps of equal length, with the samples of each weight of a graph in each
// step. There are mostSteps of them, or half as many, and so on, so that the points are few.
type steps struct {
	length uint64 // of the recording, or the longest one, in ns
	n      int    // number of steps; 0 when there are too many points with any number
	most   int    // points that a page can have
	points []point
}

// point is samples of a weight in a step.
type point struct {
	weight int32
	step   int32
	count  uint64
}

// Samples are a profile's one by one, by thread, such as a [profile.Timeline].
type Samples interface {
	Each(thread int32, fn func(profile.Point) error) error
}

// errOtherProfile is returned if a sample is in none of the weights.
var errOtherProfile = errors.New("the timeline is not that of the profile")

// timed finds the samples of the graph's weights in a timeline of its profile. It is nil without a timeline,
// and for samples that were all taken at once.
func (g *graph) timed(t *profile.Timeline) (*steps, error) {
	if t == nil || g.p.Duration <= 0 {
		return nil, nil
	}
	return g.steps(t, g.p.First, g.length)
}

// length is how long the recording of any event is.
func (g *graph) length(int32) time.Duration { return g.p.Duration }

// steps finds them. Times begin with first; the steps of an event divide the length of its recording.
func (g *graph) steps(all Samples, first uint64, length func(event int32) time.Duration) (*steps, error) {
	s := &steps{length: uint64(g.p.Duration), n: mostSteps}
	s.most = max(mostPoints, pointsForWeight*len(g.weights))
	type key struct{ node, event, thread int32 }
	at := make(map[key]int32, len(g.weights))
	for i, w := range g.weights {
		at[key{w.node, w.event, w.thread}] = int32(i)
	}
	for thread := range g.p.Threads {
		err := all.Each(int32(thread), func(p profile.Point) error {
			w, ok := at[key{g.now[p.Node], p.Event, int32(thread)}]
			if !ok {
				return errOtherProfile
			}
			s.add(w, p.Time-min(p.Time, first), uint64(length(p.Event)))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	s.merge()
	return s, nil
}

// add adds a sample, at a time after the start of a recording of some length.
func (s *steps) add(weight int32, after, length uint64) {
	if s.n == 0 {
		return
	}
	s.points = append(s.points, point{weight, s.at(after, length), 1})
	if len(s.points) > 2*s.most {
		s.merge()
	}
}

// at is the step of such a time.
func (s *steps) at(after, length uint64) int32 {
	high, low := bits.Mul64(min(after, length), uint64(s.n))
	step, _ := bits.Div64(high, low, length+1) // the last sample is in the last step
	return int32(step)
}

// merge makes one point of those of a weight and a step, and steps longer until the points are few enough.
func (s *steps) merge() {
	for s.join(); len(s.points) > s.most; s.join() {
		s.halve()
	}
}

// limit makes steps longer until there are so many, or none.
func (s *steps) limit(n int) {
	for s.n > n {
		s.halve()
	}
	s.join()
}

// halve has half as many steps. With too few, times say nothing and are left out.
func (s *steps) halve() {
	if s.n /= 2; s.n < fewestSteps {
		s.n, s.points = 0, nil
	}
	for i := range s.points {
		s.points[i].step /= 2
	}
}

// join makes one point of those of a weight and a step.
func (s *steps) join() {
	slices.SortFunc(s.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.step, b.step))
	})
	merged := s.points[:0]
	for _, p := range s.points {
		if n := len(merged); n > 0 && merged[n-1].weight == p.weight && merged[n-1].step == p.step {
			merged[n-1].count += p.count
			continue
		}
		merged = append(merged, p)
	}
	s.points = merged
}
