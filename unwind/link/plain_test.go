package link

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A plainLog finds what a Log finds by looking at every walk.
type plainLog struct {
	before, after uint64
	walks         []plainWalk
}

type plainWalk struct {
	time   uint64
	frames []Frame
	whole  bool
}

// in are the walks with a frame in a region.
func (l *plainLog) in(number uint64) (in []plainWalk) {
	for _, w := range l.walks {
		if slices.ContainsFunc(w.frames, func(f Frame) bool { return f.SP>>regionShift == number }) {
			in = append(in, w)
		}
	}
	return in
}

// callersIn are the callers of a frame in a walk.
func callersIn(w *plainWalk, f *Wanted) (callers []Frame, ok bool) {
	key := f.SP
	if f.byFunction() {
		key = f.CFA
	}
	r := run{far: w.frames}
	i, ok := f.caller(&r, find(w.frames, key))
	if !ok || i == len(w.frames) && !w.whole {
		return nil, false
	}
	return w.frames[i:], true
}

// A plainSearch is a search that looks at one walk after the other.
type plainSearch struct {
	frame          Wanted
	seen, entered  int
	doubtful, away bool
	nearest        plainWalk
	all            []sighting
}

func (s *plainSearch) wants(most int) bool { return s.seen < most && !(s.seen > 0 && s.doubtful) }

func (s *plainSearch) look(w *plainWalk) {
	low, high := w.frames[0].SP, w.frames[len(w.frames)-1].SP
	spans := low <= s.frame.SP && s.frame.SP < high
	callers, ok := callersIn(w, &s.frame)
	near := run{far: s.nearest.frames}
	switch {
	case !ok && s.seen == 0:
		s.doubtful = s.doubtful || spans
	case !ok:
		s.away = s.away || spans || low > s.frame.SP &&
			(near.holds(w.frames[len(w.frames)-1]) || near.holds(w.frames[0]))
	default:
		if s.seen == 0 {
			s.nearest = *w
			s.nearest.frames = callers
		} else {
			s.doubtful = s.doubtful || differ(&run{far: callers}, &near)
		}
		if s.away {
			s.away = false
			s.entered++
		}
		s.seen++
		s.all = append(s.all, sighting{len(callers), w.time})
	}
}

// callers is Log.Callers.
func (l *plainLog) callers(time uint64, last Wanted, most int) (dst []Frame, outcome LookupOutcome) {
	for len(dst) < most {
		walks := l.in(last.SP >> regionShift)
		at := len(walks)
		for at > 0 && walks[at-1].time >= time {
			at--
		}
		oldest := slices.IndexFunc(walks, func(w plainWalk) bool { return w.time+l.before >= time })
		ahead, back := plainSearch{frame: last}, plainSearch{frame: last}
		next := at
		look := func(more int) {
			most, end := ahead.seen+more, time+l.after
			for ; next < len(walks) && walks[next].time <= end && ahead.wants(most); next++ {
				ahead.look(&walks[next])
			}
		}
		look(enoughSightings)
		for i, step := at-1, 1; i >= max(oldest, 0) && back.wants(1<<30); i -= step {
			if back.look(&walks[i]); back.seen == enoughSightings && step == 1 {
				step = max(1, (i-oldest)/maxProbes)
			}
		}
		if ahead.seen == 0 || back.seen == 0 || ahead.doubtful || back.doubtful {
			return nil, Doubtful
		}
		s := sightings{
			before: piece{time: back.nearest.time, run: run{far: back.nearest.frames}},
			after:  piece{time: ahead.nearest.time, run: run{far: ahead.nearest.frames}},
		}
		weigh := func() {
			s.all, s.entered = append(slices.Clone(ahead.all), back.all...), back.entered+ahead.entered
			s.doubtful = ahead.doubtful
			s.weigh()
		}
		if weigh(); s.doubtful {
			look(maxProbes)
			weigh()
		}
		s.doubtful = s.doubtful || ahead.doubtful
		for _, w := range walks {
			p := piece{low: w.frames[0].SP, run: run{far: w.frames}}
			if w.time > s.before.time && w.time < s.after.time && p.isAbove(last.SP, &s.before.run) {
				s.doubtful = true
			}
		}
		n := min(s.callers, most-len(dst))
		dst = append(dst, back.nearest.frames[:n]...)
		root := back.nearest.whole && n == len(back.nearest.frames)
		if root != (ahead.nearest.whole && n == len(ahead.nearest.frames)) || n == 0 && !root || s.doubtful {
			return nil, Doubtful
		}
		if root {
			return dst, Joined
		}
		last = Wanted{Frame: dst[len(dst)-1]}
	}
	return nil, Doubtful
}

// A thread calls functions and returns from them.
type thread struct {
	top   uint64
	stack []Frame // root first
	rng   *rand.Rand
}

// step changes a few of the inner frames, seldom more.
func (th *thread) step() {
	keep := len(th.stack) - th.rng.IntN(4)
	if th.rng.IntN(200) == 0 {
		keep = th.rng.IntN(len(th.stack) + 1)
	}
	th.stack = th.stack[:max(keep, 1)]
	for range th.rng.IntN(4) {
		sp := th.stack[len(th.stack)-1].SP - 16*uint64(1+th.rng.IntN(20))
		th.stack = append(th.stack, Frame{SP: sp, PC: 0x1000*uint64(1+th.rng.IntN(3)) + uint64(th.rng.IntN(2))})
	}
}

// Joins are those that are found by looking at every walk, though nearly none are looked at.
func TestSameAsLookingAtEveryWalk(t *testing.T) {
	t.Parallel()
	for seed := uint64(11); seed < 23; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := Log{Before: 1000 * ms, After: 100 * ms}
		plain := plainLog{before: l.Before, after: l.After}
		var threads []*thread
		for i := range 1 + rng.IntN(3) {
			top := 0x7000_0800 + uint64(i)<<16 // the region's beginning is within some of the stacks
			threads = append(threads, &thread{top, []Frame{{SP: top, PC: 1}}, rng})
		}
		type cut struct {
			time uint64
			last Wanted
		}
		var cuts []cut
		joined, others := 0, 0
		for time := uint64(0); time < 4000*ms; time += uint64(rng.IntN(4)+1) * ms {
			for len(cuts) > 0 && cuts[0].time+l.After < time {
				got, outcome := l.Callers(nil, 1, cuts[0].time, cuts[0].last, 100)
				want, isWanted := plain.callers(cuts[0].time, cuts[0].last, 100)
				if outcome.IsJoined() != isWanted.IsJoined() || isWanted.IsJoined() &&
					(outcome != isWanted || !slices.Equal(got, want)) {
					t.Fatalf("seed %d, %d ms: %v with outcome %d, want %v with outcome %d", seed, cuts[0].time/ms, got,
						outcome, want, isWanted)
				}
				if isWanted.IsJoined() {
					joined++
				} else {
					others++
				}
				cuts = cuts[1:]
			}
			th := threads[rng.IntN(len(threads))]
			th.step()
			w := plainWalk{time: time, whole: true}
			for _, f := range slices.Backward(th.stack) {
				if w.whole = f.SP-th.stack[len(th.stack)-1].SP < 0x700; !w.whole {
					break
				}
				w.frames = append(w.frames, f)
			}
			if n := len(w.frames); !w.whole {
				last := Wanted{Frame: w.frames[n-1]}
				if known := rng.IntN(4); known > 1 { // the function, and its CFA
					low := last.PC &^ 0xfff
					last.Within = Function{low, low + 0x1000}
					if known > 2 {
						last.CFA = th.stack[len(th.stack)-n-1].SP
					}
				}
				cuts = append(cuts, cut{time, last})
			} else if n == 1 {
				continue
			}
			l.Add(1, time, w.frames, w.whole)
			if len(w.frames) > 1 || w.whole {
				plain.walks = append(plain.walks, w)
			}
		}
		t.Logf("seed %d: %d joined, %d not", seed, joined, others)
	}
}

// A region has an index, and remembers what was looked at, only where it has many pieces: there may be many
// regions, each with a walk or two.
func TestSmallRegionsTakeLittleMemory(t *testing.T) {
	t.Parallel()
	l := Log{Before: 1000 * ms, After: 100 * ms}
	frames := stack("fgm")
	add := func(time uint64, number uint64) []Frame {
		moved := slices.Clone(frames)
		for i := range moved {
			moved[i].SP += number << regionShift
		}
		l.Add(1, time, moved, true)
		return moved
	}
	for time := range uint64(30 * ms / 1000) {
		add(time*1000, time%1000)
	}
	for number := range uint64(1000) {
		moved := add(31*ms, number)
		if _, outcome := l.Callers(nil, 1, 15*ms, Wanted{Frame: moved[0]}, 100); outcome == Unseen {
			t.Fatalf("region %d: a frame was not seen", number)
		}
	}
	for key, r := range l.regions {
		if len(r.pieces) < blockPieces && (r.looks != nil || r.index != nil) {
			t.Errorf("region %v with %d pieces has looks for %d frames, and %d blocks", key, len(r.pieces),
				len(r.looks), len(r.index))
		}
	}
}
