package link

// sightings are the sightings of a frame around a time.
type sightings struct {
	// before and after are the last piece before that time and the first one after it in which the frame has
	// a caller, cut to its callers. isBefore and isAfter say whether there are such.
	before, after     piece
	isBefore, isAfter bool

	all     []sighting
	entered int // how often the frame was left and entered again, as walks between the sightings show
	// callers is how many of the frame's callers are known from so many sightings that they can be told.
	callers int
	// doubtful means that the frame was left in between, or has had other callers not long before or after.
	doubtful bool
}

// A sighting is how many callers a frame was seen with, and when.
type sighting struct {
	callers int
	time    uint64
}

// see finds the sightings of a frame around a time.
func (l *Log) see(r *region, time uint64, f Wanted) (s sightings) {
	r.prepare()
	at := r.since(time, r.from, len(r.pieces))
	oldest := r.since(max(time, l.Before)-l.Before, r.from, at)
	if l.floor > 0 {
		oldest = max(oldest, r.since(l.floor+1, r.from, at))
	}
	s.all = l.sightings[:0]
	known := l.looksFor(r, &f)
	ahead := newSearch(r, known, f, &s.all)
	ahead.lookAhead(at, r.since(time+l.After+1, at, len(r.pieces)), enoughSightings, l.floor)
	// Where that leads nowhere already, what was just before is said, and no more is looked for.
	back, most := newSearch(r, known, f, &s.all), len(r.pieces)
	if ahead.seen == 0 || ahead.doubtful {
		oldest, most = max(oldest, at-maxProbes), 1
	}
	back.lookBack(at-1, oldest, most)
	s.before, s.after = back.nearest, ahead.nearest
	s.isBefore, s.isAfter = back.seen > 0, ahead.seen > 0
	s.doubtful = back.doubtful || ahead.doubtful
	if s.isBefore && s.isAfter {
		s.entered = back.entered + ahead.entered
		s.weigh()
		if s.doubtful && !back.doubtful && !ahead.doubtful {
			ahead.lookFurther(maxProbes)
			s.doubtful, s.entered = ahead.doubtful, back.entered+ahead.entered
			s.weigh()
		}
		s.doubtful = s.doubtful || s.returnedBetween(r, f.SP)
	}
	l.sightings = s.all
	return s
}

// weigh returns how many of the frame's callers are known, and whether there may have been others in between.
func (s *sightings) weigh() {
	s.callers = agree(&s.before.run, &s.after.run)
	if len(s.all) < enoughSightings {
		s.doubtful = true
		return
	}
	if !s.seenOften() {
		s.callers = min(s.callers, callersSeen(s.all))
	}
	apart := s.after.time - s.before.time
	stays := uint64(1)
	if s.entered < enoughEntries {
		stays += uint64(s.entered)
	}
	s.doubtful = s.doubtful || s.seenFor() < apart+stableFor*apart*stays
}

// seenOften reports whether enough of the sightings have so many callers.
func (s *sightings) seenOften() bool {
	n := 0
	for i := range s.all {
		if s.all[i].callers >= s.callers {
			if n++; n == enoughSightings {
				return true
			}
		}
	}
	return false
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
	region *region
	known  *looks
	frame  Wanted
	// The frame or its caller has this SP, which is in this class, and is at index i - below if its callers
	// begin at i.
	key   uint64
	class uint8
	below int
	// lowest is the highest SP that the first frame of a piece with the frame can have.
	lowest uint64

	seen     int
	last     int   // how many callers the last sighting has that was not known
	nearest  piece // cut to the frame's callers
	callers  mark  // of nearest
	others   mark  // of a sighting that agrees with nearest otherwise
	doubtful bool  // a nearer walk shows that the frame was gone, or a sighting has other callers
	away     bool  // a walk since the last sighting shows that the frame was gone
	entered  int

	next, end int // the pieces that were not looked at yet

	all *[]sighting // of the frame
}

// newSearch returns one that has found nothing. all is for the sightings.
func newSearch(r *region, known *looks, f Wanted, all *[]sighting) search {
	s := search{region: r, known: known, frame: f, key: f.SP, below: 1, lowest: f.SP, all: all}
	if f.byFunction() {
		s.key, s.below, s.lowest = f.CFA, 0, f.CFA-1
	}
	s.class = class(s.key)
	return s
}

// wants reports whether more is to be looked at, up to most sightings.
func (s *search) wants(most int) bool { return s.seen < most && !(s.seen > 0 && s.doubtful) }

// lookAhead looks at the pieces from first up to end, except those up to the time floor, for so many
// sightings.
func (s *search) lookAhead(first, end, most int, floor uint64) {
	for first < end && s.region.pieces[first].time <= floor {
		first++
	}
	s.next, s.end = first, end
	s.lookFurther(most)
}

// lookFurther looks at the next pieces, for so many sightings more.
func (s *search) lookFurther(more int) {
	most := s.seen + more
	between := s.next // the first piece since the last sighting
	for s.next < s.end && s.wants(most) {
		i := s.region.next(s.class, s.next, s.end)
		s.next = i + 1
		if i == s.end {
			return
		}
		if m := s.look(i); m.isSighting() {
			s.pass(between, i)
			s.sight(i, m)
			between = i + 1
		}
	}
}

// lookBack looks at the pieces from first down to last, for so many sightings. When there are enough, it
// looks at some of the others only.
func (s *search) lookBack(first, last, most int) {
	between, i := first+1, first
	for s.seen < enoughSightings {
		if !s.wants(most) {
			return
		}
		if i = s.region.previous(s.class, i, last); i < last {
			return
		}
		if m := s.look(i); m.isSighting() {
			s.pass(i+1, between)
			s.sight(i, m)
			between = i
		}
		i--
	}
	s.lookOnly(i+1, last, max(1, (i+1-last)/maxProbes))
}

// lookOnly looks at each step-th of the pieces before first, down to last.
func (s *search) lookOnly(first, last, step int) {
	marks, pieces, all := s.known.marks, s.region.pieces, *s.all
	for i := first - step; i >= last && !s.doubtful; i -= step {
		m := marks[i]
		if m == unknown {
			m = s.look(i)
		}
		if !m.isSighting() {
			s.away = s.away || s.isGone(&pieces[i])
			continue
		}
		s.judge(i, m)
		if s.away {
			s.away = false
			s.entered++
		}
		s.seen++
		all = append(all, sighting{m.callers(), pieces[i].time})
	}
	*s.all = all
}

// pass notes that the frame has no caller in the pieces from first up to end, which lie before the first
// sighting, or between the last one and the next.
func (s *search) pass(first, end int) {
	if first == end {
		return
	}
	pieces := s.region.pieces[first:end]
	if s.seen > 0 {
		for i := 0; i < len(pieces) && !s.away; i++ {
			s.away = s.isGone(&pieces[i])
		}
		return
	}
	for i := 0; i < len(pieces) && !s.doubtful; i++ {
		s.doubtful = pieces[i].spans(s.frame.SP)
	}
}

// isGone reports whether a piece without a caller of the frame shows that the frame was gone.
func (s *search) isGone(p *piece) bool {
	return p.spans(s.frame.SP) || p.isAbove(s.frame.SP, &s.nearest.run)
}

// sight keeps the sighting in piece i.
func (s *search) sight(i int, m mark) {
	p, n := &s.region.pieces[i], m.callers()
	if s.seen == 0 {
		s.nearest = piece{time: p.time, run: p.from(p.len() - n), whole: p.whole}
		s.callers = m
	} else {
		s.judge(i, m)
	}
	if s.away {
		s.away = false
		s.entered++
	}
	s.seen++
	*s.all = append(*s.all, sighting{n, p.time})
}

// judge compares the callers in piece i with those of nearest.
func (s *search) judge(i int, m mark) {
	if !m.agrees(s.callers) {
		s.compare(i, m)
	}
}

func (s *search) compare(i int, m mark) {
	if m.agrees(s.others) && m <= s.others {
		return
	}
	p := &s.region.pieces[i]
	callers := p.from(p.len() - m.callers())
	if differ(&callers, &s.nearest.run) {
		s.doubtful = true
	} else {
		s.others = m
	}
}

// look returns what piece i shows of the frame.
func (s *search) look(i int) mark {
	m := s.known.marks[i]
	if m == unknown {
		m = s.lookAt(&s.region.pieces[i])
		s.known.marks[i] = m
	}
	return m
}

// lookAt is look for a piece that no search for the frame has looked at.
func (s *search) lookAt(p *piece) mark {
	if m := s.known.again(p); m != unknown {
		return m
	}
	i, ok := s.callerIn(p)
	if !ok {
		return noSighting
	}
	s.last = p.len() - i
	return s.known.sighting(p, i)
}

// callerIn is where the caller of the frame is in a piece, if the frame is there, and its caller or that it
// is the root. It is mostly as far from the root as the last time.
func (s *search) callerIn(p *piece) (i int, ok bool) {
	if p.low > s.lowest || s.key > p.high {
		return 0, false
	}
	k := p.len() - s.last - s.below
	if k < 0 || k >= p.len() || p.at(k).SP != s.key {
		k = p.find(s.key)
	}
	i, ok = s.frame.caller(&p.run, k)
	return i, ok && (i < p.len() || p.whole)
}

// returnedBetween reports whether a walk in between was in a caller of the frame, and not in the frame any more.
func (s *sightings) returnedBetween(r *region, sp uint64) bool {
	for i := r.since(s.before.time+1, r.from, len(r.pieces)); i < len(r.pieces); i++ {
		p := &r.pieces[i]
		if p.time >= s.after.time {
			break
		}
		if p.isAbove(sp, &s.before.run) {
			return true
		}
	}
	return false
}

// isAbove reports whether a walk was in one of the callers of a frame whose SP is sp, and not in the frame any
// more.
func (p *piece) isAbove(sp uint64, callers *run) bool {
	return p.low > sp && (callers.holds(p.at(p.len()-1)) || callers.holds(p.at(0)))
}

// spans reports whether a piece has frames on both sides of an address, or its first one there.
func (p *piece) spans(sp uint64) bool { return p.low <= sp && sp < p.high }
