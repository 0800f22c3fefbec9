package unwind

import "unspool/unwind/rule"

// This file is about walks that go from one stack to another: over signal frames, where the
// handler may have had a stack of its own, and Go's stack switches.

// signal finds the interrupted frame from the kernel's signal frame.
func (w *walk) signal(f *frame) (next frame, source Source, end Reason) {
	var ok [3]bool
	next.exact = true
	next.pc, ok[0] = w.stack.word(f.sp + rule.SigIP)
	next.sp, ok[1] = w.stack.word(f.sp + rule.SigSP)
	next.bp, ok[2] = w.stack.word(f.sp + rule.SigBP)
	if ok != [3]bool{true, true, true} {
		return next, ByCFI, w.miss(f.sp + rule.SigIP)
	}
	w.regs.signal(len(w.ips), f.sp, w.stack)
	return next, ByCFI, w.interrupted(f.sp, next.sp)
}

// otherStack finds the caller of a function that has left its stack for
// another one, by BP. The stack that it left is in the copy by chance only.
func (w *walk) otherStack(f *frame) (next frame, source Source, end Reason) {
	bp, ok1 := w.stack.word(f.bp)
	pc, ok2 := w.stack.word(f.bp + 8)
	if !ok1 || !ok2 {
		return next, ByFramePointer, DumpTooShort
	}
	if f.bp < f.sp {
		if w.moves.down++; w.moves.down > maxDown {
			return next, ByFramePointer, BadCFI
		}
	}
	return frame{pc: pc, sp: f.bp + 16, bp: bp}, ByFramePointer, stepped
}

// stackMoves watches the moves of SP over signal frames, where it need not go
// up: the handler may have had a stack of its own.
type stackMoves struct {
	down     int
	switched bool // the walk has left the stack that was copied
	live     bool // and goes on in what was read from the process
}

// maxDown bounds how often a walk may go down over a signal frame, so that a
// forged frame cannot make it turn in a circle.
const maxDown = 8

// maxLive is how many bytes of an interrupted stack are read from the process.
const maxLive = 64 << 10

// interrupted follows a signal frame from one SP to the next, onto another
// stack where the handler had one of its own.
func (w *walk) interrupted(from, to uint64) Reason {
	if to > from && w.stack.holds(to) {
		return stepped
	}
	if to <= from {
		if w.moves.down++; w.moves.down > maxDown {
			return BadCFI
		}
	}
	w.moves.switched = true
	if w.stack.holds(to) || w.moves.live || w.Strict || w.Memory == nil {
		return stepped
	}
	if w.live == nil {
		w.live = make([]byte, maxLive)
	}
	n := w.Memory(w.space.PID, w.live, to)
	w.stack.live, w.stack.liveBase = w.live[:n], to
	w.moves.live = n > 0
	return stepped
}

// miss is Stack.miss for a walk that may have left the copied stack.
func (w *walk) miss(addr uint64) Reason {
	if w.moves.switched {
		return DumpTooShort
	}
	return w.stack.miss(addr)
}
