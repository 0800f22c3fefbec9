package unwind

import "unspool/unwind/rule"

// This file is about walks that go from one stack to another: over signal frames, where the
// handler may have had a stack of its own, and Go's stack switches.

// signal finds the interrupted frame from the kernel's signal frame.
func (u *Unwinder) signal(pid uint32, f *frame, stack *Stack, moves *stackMoves) (next frame, source Source, end Reason) {
	var ok [3]bool
	next.exact = true
	next.pc, ok[0] = stack.word(f.sp + rule.SigIP)
	next.sp, ok[1] = stack.word(f.sp + rule.SigSP)
	next.bp, ok[2] = stack.word(f.sp + rule.SigBP)
	if ok != [3]bool{true, true, true} {
		return next, ByCFI, moves.miss(stack, f.sp+rule.SigIP)
	}
	u.regs.signal(len(u.ips), f.sp, stack)
	return next, ByCFI, u.interrupted(pid, f.sp, next.sp, stack, moves)
}

// otherStack finds the caller of a function that has left its stack for
// another one, by BP. The stack that it left is in the copy by chance only.
func (u *Unwinder) otherStack(f *frame, stack *Stack, moves *stackMoves) (next frame, source Source, end Reason) {
	bp, ok1 := stack.word(f.bp)
	pc, ok2 := stack.word(f.bp + 8)
	if !ok1 || !ok2 {
		return next, ByFramePointer, DumpTooShort
	}
	if f.bp < f.sp {
		if moves.down++; moves.down > maxDown {
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
func (u *Unwinder) interrupted(pid uint32, from, to uint64, stack *Stack, moves *stackMoves) Reason {
	if to > from && stack.holds(to) {
		return stepped
	}
	if to <= from {
		if moves.down++; moves.down > maxDown {
			return BadCFI
		}
	}
	moves.switched = true
	if stack.holds(to) || moves.live || u.Strict || u.Memory == nil {
		return stepped
	}
	if u.live == nil {
		u.live = make([]byte, maxLive)
	}
	n := u.Memory(pid, u.live, to)
	stack.live, stack.liveBase = u.live[:n], to
	moves.live = n > 0
	return stepped
}

// miss is Stack.miss for a walk that may have left the copied stack.
func (s *stackMoves) miss(stack *Stack, addr uint64) Reason {
	if s.switched {
		return DumpTooShort
	}
	return stack.miss(addr)
}
