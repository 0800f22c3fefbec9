package link

import "slices"

// looks are what pieces of a region show of a frame, as far as a search has looked at them. A frame whose
// callers are wanted is mostly wanted again soon, and then nearly the same pieces are looked at.
type looks struct {
	frame Wanted
	marks []mark // by the index of the piece
	// longest has the most callers of those sightings that agree, since is its time, and agreement their
	// number.
	longest   run
	since     uint64
	agreement uint16
	// Where the last of these sightings is in an array that pieces share: so many callers before its end, of
	// which the first sure ones agree.
	array   uintptr
	callers int
	sure    int
	seen    uint64 // the time of the piece
}

// A region has looks for so many frames.
const (
	regionLooksBits = 5
	regionLooks     = 1 << regionLooksBits
)

// looksFor is the looks for a frame in a region. A small region has none of its own, so that many of them do
// not take much memory.
func (l *Log) looksFor(r *region, f *Wanted) *looks {
	is := *f
	switch { // where the function stands makes no difference
	case f.byFunction():
		is.Frame = Frame{SP: f.CFA}
	case f.Within.Holds(f.PC):
		is.PC = 0
	}
	k, isOther := &l.looks, true
	if r.indexed > 0 {
		if r.looks == nil {
			r.looks = make([]looks, regionLooks)
		}
		k = &r.looks[(is.SP>>3^is.PC^is.Within.Low)*0x9e3779b97f4a7c15>>(64-regionLooksBits)]
		isOther = k.frame != is || k.agreement == maxAgreement
	}
	if isOther {
		*k = looks{frame: is, marks: k.marks[:0]}
	}
	oldest := l.oldest() // what is not newer may be in memory that is used again
	if k.since <= oldest {
		k.longest, k.array = run{}, 0
	}
	if k.seen <= oldest {
		k.array = 0
	}
	if old, n := len(k.marks), len(r.pieces); old < n {
		k.marks = slices.Grow(k.marks, n-old)[:n]
		clear(k.marks[old:])
	}
	return k
}

// A mark is what a piece shows of a frame.
type mark uint32

const (
	unknown    mark = iota
	noSighting      // the frame is not in it with a caller
	someCaller      // plus the number of callers, and in the upper half of the agreement
)

func (m mark) isSighting() bool { return m >= someCaller }

// callers is the number of callers.
func (m mark) callers() int { return int(m&0xffff - someCaller) }

// agrees reports whether the callers of two sightings are known not to differ.
func (m mark) agrees(n mark) bool { return m>>16 == n>>16 && m>>16 != maxAgreement }

// maxAgreement is the number of all agreements from there on.
const maxAgreement = 1<<16 - 1

// again is the mark for a piece that has the frame and the callers of the last sighting by sharing them. It
// is unknown for others.
func (k *looks) again(p *piece) mark {
	if arrayEnd(p.far) != k.array || cap(p.far) <= k.callers {
		return unknown
	}
	n := len(p.far) - cap(p.far) + k.callers
	if n > k.sure || n <= 0 && !(n == 0 && p.whole) {
		return unknown
	}
	return mark(k.agreement)<<16 | someCaller + mark(n)
}

// sighting is the mark for a piece with callers from frame i on. Of sightings that agree, each has the first
// ones of the callers of longest.
func (k *looks) sighting(p *piece, i int) mark {
	callers := p.from(i)
	n := callers.len()
	differs := k.longest.len() == 0 || differ(&callers, &k.longest)
	if differs {
		k.agreement = min(k.agreement, maxAgreement-1) + 1
	}
	if differs || n > k.longest.len() {
		k.longest, k.since = callers, p.time
	}
	if far := i - len(p.near); far <= 0 {
		k.array = 0
	} else if array, its := arrayEnd(p.far), cap(p.far)-far; array != k.array || its != k.callers || differs {
		k.array, k.callers, k.sure, k.seen = array, its, n, p.time
	} else {
		k.sure = max(k.sure, n)
	}
	return mark(k.agreement)<<16 | someCaller + mark(n)
}
