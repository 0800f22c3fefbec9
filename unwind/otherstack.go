package unwind

import "unspool/unwind/rule"

// This file is about walks that leave the copied stack: for another stack, over signal frames, where the
// handler may have had one of its own, and Go's stack switches.

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

// otherStack finds the caller of a function that has left its stack for another one, by BP, or that of
// morestack by what was read. The stack that it left is in the copy by chance only.
func (w *walk) otherStack(f *frame) (next frame, source Source, end Reason) {
	if at := w.stack.Growth.At; at != 0 && at == f.sp {
		return w.growing(f)
	}
	bp, ok1 := w.stack.word(f.bp)
	pc, ok2 := w.stack.word(f.bp + 8)
	if !ok1 || !ok2 {
		w.moves.leftGo = f.bp == 0 // morestack clears it
		return next, ByFramePointer, NotCopied
	}
	if f.bp < f.sp {
		if w.moves.down++; w.moves.down > maxDown {
			return next, ByFramePointer, BadCFI
		}
	}
	return frame{pc: pc, sp: f.bp + 16, bp: bp}, ByFramePointer, stepped
}

// stackMoves records how SP moves over signal frames, where it need not go up: the handler may have had a
// stack of its own.
type stackMoves struct {
	down     int
	switched bool // the walk has left the stack that was copied
	fromC    bool // it has left out frames of C, which has called Go
	resumed  bool // it has left out frames of generated code
	lostBP   bool // it does not know BP: see throwing
	leftGo   bool // it ended in Go's morestack
	grown    int  // index of the first frame behind morestack, 0 if it was not found by what was read
}

// end returns the reason that is reported for a walk which ended for reason. A stack of which a part was read
// from the process is not complete: that part is from the time of reading, and equal bytes do not prove that
// it was the same at the sample. Nor is a stack complete that lacks the frames of C between two parts in Go:
// they are on another stack, which a larger copy does not reach.
func (m *stackMoves) end(reason Reason) Reason {
	switch {
	case reason == BadCFI && m.lostBP:
		return UnknownRegister
	case reason != Root:
		return reason
	case m.fromC:
		return NotCopied
	case m.isPartial():
		return DumpTooShort
	}
	return Root
}

// LacksC reports whether frames of C, between two parts in Go, are missing in the walk, as they are on another stack.
func (r *Result) LacksC() bool { return r.walk.moves.fromC }

// isPartial reports whether frames may be missing or wrong although the walk has reached the root.
func (m *stackMoves) isPartial() bool { return m.fromC || m.resumed }

// maxDown bounds how often a walk may go down over a signal frame, so that a forged frame cannot make it run
// in circles.
const maxDown = 8

// interrupted follows a signal frame from one SP to the next, onto another stack where the handler had one of its own.
func (w *walk) interrupted(from, to uint64) Reason {
	if to > from && w.stack.isOn(to) {
		return stepped
	}
	if to <= from {
		if w.moves.down++; w.moves.down > maxDown {
			return BadCFI
		}
	}
	w.moves.switched = true
	return stepped
}

// miss is Stack.miss for a walk that may have left the copied stack.
func (w *walk) miss(addr uint64) Reason {
	why := w.stack.miss(addr)
	if w.moves.switched {
		return DumpTooShort
	}
	return why
}

// below is the reason to end at a frame whose CFA is not above SP: it is further down on the same stack, or
// on another stack.
func (w *walk) below(cfa uint64) Reason {
	if len(w.ips) == 1 && w.stack.inRedZone(cfa-8) {
		return NotCopied // as in OCaml's caml_c_call, which has popped its return address
	}
	if why := w.stack.miss(cfa); why == NotCopied && !w.moves.switched {
		return why
	}
	return BadCFI
}
