package unwind

import (
	"unsafe"

	"unspool/unwind/rule"
	"unspool/vmas"
)

// A climb is the hot part of a walk: frames whose rules are rule.FromSP and rule.FromBP,
// which nearly all are.
type climb struct {
	*walk
	words []uint64 // of the copy

	known  []Frame // the last walk of the thread
	passed int     // how many of them are below SP
	copied int     // how many frames were taken over from known
	// whole means that the frames of the walk from index kept on are known[at:], unchanged.
	whole    bool
	kept, at int
}

// wordsOf returns the copy as words, nil if its bytes or its addresses are not aligned to them. The kernel
// aligns records, and what it copies, to eight bytes, and programs align SP.
func wordsOf(stack *Stack) []uint64 {
	p := unsafe.Pointer(unsafe.SliceData(stack.Data))
	if uintptr(p)%8 != 0 || stack.Base%8 != 0 || len(stack.Data) < 8 {
		return nil
	}
	return unsafe.Slice((*uint64)(p), len(stack.Data)/8)
}

// fetch loads a word of each cache line of the innermost 2 KiB. A walk has to wait for one line before it
// knows where the next one is, but the processor waits for all of these loads at once.
func (c *climb) fetch() {
	const line, most = 8, 256 // words
	var sum uint64
	for i := 0; i < min(len(c.words), most); i += line {
		sum += c.words[i]
	}
	c.fetched = sum // so that the compiler keeps the loads
}

// run walks from f, which lies at p, to the first frame that needs other rules or memory that is not in the
// copy, and leaves that frame in f. It returns stepped unless the walk ends before.
func (c *climb) run(p *place, f *frame) Reason {
	met := !f.exact && c.passed < len(c.known) && c.pass(f.sp) == f.sp &&
		c.known[c.passed].isCaller(f.pc, f.sp, f.bp)
	for {
		if met {
			n := c.copyKnown(len(c.ips))
			c.ips, c.frames = c.ips[:n], c.frames[:n]
			top := &c.frames[n-1]
			*f = frame{pc: top.pc, sp: top.SP, bp: top.bp}
			if !c.locate(p, f.lookup()) {
				return Unmapped
			}
		}
		if !p.fast || f.sp%8 != 0 {
			return stepped
		}
		end := c.climb(p, f)
		if met = end == metKnown; !met {
			return end
		}
	}
}

// metKnown is the reason of a climb that has come to a known frame.
const metKnown = stepped + 1

// climb does what run does, but no further than to the first frame that is a known one, where it returns
// metKnown. It is one loop whose variables are to stay in registers.
func (c *climb) climb(p *place, f *frame) Reason {
	words, base := c.words, c.stack.Base
	// Both slices have room for MaxFrames.
	n, ips := len(c.ips), c.ips[:c.MaxFrames]
	frames := c.frames[:len(ips)]
	first, callee := n, &frames[n-1]
	knownSP := c.pass(f.sp + 1)

	lookup, sp, bp := f.lookup(), f.sp, f.bp
	start, size, bias := p.start, p.size, p.bias
	rules, shift := p.rules.Table()
	end := stepped
climbing:
	for {
		off := uint32(lookup - bias)
		// Most offsets are in the first place where [rule.Cache.Get] looks.
		var r rule.Rule
		if i := uint64(off) * rule.Spread >> (shift & 63); i < uint64(len(rules)) && uint32(rules[i]) == off {
			r = rule.Rule(rules[i] >> 32)
		} else {
			r = p.rules.Get(off)
		}
		if r == rule.None {
			r = p.module.Find(p.m, lookup, uint64(off))
			rules, shift = p.rules.Table()
		}

		cfa, slot := sp, uint64(r>>4&rule.MaxBP)
		switch r & rule.KindMask {
		case rule.FromSP:
			cfa += r.CFA()
		case rule.FromBP:
			if cfa = bp + r.CFA(); cfa <= sp || cfa%8 != 0 {
				break climbing
			}
			if cfa-8*slot < sp {
				slot = 0 // popped: see compile
			}
		case rule.Single:
			if r == rule.EndOfStack {
				end = Root
			}
			break climbing
		default:
			break climbing
		}
		i := (cfa-base)/8 - 1
		if i >= uint64(len(words)) {
			break
		}
		pc := words[i]
		caller := bp
		if slot != 0 {
			if i -= slot - 1; i >= uint64(len(words)) {
				break
			}
			caller = words[i]
		}
		if uint(n) >= uint(len(ips)) {
			end = DepthLimit
			break
		}
		if pc-1-start >= size {
			if !c.locateReturn(p, pc-1) {
				end, c.zero = Unmapped, pc == 0
				break
			}
			start, size, bias = p.start, p.size, p.bias
			if p.fast {
				rules, shift = p.rules.Table()
			}
		}
		lookup, sp, bp = pc-1, cfa, caller
		callee.saved = uint32(8 * slot)
		ips[n] = pc
		callee = &frames[n]
		callee.SP, callee.pc, callee.bp = sp, pc, bp
		callee.saved, callee.exact, callee.Source = noSlot, false, ByCFI
		n++
		if knownSP <= sp {
			if knownSP < sp {
				knownSP = c.pass(sp)
			}
			if knownSP == sp && c.known[c.passed].isCaller(pc, sp, bp) {
				end = metKnown
				break
			}
		}
		if !p.fast {
			break
		}
	}
	if n > first {
		*f = frame{pc: lookup + 1, sp: sp, bp: bp}
		c.whole = c.whole && n == c.kept+len(c.known)-c.at
	}
	c.ips, c.frames = ips[:n], frames[:n]
	return end
}

// pass passes over the known frames below sp, and returns the SP of the next one, or the highest address if
// there is none.
func (c *climb) pass(sp uint64) uint64 {
	i := c.passed
	for ; i < len(c.known); i++ {
		if at := c.known[i].SP; at >= sp {
			c.passed = i
			return at
		}
	}
	c.passed = i
	return ^uint64(0)
}

// isCaller reports whether k is the frame of a caller with this PC, SP and BP, and its
// own caller follows from it by a fast rule.
func (k *Frame) isCaller(pc, sp, bp uint64) bool {
	return k.SP == sp && k.pc == pc && k.bp == bp && k.saved != noSlot && !k.exact
}

// copyKnown adds to n frames, of which the last is known[passed], its callers from the last walk of the
// thread, for as long as the words of the stack that they come from are unchanged. It returns how many frames
// there are.
func (c *climb) copyKnown(n int) int {
	words, base := c.words, c.stack.Base
	known := c.known[c.passed:]
	kept, i, guessed := n-1, 0, 0
	callers := known[1:]
	ips := c.ips[n:c.MaxFrames]
	callers = callers[:min(len(callers), len(ips))]
	ips = ips[:len(callers)]
	saved := known[0].saved
	for ; i < len(callers); i++ {
		f := &callers[i]
		at := (f.SP - base) / 8
		if saved == noSlot || at-1 >= uint64(len(words)) || words[at-1] != f.pc {
			break
		}
		if saved != 0 {
			if slot := at - uint64(saved/8); slot >= uint64(len(words)) || words[slot] != f.bp {
				break
			}
		}
		ips[i] = f.pc
		saved = f.saved
		if f.Source != ByCFI {
			guessed = i + 1
		}
	}
	n += i
	frames := c.frames[kept:c.MaxFrames]
	by := frames[0].Source // its callee may be another one now
	copy(frames, known[:i+1])
	frames[0].Source = by
	frames[i].saved = noSlot
	c.whole, c.kept, c.at = i+1 == len(known), kept, c.passed
	if guessed > 0 {
		f := &known[guessed]
		c.regs.restart(kept+guessed, &frame{pc: f.pc, sp: f.SP, bp: f.bp})
	}
	c.copied += i
	c.passed += i + 1
	return n
}

// A memo is the last walk of a thread. The outer frames of a thread rarely change from one sample to the
// next: where a frame of the new walk is one of the last one, with the same PC, SP and BP, all that follows
// is the same too, as long as the words that it was read from are. Comparing these words is quicker than
// finding rules.
type memo struct {
	tid   uint32
	space *vmas.Space
	maps  uint32 // generation of the mappings
	// buf[from:] are the frames, the outermost last, so that frames which stay need not move when others are
	// put before them.
	buf  []Frame
	from int
	// score counts walks for which the memo saved more than it cost, less those for which it did not. Below
	// minScore the memo pauses for some walks.
	score int8
	pause uint8
}

const (
	// maxMemo is how many frames a memo holds at most.
	maxMemo = 1024
	// memoSlots is how many memos there are. Threads whose TIDs have the same remainder share one.
	memoSlots = 128

	maxScore  = 16
	minScore  = -8
	memoPause = 100 // walks
)

// memos are found by TID.
type memos [memoSlots]memo

// lookup returns the memo of a thread, emptied if it is of another thread or the mappings have changed, and
// nil while it pauses.
func (t *memos) lookup(tid uint32, space *vmas.Space) *memo {
	if tid == 0 {
		return nil
	}
	m := &t[tid%memoSlots]
	if m.tid != tid || m.space != space || m.maps != space.Generation() {
		*m = memo{tid: tid, space: space, maps: space.Generation(), buf: m.buf, from: len(m.buf)}
	}
	if m.pause > 0 {
		m.pause--
		return nil
	}
	return m
}

// forget empties the memo of a thread.
func (t *memos) forget(tid uint32) {
	if m := &t[tid%memoSlots]; m.tid == tid {
		m.from = len(m.buf)
	}
}

// frames are those of the last walk, leaf first.
func (m *memo) frames() []Frame {
	if m == nil {
		return nil
	}
	return m.buf[m.from:]
}

// keep replaces the frames of the memo by those of a walk.
func (m *memo) keep(c *climb) {
	if m == nil {
		return
	}
	if 3*c.copied >= len(c.frames) {
		m.score = min(m.score+1, maxScore)
	} else if m.score--; m.score < minScore {
		m.from, m.score, m.pause = len(m.buf), 0, memoPause
		return
	}
	fresh, at := c.frames, len(m.buf) // at is where the frames begin that stay
	if len(fresh) > maxMemo {
		m.from = at
		return
	}
	if c.whole {
		fresh, at = fresh[:c.kept], m.from+c.at
		m.buf[at].Source = c.frames[c.kept].Source
	}
	if at < len(fresh) {
		buf := make([]Frame, max(32, 2*len(c.frames)))
		at = len(buf) - copy(buf[len(buf)-(len(m.buf)-at):], m.buf[at:])
		m.buf = buf
	}
	m.from = at - len(fresh)
	copy(m.buf[m.from:], fresh)
}
