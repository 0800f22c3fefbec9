package rest

import "unspool/perfring"

// What is read of a stack depends on what is known of its thread.

const (
	// firstRest is how much is read of a stack of which it is not known where it ends, and mostRead bounds how
	// much is read of a piece of any.
	firstRest = 128 << 10
	mostRead  = 256 << 10
	// mostOfAll is how much is read of a stack that is read to its end, or to that of its memory. Threads whose large
	// frames alternate need it: only one of these is known (SVT-AV1: 97.8 % of the stacks with 256 KiB, 98.9 % with 1 MiB;
	// see bench/COPIES.md).
	mostOfAll = 1 << 20
	// leastBehind is how much is read up to a large frame, which need not be there any more, and nearRoot how
	// much up to the end of a stack if not all is read.
	leastBehind = 64 << 10
	nearRoot    = 64 << 10
	// farthest is how far away the outermost frame of a stack is, at most.
	farthest = 8 << 20
	// aboveRoot is what is read beyond the outermost frame: what a program begins with, by which that is known.
	aboveRoot = 2 << 10
)

// A shape is what is known of a thread's stack. All of it may be out of date, and is 0 where it is not known.
type shape struct {
	end          uint64 // where its outermost frame is
	large, above uint64 // a large frame, from its SP to near its end
	growth       GrowthOffsets
	wishes       [maxWishes]wish
	isKnown      bool // otherwise growth is that of another thread
}

// shape is that of the stack of a thread. A thread of which nothing is known may run the Go program that was
// seen last, as compilers are started again and again.
func (s *Shared) shape(tid uint32) shape {
	t, isKnown := s.thread(tid)
	if !isKnown {
		return shape{growth: s.lastGrowth().load()}
	}
	k := shape{end: depth(t.stack.Load()).end(), large: t.large.Load(), above: t.above.Load(), growth: t.growth.load(),
		isKnown: true}
	for i := range k.wishes {
		k.wishes[i] = wish(t.wishes[i].Load())
	}
	return k
}

// wishesFor keeps the wishes of the stack around sp, and says how many bytes they are.
func (k *shape) wishesFor(sp uint64) (size uint64) {
	for i, w := range k.wishes {
		if w.isFor(sp) {
			size += w.size()
		} else {
			k.wishes[i] = 0
		}
	}
	return size
}

// isIn reports whether the whole stack is in a copy that ends at an address, as far as is known. An end that is
// too far away is that of another stack, as with coroutines.
func (k *shape) isIn(copyEnd uint64) bool {
	return k.end != 0 && (k.end <= copyEnd || k.end-copyEnd > farthest)
}

// find returns what is to be read of the stack of a sample, of whose thread k is known. If morestack was called,
// whose SP that is, this is the stack of a goroutine.
func find(memory *memory, s *perfring.Sample, k *shape, morestack uint64, h *head) (w wanted,
	of goroutineStack) {
	ok := false
	if morestack != 0 {
		of, ok = k.growth.goroutine(memory, s, morestack)
	}
	switch {
	case ok:
		h.morestack, h.g = morestack, of.g
		w = of.wanted(morestack)
	case k.end == 0:
		w = k.wanted(h.start, memoryEnd(memory, h.start-1))
	case !k.isIn(h.start):
		w = k.wanted(h.start, 0)
	}
	h.above = w.above
	return w, of
}

// A wanted is what is to be read of a stack: so many bytes behind its copy, and more from another address on.
type wanted struct{ behind, above, more uint64 }

// wanted is what is to be read behind a copy. memoryEnd is where the memory ends in which the stack is, 0 if
// that is not known, either.
func (k *shape) wanted(copyEnd, memoryEnd uint64) (w wanted) {
	end := k.end + aboveRoot
	if k.end == 0 {
		end = memoryEnd
	}
	hasLarge := k.above > copyEnd && (end == 0 || k.above < end)
	switch {
	case end == 0 && !hasLarge:
		return wanted{behind: firstRest}
	case end == 0:
		w.above, w.more = k.above, firstRest
	case end <= copyEnd:
		return w
	case end-copyEnd <= mostOfAll:
		return wanted{behind: end - copyEnd}
	default:
		if w.above = end - nearRoot; hasLarge {
			w.above = min(w.above, k.above)
		}
		w.more = min(end-w.above, mostRead)
	}
	switch {
	case hasLarge && k.large > copyEnd:
		w.behind = min(max(k.large-copyEnd, leastBehind), mostRead)
	case hasLarge:
		w.behind = leastBehind
	case k.end == 0:
		w.behind = firstRest
	default:
		w.behind = mostRead
	}
	w.behind = min(w.behind, w.above-copyEnd)
	return w
}

// wanted is what is to be read of the stack of a goroutine, from the word on below its SP, which is where
// morestack was to return to. If there is no goroutine, it is that of morestack, at SP.
func (of *goroutineStack) wanted(morestack uint64) wanted {
	if of.g == 0 {
		return wanted{above: morestack - 8, more: 8}
	}
	return wanted{above: of.sp - 8, more: min(of.high-of.sp+8, mostRead)}
}

// memoryEnd is where the mapping of a process ends in which an address is, 0 if that is too far away for a
// stack, or is not known.
func memoryEnd(memory *memory, addr uint64) uint64 {
	end := memory.MappingEnd(addr)
	if end < addr || end-addr > farthest { // a goroutine's stack is in a large heap
		return 0
	}
	return end
}
