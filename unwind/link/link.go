// Package link completes stacks whose copy ends before the root with the callers that were seen on the same
// stack before and after.
//
// A frame has one caller at a time, so every walk over a stack, complete or not, shows links: from a frame to
// its caller, at the time of the sample. A walk that came to the end of its copy goes on from its last frame
// along links that were seen before it and after it. If the last sighting before and the first one after
// agree, the link is assumed to have existed in between.
//
// What makes this wrong is a frame that was left and entered again in between, at the same place and from
// somewhere else, and left and entered once more as before. So the link is not taken for granted
//   - where a walk in between shows that the frame was gone;
//   - where another caller was seen, or the same one not often enough to say that there is none;
//   - for longer than a small part of the time that it stayed, as far as the other walks show.
//
// Package bench/joins measures how often it is wrong all the same.
//
// A frame is identified by its address space, its function and its CFA, by its function and SP if the CFA is
// not known, and by SP and PC if the function is not. It is not by its thread: goroutines and coroutines move
// from thread to thread. This package works on numbers only, so that live stacks and recordings have the same
// links. A [Log] copies what is added to it.
package link

import "slices"

// A Frame is a frame of a stack: its SP and PC. The SP of a caller is the CFA of the frame that it called.
type Frame struct{ SP, PC uint64 }

// A Function is where the code of a function lies, from Low up to High, zero where that is not known.
type Function struct{ Low, High uint64 }

// Holds reports whether pc, a return address or where a function stands, is in it.
func (f Function) Holds(pc uint64) bool {
	return pc-f.Low < f.High-f.Low || pc == f.High && f.High > f.Low
}

// A Wanted is a frame whose callers are wanted. What its function calls next changes its PC, and its SP where
// arguments are pushed, but not its caller.
type Wanted struct {
	Frame
	Within Function
	CFA    uint64 // 0 where it is not known
}

// byFunction reports whether the frame is looked for by its function and CFA.
func (w *Wanted) byFunction() bool { return w.CFA != 0 && w.Within != (Function{}) }

// caller is where the caller of the wanted frame is among frames. k is what find gives for the CFA if the
// frame is looked for by that, and for its SP otherwise.
func (w *Wanted) caller(f *run, k int) (i int, ok bool) {
	if w.byFunction() {
		return k, k > 0 && k < f.len() && f.at(k).SP == w.CFA && w.Within.Holds(f.at(k-1).PC)
	}
	return k + 1, k < f.len() && f.at(k).SP == w.SP && (f.at(k).PC == w.PC || w.Within.Holds(f.at(k).PC))
}

// A LookupOutcome says what was found of the callers of a frame.
type LookupOutcome uint8

const (
	NotSought LookupOutcome = iota // no callers were wanted
	Unseen                         // a frame on the way, or a root, was seen neither before nor after
	OneSided                       // a frame, or a root, was seen only before or only after
	Disagree                       // a frame had one caller before and another after
	Doubtful                       // a frame had the same caller before and after, and perhaps another in between
	Joined                         // each frame up to the root had the same caller before and after
	Read                           // the rest of the stack was read when the sample was taken, and not by a Log

	NumOutcomes = iota
)

// IsJoined reports whether the callers are known.
func (o LookupOutcome) IsJoined() bool { return o >= Joined }

// A Log holds recent walks. They are added in order of time.
type Log struct {
	// Before and After are how far sightings may be from the sample, in ns.
	Before, After uint64
	// MaxFrames bounds the frames that are held; the oldest walks are forgotten first.
	MaxFrames int

	regions map[regionKey]*region
	chunks  []chunk // the oldest first
	spare   [][]Frame
	held    int // frames for which the chunks have room
	now     uint64
	floor   uint64 // walks up to this time are forgotten
	added   int    // pieces since the last sweep
	grown   int    // how many chunks have been begun

	sightings []sighting // scratch
	looks     looks      // of a region that has none of its own
}

// DefaultMaxFrames take 32 MiB.
const DefaultMaxFrames = 1 << 21

// A regionKey is a piece of an address space.
type regionKey struct{ space, number uint64 }

const (
	// regionShift gives regions of 1 MiB: most stacks lie in one or two, and few threads have stacks in the
	// same one.
	regionShift = 20
	// chunkFrames is how many frames are allocated at once.
	chunkFrames = 8192
	// sweepEvery is how many pieces are added between two sweeps for empty regions.
	sweepEvery = 4096
)

// A piece is a run of frames of a walk, each the caller of the one before.
type piece struct {
	time      uint64
	low, high uint64 // SP of the first and the last frame
	run
	whole bool // the last one is the root
}

// A chunk is memory for frames.
type chunk struct {
	frames []Frame
	newest uint64 // time of the last walk in it
}

// Add adds a run of frames, leaf first, each of which is the caller of the one before and has a higher SP.
// whole means that the last one is the root of the stack. The frames are copied.
func (l *Log) Add(space, time uint64, frames []Frame, whole bool) {
	p := piece{time: time, whole: whole}
	n := len(frames)
	if n == 0 || n == 1 && !p.whole {
		return
	}
	l.now = max(l.now, p.time)
	if l.regions == nil {
		l.regions = make(map[regionKey]*region)
	}
	p.low, p.high = frames[0].SP, frames[n-1].SP
	last := p.high >> regionShift
	top := l.region(regionKey{space, last})
	if p.run = l.keep(frames, p.time, top); p.len() == 0 {
		return
	}
	oldest := l.oldest()
	if p.low>>regionShift != last {
		before := last
		for i := range frames {
			if k := frames[i].SP >> regionShift; k != before && k != last {
				before = k
				l.region(regionKey{space, k}).add(&p, oldest)
			}
		}
	}
	top.add(&p, oldest)
	if l.added++; l.added >= sweepEvery {
		l.added = 0
		l.sweep()
	}
}

// oldest is the time of the oldest walk that may still be needed: a sample waits for After, then looks back
// by Before.
func (l *Log) oldest() uint64 {
	if l.now < l.Before+l.After {
		return l.floor
	}
	return max(l.floor, l.now-l.Before-l.After)
}

// keep copies frames into a chunk, except those that a region shares with them.
func (l *Log) keep(frames []Frame, time uint64, r *region) run {
	if len(frames) > chunkFrames {
		return run{}
	}
	var far, above []Frame
	if r.in == l.grown {
		far, above = r.share(frames)
	}
	near := frames[:len(frames)-len(far)]
	if n := len(l.chunks); n == 0 || cap(l.chunks[n-1].frames)-len(l.chunks[n-1].frames) < len(near)+len(above) {
		l.grow()
		near, far, above = frames, nil, nil
	}
	c := &l.chunks[len(l.chunks)-1]
	from := len(c.frames)
	c.frames = append(c.frames, near...)
	c.newest = time
	if far != nil {
		return run{c.frames[from:len(c.frames):len(c.frames)], far}
	}
	c.frames = append(c.frames, above...)
	r.array, r.in = c.frames[from:len(c.frames):len(c.frames)], l.grown
	return run{far: r.array[:len(frames)]}
}

// grow begins a new chunk, in the memory of one that is not needed any more if there is one.
func (l *Log) grow() {
	limit := l.MaxFrames
	if limit == 0 {
		limit = DefaultMaxFrames
	}
	oldest, n := l.oldest(), 0
	for ; n < len(l.chunks); n++ {
		c := &l.chunks[n]
		if c.newest >= oldest && l.held < limit {
			break
		}
		l.floor = max(l.floor, c.newest)
		l.held -= chunkFrames
		l.spare = append(l.spare, c.frames[:0])
	}
	l.chunks = slices.Delete(l.chunks, 0, n)
	var frames []Frame
	if n := len(l.spare); n > 0 {
		frames, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		frames = make([]Frame, 0, chunkFrames)
	}
	l.held += chunkFrames
	l.grown++
	l.chunks = append(l.chunks, chunk{frames: frames})
}

func (l *Log) region(key regionKey) *region {
	r := l.regions[key]
	if r == nil {
		r = &region{number: key.number}
		l.regions[key] = r
	}
	return r
}

// sweep forgets regions with nothing in them.
func (l *Log) sweep() {
	oldest := l.oldest()
	for key, r := range l.regions {
		if r.forget(oldest); r.from == len(r.pieces) {
			delete(l.regions, key)
		}
	}
}

// Callers appends to dst the callers of a frame up to the root, as they were at a time. They are valid if the
// outcome [LookupOutcome.IsJoined]. most bounds the length of dst.
func (l *Log) Callers(dst []Frame, space, time uint64, last Wanted, most int) ([]Frame, LookupOutcome) {
	for len(dst) < most {
		r := l.regions[regionKey{space, last.SP >> regionShift}]
		if r == nil {
			return dst, Unseen
		}
		// Where there is no whole stack on one side, as is most often the case, the root cannot be joined.
		before := time > 0 && r.leadsBetween(max(time, l.Before)-l.Before, time-1)
		if after := r.leadsBetween(time, time+l.After); !before && !after {
			return dst, Unseen
		} else if !before || !after {
			return dst, OneSided
		}
		seen := l.see(r, time, last)
		switch {
		case !seen.isBefore && !seen.isAfter:
			return dst, Unseen
		case !seen.isBefore || !seen.isAfter:
			return dst, OneSided
		}
		n := min(seen.callers, most-len(dst))
		dst = seen.before.appendTo(dst, n)
		rootBefore := seen.before.whole && n == seen.before.len()
		rootAfter := seen.after.whole && n == seen.after.len()
		switch {
		case rootBefore != rootAfter, n == 0 && !rootBefore:
			return dst, Disagree
		case seen.doubtful:
			return dst, Doubtful
		}
		if rootBefore {
			return dst, Joined
		}
		last = Wanted{Frame: dst[len(dst)-1]}
	}
	return dst, Unseen
}
