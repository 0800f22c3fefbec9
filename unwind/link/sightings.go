package link

import "sort"

// sightings are the sightings of a frame around a time.
type sightings struct {
	// before and after are the last piece before that time and the first one after it in which the frame has
	// a caller, cut to its callers. Their frames are nil if there is none.
	before, after piece
	all           []sighting
	entered       int // how often the frame was left and entered again, as walks between the sightings show
	// callers is how many of the frame's callers are known from so many sightings that they can be told.
	callers int
	// doubtful says that the frame was left in between, or has had other callers not long before or after.
	doubtful bool
}

// A sighting is how many callers a frame was seen with, and when.
type sighting struct {
	callers int
	time    uint64
}

// see finds the sightings of a frame around a time.
func (l *Log) see(r *region, time uint64, f Wanted) (s sightings) {
	pieces := r.pieces[r.from:]
	at := sort.Search(len(pieces), func(i int) bool { return pieces[i].time >= time })
	oldest := sort.Search(at, func(i int) bool {
		return pieces[i].time+l.Before >= time && pieces[i].time > l.floor
	})
	later := pieces[at:]
	later = later[:sort.Search(len(later), func(i int) bool { return later[i].time > time+l.After })]
	s.all = l.sightings[:0]
	ahead := newSearch(f, &s.all)
	later = ahead.lookAhead(later, enoughSightings, l.floor)
	// Where that leads nowhere already, what was just before is said, and no more is looked for.
	back, most := newSearch(f, &s.all), len(pieces)
	if ahead.seen == 0 || ahead.doubtful {
		oldest, most = max(oldest, at-maxProbes), 1
	}
	for i, step := at-1, 1; i >= oldest && back.wants(most); i -= step {
		if back.look(&pieces[i]); back.seen == enoughSightings && step == 1 {
			step = max(1, (i-oldest)/maxProbes)
		}
	}
	s.before, s.after = back.nearest, ahead.nearest
	s.doubtful = back.doubtful || ahead.doubtful
	if s.before.frames != nil && s.after.frames != nil {
		s.entered = back.entered + ahead.entered
		s.weigh()
		if s.doubtful && !back.doubtful && !ahead.doubtful {
			ahead.lookAhead(later, maxProbes, l.floor)
			s.doubtful, s.entered = ahead.doubtful, back.entered+ahead.entered
			s.weigh()
		}
		s.doubtful = s.doubtful || s.left(pieces, f.SP)
	}
	l.sightings = s.all
	return s
}

// weigh says how many of the frame's callers are known, and whether there may have been others in between.
func (s *sightings) weigh() {
	s.callers = agree(s.before.frames, s.after.frames)
	if len(s.all) < enoughSightings {
		s.doubtful = true
		return
	}
	s.callers = min(s.callers, callersSeen(s.all))
	apart := s.after.time - s.before.time
	stays := uint64(1)
	if s.entered < enoughEntries {
		stays += uint64(s.entered)
	}
	s.doubtful = s.doubtful || s.seenFor() < apart+stableFor*apart*stays
}

// callersSeen is the number of callers that enough of the sightings have, at least. A walk that was cut off
// just above the frame shows one of them, and says nothing of those above.
func callersSeen(all []sighting) int {
	var most [enoughSightings]int // the largest numbers, in falling order
	for i := range all {
		n := all[i].callers
		if n <= most[enoughSightings-1] {
			continue
		}
		for k := range most {
			if n > most[k] {
				n, most[k] = most[k], n
			}
		}
	}
	return most[enoughSightings-1]
}

// seenFor is how long the frame was seen with so many of its callers.
func (s *sightings) seenFor() uint64 {
	first, last := s.before.time, s.after.time
	for i := range s.all {
		if s.all[i].callers >= s.callers {
			first, last = min(first, s.all[i].time), max(last, s.all[i].time)
		}
	}
	return last - first
}

// What is asked of the sightings of a frame, all of which must have the same callers. Of two callers by
// chance, the same one comes so many times once in 2,000 times. But if the callers change slowly, many
// sightings show one change only, and one may be hidden between the two sightings next to the sample. So the
// frame must have stayed for much longer than that at a time, or have been entered by the same callers again
// and again.
const (
	enoughSightings = 12
	stableFor       = 8 // times as long as between these two that it stayed
	enoughEntries   = 8

	// maxProbes is how many of the walks before the last sightings are looked at for other callers.
	maxProbes = 64
)

// A search looks for the sightings of a frame, from a time on forwards or backwards.
type search struct {
	frame Wanted
	// The frame or its caller has this SP, and is at index i - below if its callers begin at i.
	key   uint64
	below int
	// lowest is the highest SP that the first frame of a piece with the frame can have.
	lowest uint64

	seen     int
	last     int   // how many callers the last sighting has
	nearest  piece // cut to the frame's callers
	doubtful bool  // a nearer walk shows that the frame was gone, or a sighting has other callers
	away     bool  // the last walk shows that the frame was gone
	entered  int

	all *[]sighting // of the frame
}

// newSearch returns one that has found nothing. all is for the sightings.
func newSearch(f Wanted, all *[]sighting) search {
	s := search{frame: f, key: f.SP, below: 1, lowest: f.SP, all: all}
	if f.byFunction() {
		s.key, s.below, s.lowest = f.CFA, 0, f.CFA-1
	}
	return s
}

// wants says whether more is to be looked at, up to most sightings.
func (s *search) wants(most int) bool { return s.seen < most && !(s.seen > 0 && s.doubtful) }

// lookAhead looks at the first pieces, for so many sightings more, and returns the others.
func (s *search) lookAhead(pieces []piece, more int, floor uint64) []piece {
	most := s.seen + more
	for len(pieces) > 0 && s.wants(most) {
		if pieces[0].time > floor {
			s.look(&pieces[0])
		}
		pieces = pieces[1:]
	}
	return pieces
}

// look looks at the next piece.
func (s *search) look(p *piece) {
	if s.mayBeIn(p) {
		if i, ok := s.callerIn(p.frames); ok && (i < len(p.frames) || p.whole) {
			s.sight(p, i)
			return
		}
	}
	if s.seen == 0 {
		s.doubtful = s.doubtful || p.spans(s.frame.SP)
	} else {
		s.away = s.away || p.spans(s.frame.SP) || p.isAbove(s.frame.SP, s.nearest.frames)
	}
}

// sight takes in a sighting, with the callers from frame i on.
func (s *search) sight(p *piece, i int) {
	callers := p.frames[i:]
	if s.seen == 0 {
		s.nearest = piece{time: p.time, frames: callers, whole: p.whole, read: p.read}
	} else {
		s.doubtful = s.doubtful || differ(callers, s.nearest.frames)
	}
	if s.away {
		s.away = false
		s.entered++
	}
	s.seen++
	s.last = len(callers)
	*s.all = append(*s.all, sighting{len(callers), p.time})
}

// mayBeIn says whether the frame may be in a piece with its caller, without looking at the piece's frames.
func (s *search) mayBeIn(p *piece) bool {
	return p.low <= s.lowest && s.key <= p.high && p.mask.has(s.key)
}

// callerIn is where the caller of the frame is among frames, if the frame is there. It is mostly as far from
// the root as the last time.
func (s *search) callerIn(frames []Frame) (i int, ok bool) {
	k := len(frames) - s.last - s.below
	if k < 0 || k >= len(frames) || frames[k].SP != s.key {
		k = find(frames, s.key)
	}
	return s.frame.caller(frames, k)
}

// left says whether a walk in between was in a caller of the frame, and not in the frame any more.
func (s *sightings) left(pieces []piece, sp uint64) bool {
	from := sort.Search(len(pieces), func(i int) bool { return pieces[i].time > s.before.time })
	for i := from; i < len(pieces) && pieces[i].time < s.after.time; i++ {
		if pieces[i].isAbove(sp, s.before.frames) {
			return true
		}
	}
	return false
}

// isAbove says whether a walk was in one of the callers of a frame whose SP is sp, and not in the frame any
// more.
func (p *piece) isAbove(sp uint64, callers []Frame) bool {
	return p.low > sp && (holds(callers, p.frames[len(p.frames)-1]) || holds(callers, p.frames[0]))
}

// holds says whether f is one of frames, which are in order of SP.
func holds(frames []Frame, f Frame) bool {
	i := find(frames, f.SP)
	return i < len(frames) && frames[i] == f
}

// differ says whether two stacks differ in the part that both have.
func differ(a, b []Frame) bool {
	n := agree(a, b)
	return n < len(a) && n < len(b)
}

// A mask says of which of 256 classes there are frames, by their SP.
type mask [4]uint64

func (m *mask) set(sp uint64)      { m[sp>>4&3] |= 1 << (sp >> 6 & 63) }
func (m *mask) has(sp uint64) bool { return m[sp>>4&3]>>(sp>>6&63)&1 != 0 }

// spans says whether a piece has frames on both sides of an address, or its first one there.
func (p *piece) spans(sp uint64) bool { return p.low <= sp && sp < p.high }
