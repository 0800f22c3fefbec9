package rest

import "sync/atomic"

// Stacks are what a reader has read, in the process that walks over them.
type Stacks struct {
	shared *Shared
	pos    uint64 // of the next one
	wishes uint64 // that took the place of others
	wished [maxWishes]Part
}

// NewStacks returns those in a memory.
func NewStacks(shared *Shared) *Stacks {
	return &Stacks{shared: shared, pos: shared.words[taken].Load()}
}

// A Rest is what was read of the stack of a sample, beyond its copy.
type Rest struct {
	Memory []byte // from where the copy ends
	Above  []byte // beyond a large frame
	At     uint64 // address of Above
	// Morestack is SP in Go's morestack, if Above is the stack of a goroutine that gets a larger one, and G is
	// where its g is, 0 if there is no goroutine any more.
	Morestack, G uint64
	Wished       []Part // what walks have wished for
}

// A Part is memory of a process.
type Part struct {
	At     uint64
	Memory []byte
}

// Find is what was read of the stack of a sample whose copy ends at an address. It is empty if nothing was.
// Samples are asked for in order of time; it is valid until the next call.
func (s *Stacks) Find(tid uint32, time, end uint64) (r Rest) {
	s.Release()
	sh := s.shared
	next := sh.words[written].Load()
	if next-s.pos > 2*sh.size || next%headSize != 0 {
		s.pos = next
		return r
	}
	for s.pos != next {
		if to, ok := sh.jump(s.pos, next); ok {
			s.pos = to
			continue
		}
		h := *sh.headAt(s.pos)
		at, left := s.pos&(sh.size-1), next-s.pos
		if h.size == wraps {
			s.pos += min(sh.size-at, left)
			continue
		}
		if !h.fits(min(sh.size-at, left)-headSize) || span(h.data()) > left {
			s.pos = next // it is none of ours
			return r
		}
		if h.time > time {
			return r
		}
		s.pos += span(h.data())
		if h.time == time && h.tid == uint64(tid) && h.start == end {
			data := sh.stacks[at+headSize:][:h.data()]
			r = Rest{
				Memory: data[:h.size:h.size], Above: data[h.size:][:h.more:h.more], At: h.above,
				Morestack: h.morestack, G: h.g, Wished: s.wished[:0],
			}
			data = data[h.size+h.more:]
			for _, w := range h.wished {
				if w.size > 0 {
					r.Wished = append(r.Wished, Part{w.addr, data[:w.size:w.size]})
				}
				data = data[w.size:]
			}
			return r
		}
	}
	return r
}

// fits reports whether all parts of the head have room in so many bytes: somebody else may have written it.
func (h *head) fits(most uint64) bool {
	if h.size > most || h.more > most-h.size {
		return false
	}
	most -= h.size + h.more
	for i := range h.wished {
		if h.wished[i].size > most {
			return false
		}
		most -= h.wished[i].size
	}
	return true
}

// Release notes that what Find returned last is not needed any more.
func (s *Stacks) Release() { s.shared.words[taken].Store(s.pos) }

// Ends notes where the outermost frame of a thread's stack is, 0 if that is not known. The stack is read as
// far as that the next time.
func (s *Stacks) Ends(tid uint32, at uint64) {
	t, isKnown := s.shared.thread(tid)
	if !isKnown {
		set(&t.large, 0)
		set(&t.above, 0)
		t.growth.store(GrowthOffsets{})
		for i := range t.wishes {
			set(&t.wishes[i], 0)
		}
	}
	set(&t.stack, uint64(depthOf(tid, at)))
}

// Skips notes that there is a large frame in a thread's stack, from its SP to near its end, that need not be
// read. It is for a thread of which Ends has said something.
func (s *Stacks) Skips(tid uint32, large, above uint64) {
	if t, isKnown := s.shared.thread(tid); isKnown {
		set(&t.large, large)
		set(&t.above, above)
	}
}

// Grows notes that a thread runs Go, and how its goroutines get larger stacks.
func (s *Stacks) Grows(tid uint32, g GrowthOffsets) {
	t, isKnown := s.shared.thread(tid)
	if !isKnown {
		s.Ends(tid, 0)
	}
	t.growth.store(g)
	s.shared.lastGrowth().store(g)
}

// RunsGo reports whether Grows was called for a thread.
func (s *Stacks) RunsGo(tid uint32) bool {
	t, isKnown := s.shared.thread(tid)
	return isKnown && t.growth.returns.Load() != 0
}

func set(word *atomic.Uint64, value uint64) {
	if word.Load() != value {
		word.Store(value)
	}
}

// Hangs reports whether a read has been under way for hangsAfter at a time, of a process that keeps its mappings
// locked. As long as it is so, no others of this CPU are read.
func (s *Stacks) Hangs(now uint64) bool {
	since := s.shared.words[begun].Load()
	return since != 0 && now > since+hangsAfter
}

const hangsAfter = 500_000_000 // ns
