package rest

// A wish is memory elsewhere that walks over the stacks of a thread have lacked, in one word: the stack that a signal
// handler has left which has one of its own, a segment of a split stack, a fiber, or what leads to one. It is read when
// the thread is sampled again on the stack that led there.
type wish uint64

const (
	wishKnown = wish(1) << 63
	// The address is rounded down to 1 KiB.
	wishShift = 10
	wishBits  = 47 - wishShift
	// sizes are a power of 4 of the least one.
	leastWish = 16 << 10
	// firstWish is how much is read at first: samples are looked at some times a second, so each further wish comes late.
	firstWish = 64 << 10
	sizeBits  = 2
	// A stack is told from others by bits of SP.
	regionShift = 16
	regionBits  = 20

	// maxWishes is how many a thread has.
	maxWishes = 3
)

// wishFor is a wish for size bytes at addr for stacks around sp, at least.
func wishFor(sp, addr, size uint64) wish {
	class := wish(0)
	for ; class < 1<<sizeBits-1 && leastWish<<(2*class) < size; class++ {
	}
	return wishKnown | class<<(wishBits+regionBits) | wish(region(sp))<<wishBits | wish(addr>>wishShift)&(1<<wishBits-1)
}

// region is what tells the stack around sp from others.
func region(sp uint64) uint64 { return sp >> regionShift & (1<<regionBits - 1) }

// isFor reports whether it is one of the stack around sp.
func (w wish) isFor(sp uint64) bool {
	return w&wishKnown != 0 && uint64(w>>wishBits)&(1<<regionBits-1) == region(sp)
}

func (w wish) addr() uint64 { return uint64(w&(1<<wishBits-1)) << wishShift }

func (w wish) size() uint64 {
	return leastWish << (2 * uint64(w>>(wishBits+regionBits)&(1<<sizeBits-1)))
}

// with is the wish for that memory and an address near it, if they can be one. Below it, it is that of a stack that is
// deeper now, of which as much may be enough.
func (w wish) with(sp, addr uint64) (both wish, ok bool) {
	const most = leastWish << (2 * (1<<sizeBits - 1))
	low, size := w.addr(), w.size()
	if addr < low {
		return wishFor(sp, addr, size), w.isFor(sp) && low-addr < most
	}
	return wishFor(sp, low, max(size, addr+8-low)), w.isFor(sp) && addr+8-low <= most
}

// Wishes notes that a walk over the stack of a thread, which has begun at sp, has lacked the word at addr. It reports
// whether that is to be read from now on: it may be that it was, in vain.
func (s *Stacks) Wishes(tid uint32, sp, addr uint64) (isNew bool) {
	t, isKnown := s.shared.thread(tid)
	if !isKnown {
		s.Ends(tid, 0)
	}
	at, free := s.wishes%maxWishes, false // the oldest one, more or less
	for i := range t.wishes {
		w := wish(t.wishes[i].Load())
		if both, ok := w.with(sp, addr); ok {
			t.wishes[i].Store(uint64(both))
			return both != w
		}
		if w == 0 && !free {
			at, free = uint64(i), true
		}
	}
	s.wishes++
	t.wishes[at].Store(uint64(wishFor(sp, addr, firstWish)))
	return true
}
