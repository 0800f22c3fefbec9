package link

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const ms = 1e6

// stack makes frames of names, leaf first, one for each letter: equal letters at equal depths from the root
// are equal frames.
func stack(names string) []Frame {
	var frames []Frame
	for i, name := range names {
		frames = append(frames, Frame{SP: 0x7000_0000 - 64*uint64(len(names)-i), PC: 0x400000 + uint64(name)})
	}
	return frames
}

// A walk is one over a stack, at a time in ms. The names of a whole one end at the root.
type walk struct {
	at    uint64
	names string
	above int // frames at the root's side that were not in the copy
}

// often is a walk that is seen every ms for so long, up to its time.
type often struct {
	walk
	long uint64
}

func TestCallers(t *testing.T) {
	const before, after = 1000, 100
	once := func(at uint64, names string, above int) often { return often{walk{at, names, above}, 0} }
	long := func(at uint64, names string, above int) often { return often{walk{at, names, above}, 150} }
	later := func(at uint64, names string, above int) often { return often{walk{at, names, above}, 11} }
	longer := func(at uint64, names string, above int) often { return often{walk{at, names, above}, 400} }
	for _, c := range []struct {
		name  string
		walks []often // what was seen
		cut   walk    // the stack that is completed
		want  LookupOutcome
	}{
		{"seen before and after", []often{long(12, "fgm", 0), once(30, "fgm", 0)}, walk{20, "xfgm", 2}, Joined},
		{"more after than before", []often{once(15, "fgm", 0), {walk{120, "fgm", 0}, 99}},
			walk{20, "xfgm", 2}, Joined},
		{"by another leaf", []often{long(12, "afgm", 0), once(30, "bfgm", 0)}, walk{20, "xfgm", 2}, Joined},
		{"too few sightings", []often{once(8, "fgm", 0), once(10, "fgm", 0), once(30, "fgm", 0)},
			walk{20, "xfgm", 2}, Doubtful},
		{"nothing was seen", nil, walk{20, "xfgm", 2}, Unseen},
		{"only other frames", []often{long(12, "hgm", 0), later(32, "hgm", 0)}, walk{20, "xfgm", 2}, Unseen},
		{"only before", []often{long(12, "fgm", 0)}, walk{20, "xfgm", 2}, OneSided},
		{"only after", []often{later(32, "fgm", 0)}, walk{20, "xfgm", 2}, OneSided},
		{"too long before", []often{long(12, "fgm", 0), once(2020, "fgm", 0)}, walk{2015, "xfgm", 2}, OneSided},
		{"too long after", []often{long(12, "fgm", 0), once(200, "fgm", 0)}, walk{20, "xfgm", 2}, OneSided},
		{"one caller before, another after", []often{long(12, "fgm", 0), once(30, "fhm", 0)},
			walk{20, "xfgm", 2}, Disagree},
		{"the caller's caller is another one", []often{long(12, "fghm", 0), once(30, "fgim", 0)},
			walk{20, "xfghm", 3}, Disagree},
		{"in two steps",
			[]often{longer(12, "ghm", 0), later(40, "fghm", 2), later(53, "fghm", 2), once(55, "ghm", 0)},
			walk{41, "xfghm", 3}, Joined},
		{"the second step is seen before only",
			[]often{longer(12, "ghm", 0), long(30, "fghm", 2), later(50, "fghm", 2)}, walk{40, "xfghm", 3}, OneSided},
		{"another caller not long before", []often{once(6, "fhm", 0), long(15, "fgm", 0), once(30, "fgm", 0)},
			walk{20, "xfgm", 2}, Doubtful},
		{"another caller longer ago", []often{once(2, "fhm", 0), {walk{510, "fgm", 0}, 500}, once(530, "fgm", 0)},
			walk{520, "xfgm", 2}, Doubtful},
		{"another caller not long after", []often{long(12, "fgm", 0), once(30, "fgm", 0), once(40, "fhm", 0)},
			walk{20, "xfgm", 2}, Doubtful},
		{"left in between", []often{long(12, "fgm", 0), once(15, "gm", 0), once(30, "fgm", 0)},
			walk{20, "xfgm", 2}, Doubtful},
		{"another frame at its place in between",
			[]often{long(12, "fgm", 0), once(15, "hgm", 0), once(30, "fgm", 0)}, walk{20, "xfgm", 2}, Doubtful},
		{"10 ms apart, and never left", []often{long(100, "fgm", 0), once(110, "fgm", 0)},
			walk{105, "xfgm", 2}, Joined},
		{"10 ms apart, and left before", []often{{walk{50, "fgm", 0}, 100}, {walk{60, "hgm", 0}, 9},
			{walk{100, "fgm", 0}, 39}, once(110, "fgm", 0)}, walk{105, "xfgm", 2}, Doubtful},
		{"both by turns of 20 ms", []often{later(12, "fgm", 0), later(51, "fgm", 0)},
			walk{30, "xfgm", 2}, Doubtful},
		{"far apart, and seen for no longer", []often{long(12, "fgm", 0), once(90, "fgm", 0)},
			walk{20, "xfgm", 2}, Doubtful},
		{"far apart, and the same for long", []often{once(5, "fgm", 0), later(700, "fgm", 0), once(780, "fgm", 0)},
			walk{710, "xfgm", 2}, Joined},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := Log{Before: before * ms, After: after * ms}
			const start = 500
			for at := uint64(0); at < 3000; at++ {
				for _, w := range c.walks {
					if frames := stack(w.names); at >= start+w.at-w.long && at <= start+w.at {
						l.Add(1, at*ms, frames[:len(frames)-w.above], w.above == 0)
					}
				}
			}
			frames := stack(c.cut.names)
			known := frames[:len(frames)-c.cut.above]
			at, last := (start+c.cut.at)*ms, Wanted{Frame: known[len(known)-1]}
			got, outcome := l.Callers(nil, 1, at, last, 100)
			if outcome != c.want {
				t.Fatalf("outcome %d, want %d", outcome, c.want)
			}
			if want := frames[len(known):]; outcome == Joined && !slices.Equal(got, want) {
				t.Errorf("joined %v, want %v", got, want)
			}
			if _, outcome := l.Callers(nil, 2, at, last, 100); outcome != Unseen {
				t.Errorf("in another address space: outcome %d", outcome)
			}
		})
	}
}

// Walks that end just above a frame say nothing of the callers further up, however many walks there are.
func TestCallersFarAboveAreSeenOftenEnough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		whole int // the walks on each side of the sample that show all callers
		want  LookupOutcome
	}{{"by one on each side", 1, Doubtful}, {"by six on each side", 6, Joined}} {
		l := Log{Before: 1000 * ms, After: 100 * ms}
		frames := stack("fghm")
		for at := uint64(1); at < 100; at++ {
			if at >= uint64(50-c.whole) && at < uint64(50+c.whole) {
				l.Add(1, at*ms, frames, true)
			} else {
				l.Add(1, at*ms, frames[:2], false)
			}
		}
		got, outcome := l.Callers(nil, 1, 50*ms-1, Wanted{Frame: frames[0]}, 100)
		if outcome != c.want || outcome == Joined && !slices.Equal(got, frames[1:]) {
			t.Errorf("%s: %v, outcome %d, want %d", c.name, got, outcome, c.want)
		}
	}
}

// A frame is that of its function, wherever that stands: it has called something else, with more arguments
// pushed, and returns to the same caller. Where its CFA is not known, as in a large frame whose registers the
// copy does not hold, it is known by its SP, so that there may be no arguments more.
func TestCallersOfFunction(t *testing.T) {
	t.Parallel()
	inFunction := Function{Low: 0x400100, High: 0x400200}
	caller, root := Frame{SP: 0x7000_1000, PC: 0x400300}, Frame{SP: 0x7000_1100, PC: 0x400400}
	for _, c := range []struct {
		name string
		seen Frame // where its function was seen to stand
		cfa  uint64
		want LookupOutcome
	}{
		{"at another call", Frame{SP: 0x7000_0100, PC: 0x400180}, caller.SP, Joined},
		{"with arguments on the stack", Frame{SP: 0x7000_00e0, PC: 0x400190}, caller.SP, Joined},
		{"behind a last call", Frame{SP: 0x7000_0100, PC: 0x400200}, caller.SP, Joined},
		{"another function", Frame{SP: 0x7000_0100, PC: 0x400280}, caller.SP, Unseen},
		{"at another call, with no CFA", Frame{SP: 0x7000_0100, PC: 0x400180}, 0, Joined},
		{"with arguments on the stack, with no CFA", Frame{SP: 0x7000_00e0, PC: 0x400190}, 0, Unseen},
		{"another function, with no CFA", Frame{SP: 0x7000_0100, PC: 0x400280}, 0, Unseen},
	} {
		l := Log{Before: 1000 * ms, After: 100 * ms}
		for at := uint64(1); at < 20; at++ {
			l.Add(1, at*ms, []Frame{c.seen, caller, root}, true)
		}
		wanted := Wanted{Frame: Frame{SP: 0x7000_0100, PC: 0x400140}, Within: inFunction, CFA: c.cfa}
		got, outcome := l.Callers(nil, 1, 15*ms, wanted, 100)
		if outcome != c.want || outcome.IsJoined() && !slices.Equal(got, []Frame{caller, root}) {
			t.Errorf("%s: %v, outcome %d, want %d", c.name, got, outcome, c.want)
		}
	}
}

// The memory stays bounded however many walks there are, and what is not forgotten is found.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	const maxFrames = 4 * chunkFrames
	l := Log{Before: 1000 * ms, After: 100 * ms, MaxFrames: maxFrames}
	frames := stack("abcdefghijklmnopqrstuvwxyz")
	for i := range uint64(100_000) {
		// A region of its own for each of 50 threads.
		moved := slices.Clone(frames)
		for k := range moved {
			moved[k].SP += i % 50 << regionShift
		}
		l.Add(i%3, i*ms/10, moved, true)
	}
	if l.held > maxFrames {
		t.Errorf("room for %d frames, of %d at most", l.held, maxFrames)
	}
	for key, r := range l.regions {
		if n := len(r.pieces); n > 4*1100*10/50 {
			t.Errorf("region %v holds %d pieces", key, n)
		}
	}
	last := Frame{SP: frames[3].SP + 49<<regionShift, PC: frames[3].PC}
	if got, outcome := l.Callers(nil, 99_999%3, 9_990*ms, Wanted{Frame: last}, 100); outcome == Unseen {
		t.Errorf("nothing of the last walks is known: %v", got)
	}
}

// Times that do not go up, frames at any address and of any number end in nothing but an outcome.
func TestHostileWalks(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	l := Log{Before: 1000 * ms, After: 100 * ms, MaxFrames: 2 * chunkFrames}
	number := func() uint64 { return rng.Uint64() >> rng.IntN(64) }
	for range 20_000 {
		frames := make([]Frame, rng.IntN(40))
		sp := number()
		for i := range frames {
			frames[i] = Frame{SP: sp, PC: uint64(rng.IntN(3))}
			if sp += 1 + number()>>40; sp < frames[i].SP {
				frames = frames[:i+1]
				break
			}
		}
		l.Add(uint64(rng.IntN(2)), number(), frames, rng.IntN(2) == 0)
		if n := len(frames); n > 0 {
			got, _ := l.Callers(nil, uint64(rng.IntN(2)), number(), Wanted{Frame: frames[rng.IntN(n)]}, 10)
			if len(got) > 10 {
				t.Fatalf("%d callers", len(got))
			}
		}
	}
}
