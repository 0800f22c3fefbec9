package link

import (
	"math/bits"
	"slices"
)

// A region holds the pieces of walks that have a frame in it, in order of time.
type region struct {
	number  uint64
	pieces  []piece
	from    int // pieces before this one are forgotten
	dropped int // how many came before the first one
	// leads are the times of pieces that lead to a root, here or in another region.
	leads []uint64

	// array has frames that the next piece may share: the last walks' ones up to the highest that any of them
	// had. It is in the chunk with the number in.
	array []Frame
	in    int

	looks []looks // of the frames that were searched lately, or nil

	// index is which of the first indexed pieces may have a frame at an SP, for blockPieces of them each.
	index   []block
	indexed int
}

// A block has a bit for each of blockPieces pieces in each of 256 classes of SPs: whether the piece has a
// frame there.
type block [256]uint64

const (
	blockShift  = 6
	blockPieces = 1 << blockShift
)

// class is the class that an SP is in.
func class(sp uint64) uint8 { return uint8(sp>>6&63 | sp<<2&0xc0) }

// add adds a piece, and forgets those that are older than oldest.
func (r *region) add(p *piece, oldest uint64) {
	r.forget(oldest)
	if len(r.pieces) == cap(r.pieces) && r.from > len(r.pieces)/2 {
		r.compact()
	}
	r.pieces = append(r.pieces, *p)
	if p.whole || p.high>>regionShift != r.number {
		if len(r.leads) == cap(r.leads) {
			old := 0
			for old < len(r.leads) && r.leads[old] <= oldest {
				old++
			}
			r.leads = slices.Delete(r.leads, 0, old)
		}
		r.leads = append(r.leads, p.time)
	}
}

// leadsBetween reports whether there is a lead from the time first up to the time last.
func (r *region) leadsBetween(first, last uint64) bool {
	i, _ := slices.BinarySearch(r.leads, first)
	return i < len(r.leads) && r.leads[i] <= last
}

func (r *region) forget(oldest uint64) {
	for r.from < len(r.pieces) && r.pieces[r.from].time <= oldest {
		r.pieces[r.from].run = run{}
		r.from++
	}
}

// compact moves the pieces to the front, as far as the blocks of the index allow.
func (r *region) compact() {
	n := r.from
	if r.indexed > 0 {
		n &^= blockPieces - 1
		blocks := copy(r.index, r.index[min(n>>blockShift, len(r.index)):])
		r.index = r.index[:blocks]
		r.indexed = max(r.indexed-n, 0)
	}
	r.pieces = r.pieces[:copy(r.pieces, r.pieces[n:])]
	r.from -= n
	r.dropped += n
	for i := range r.looks {
		marks := r.looks[i].marks
		r.looks[i].marks = marks[:copy(marks, marks[min(n, len(marks)):])]
	}
}

// share is the part of the array that the outer ones of frames are equal to, and the part above it. The
// first is nil if there are few, or if so many more are those of the last piece that they should be in the
// array.
func (r *region) share(frames []Frame) (far, above []Frame) {
	const (
		enough = 4
		more   = 24
	)
	i := len(frames) - 1
	end := find(r.array, frames[i].SP)
	if end == len(r.array) || r.array[end] != frames[i] {
		return nil, nil
	}
	first := end
	const step = 8
	for i >= step && first >= step && equal(frames[i-step:i], r.array[first-step:first]) {
		i -= step
		first -= step
	}
	for i > 0 && first > 0 && frames[i-1] == r.array[first-1] {
		i--
		first--
	}
	if end-first+1 < enough || i >= more && r.repeats(frames[:i], more) {
		return nil, r.array[end+1:]
	}
	return r.array[first : end+1], nil
}

// repeats reports whether the last of frames are those of the last piece, too, and so many of them.
func (r *region) repeats(frames []Frame, many int) bool {
	if len(r.pieces) == 0 {
		return false
	}
	near := r.pieces[len(r.pieces)-1].near
	k := find(near, frames[len(frames)-1].SP) + 1
	return many <= k && k <= len(near) && near[k-1] == frames[len(frames)-1] &&
		near[k-many] == frames[len(frames)-many]
}

// prepare brings the index up to date, where looking at each piece would take longer.
func (r *region) prepare() {
	if r.indexed == 0 {
		if len(r.pieces)-r.from < blockPieces {
			return
		}
		r.compact()
	}
	for blocks := (len(r.pieces) + blockPieces - 1) >> blockShift; len(r.index) < blocks; {
		if n := len(r.index); n < cap(r.index) {
			r.index = r.index[:n+1]
			r.index[n] = block{}
		} else {
			r.index = append(r.index, block{})
		}
	}
	for i := r.indexed; i < len(r.pieces); {
		// Pieces that share their outer frames, up to the next block.
		far, k := r.pieces[i].far, i+1
		for ; k < len(r.pieces) && k&(blockPieces-1) != 0; k++ {
			next := r.pieces[k].far
			if arrayEnd(next) != arrayEnd(far) {
				break
			}
			far = overlap(far, next)
		}
		b := &r.index[i>>blockShift]
		b.set(far, (1<<(k-i)-1)<<(i&(blockPieces-1)))
		for ; i < k; i++ {
			p, bit := &r.pieces[i], uint64(1)<<(i&(blockPieces-1))
			b.set(p.near, bit)
			below := min(cap(p.far)-cap(far), len(p.far))
			b.set(p.far[:below], bit)
			b.set(p.far[min(below+len(far), len(p.far)):], bit)
		}
	}
	r.indexed = len(r.pieces)
}

// overlap is the part of an array that is in both of its parts.
func overlap(a, b []Frame) []Frame {
	if cap(a) > cap(b) {
		a, b = b, a
	}
	above := cap(b) - len(b) // the end of b
	return a[:max(min(len(a), cap(a)-above), 0)]
}

// set sets bits in the classes of frames.
func (b *block) set(frames []Frame, bits uint64) {
	for i := range frames {
		b[class(frames[i].SP)] |= bits
	}
}

// next is the first of the pieces from i up to end that may have a frame of a class, and end if there is
// none.
func (r *region) next(class uint8, i, end int) int {
	if r.indexed == 0 {
		return i
	}
	for i < end {
		if w := r.index[i>>blockShift][class] >> (i & (blockPieces - 1)); w != 0 {
			return min(i+bits.TrailingZeros64(w), end)
		}
		i = (i | (blockPieces - 1)) + 1
	}
	return end
}

// previous is the last of the pieces from i down to first that may have a frame of a class, and first-1 if
// there is none.
func (r *region) previous(class uint8, i, first int) int {
	if r.indexed == 0 {
		return i
	}
	for i >= first {
		k := i & (blockPieces - 1)
		if w := r.index[i>>blockShift][class] << (blockPieces - 1 - k); w != 0 {
			return max(i-bits.LeadingZeros64(w), first-1)
		}
		i -= k + 1
	}
	return first - 1
}

// since is the first of the pieces from low up to high whose time is not before a time.
func (r *region) since(time uint64, low, high int) int {
	for low < high {
		if mid := int(uint(low+high) / 2); r.pieces[mid].time < time {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
