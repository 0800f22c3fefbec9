package unwind

import (
	"unspool/unwind/link"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// This file is about walks that leave the copied stack: for another stack, over signal frames, where the
// handler may have had one of its own, and Go's stack switches, or for memory that is read from the process
// where the copy ends.

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
	live     bool // and goes on in what was read from the process
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

// LacksC reports whether frames of C, between two parts in Go, are missing in the last walk, as they are on
// another stack.
func (u *Unwinder) LacksC() bool { return u.walk.moves.fromC }

// isPartial reports whether frames may be missing or wrong although the walk has reached the root.
func (m *stackMoves) isPartial() bool { return m.live || m.fromC || m.resumed }

// maxDown bounds how often a walk may go down over a signal frame, so that a forged frame cannot make it run
// in circles.
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
	fixed, ok := w.fixed(from)
	if !ok {
		return stepped
	}
	n := w.Memory(w.space.PID, fixed, w.live, to)
	w.stack.live, w.stack.liveBase = w.live[:n], to
	w.moves.live = n > 0
	return stepped
}

// A Piece is a piece of the copied stack.
type Piece struct {
	Addr uint64
	Data []byte
}

// fixed is the piece of the copy that does not change while the handler runs that has the signal frame at sp:
// from the handler's own frame to the end of the signal frame. There is none when the handler has returned
// already.
func (w *walk) fixed(sp uint64) (p Piece, ok bool) {
	if len(w.frames) < 2 {
		return p, false
	}
	from := w.frames[len(w.frames)-2].SP
	if from >= sp || !w.stack.copied(from) || !w.stack.copied(sp) {
		return p, false
	}
	data := w.stack.Data[from-w.stack.Base:]
	return Piece{from, data[:min(uint64(len(data)), w.signalEnd(sp)-from)]}, true
}

// signalEnd gives the end of the signal frame at sp, with the processor's extended state if that is in the
// copy (arch/x86/include/uapi/asm/sigcontext.h, struct _fpx_sw_bytes).
func (w *walk) signalEnd(sp uint64) uint64 {
	const (
		size     = 304 + 128   // struct ucontext and siginfo, the largest of all architectures
		fpstate  = 40 + 23*8   // in ucontext: the address of the extended state
		magicAt  = 464         // in that, as sizeAt
		magic    = 0x46505853  // FP_XSTATE_MAGIC1
		sizeAt   = magicAt + 4 // extended_size
		smallest = 512         // of the state
		largest  = 64 << 10    // of the frame, which the copy bounds, too
	)
	state, ok := w.stack.word(sp + fpstate)
	if !ok || state < sp+size || state-sp > largest || !w.stack.holds(state+smallest-1) {
		return sp + size
	}
	if m, ok := w.stack.uint(state+magicAt, 4); ok && m == magic {
		if n, ok := w.stack.uint(state+sizeAt, 4); ok && n > smallest && n <= largest {
			return state + n
		}
	}
	return state + smallest
}

// miss is Stack.miss for a walk that may have left the copied stack.
func (w *walk) miss(addr uint64) Reason {
	if w.moves.switched {
		return DumpTooShort
	}
	return w.stack.miss(addr)
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

// An OpenFrame is the last frame of a walk that came to the end of its copy, from which [Unwinder.WalkOn]
// goes on in the memory of the process. Its PC is a return address, which lies below its SP, unless it is
// that of the sampled function.
type OpenFrame struct {
	PC, SP, BP uint64
	Within     link.Function
	CFA        uint64 // 0 where it is not known
	SavedCFA   uint64 // where it is saved then, 0 where that is not known, either
	Leaf       bool   // it is that of the sampled function
}

// Reaches is an address up to which the frame reaches at least, as far as is known.
func (f *OpenFrame) Reaches() uint64 { return max(f.SP, f.CFA, f.SavedCFA) }

// IsAt reports whether it is the frame of the same function at the same place.
func (f *OpenFrame) IsAt(g *OpenFrame) bool {
	if f.Leaf || g.Leaf { // SP depends on where the function stands
		return f.Leaf == g.Leaf && f.Within == g.Within && f.CFA == g.CFA && f.SavedCFA == g.SavedCFA
	}
	return f.SP == g.SP && (f.PC == g.PC || f.Within == g.Within && f.Within != link.Function{})
}

// Returns reports whether a word in the place of its return address is one into the function. It need not be
// that of the sample, as the function may have called something else since.
func (f *OpenFrame) Returns(word uint64) bool { return word == f.PC || f.Within.Holds(word) }

// OpenFrame gives that of a walk of x86-64. Where the sampled function itself is cut off, no word on the
// stack says that it is there still, and there is an OpenFrame only if it is known where its frame ends.
func (r *Result) OpenFrame() (f OpenFrame, ok bool) {
	if r.Open == 0 {
		return f, false
	}
	last := &r.Frames[r.Open-1]
	f = OpenFrame{PC: last.pc, SP: last.SP, BP: last.bp, Within: r.Within, CFA: r.CFA, SavedCFA: r.SavedCFA,
		Leaf: r.Open == 1}
	if f.Leaf {
		return f, f.Reaches() > f.SP && f.Within != link.Function{}
	}
	return f, !last.exact && last.SP != 0
}

// WalkOn walks from a frame over a stack that was read from the process later than the frame was sampled, and
// begins with it. It ends before a return address that follows no call, with BadCFI, and so does one whose
// first caller calls another function: what was read need not have been the stack of that time, nor one of
// any time. The frame may have been left, and the word that tells of it be a remnant. For the same reason a
// return address of 0 is no root: where a thread's stack begins is cleared, or written over, when it ends.
func (u *Unwinder) WalkOn(space *vmas.Space, from OpenFrame, stack *Stack) Result {
	memory := u.Memory // is about the sample in work
	u.Memory = nil
	defer func() { u.Memory = memory }()
	for range mostWalks {
		before := u.images.Arrivals()
		if res := u.walkOn(space, from, stack); u.knewAll(before, &res) {
			return res
		}
	}
	u.walk.ips, u.walk.frames = u.walk.ips[:1], u.walk.frames[:1]
	return u.walk.end(NoImage, nil)
}

// walkOn is WalkOn for one walk.
func (u *Unwinder) walkOn(space *vmas.Space, from OpenFrame, stack *Stack) Result {
	f := frame{pc: from.PC, sp: from.SP, bp: from.BP, exact: from.Leaf}
	w := u.begin(space, stack)
	w.push(&f, ByLive)
	w.regs = checkpoint{}
	w.regs.restart(0, &f)
	w.sample = new(Regs) // none of them is known

	var p place
	if !w.locate(&p, f.lookup()) {
		return w.end(Unmapped, nil)
	}
	c := climb{walk: w, words: wordsOf(stack)}
	end := c.follow(&p, &f)
	w.last = f
	for i := range w.ips {
		if !w.frames[i].exact && !w.followsCall(w.ips[i]) {
			w.ips, w.frames = w.ips[:i], w.frames[:i]
			return w.end(BadCFI, nil)
		}
	}
	if len(w.ips) > 1 && w.callsOther(0) {
		return w.end(BadCFI, nil)
	}
	return w.endOpen(end, p.m)
}

// LinksOfRead is [Result.Links] for the result of [Unwinder.WalkOn], of a stack that was read at a time.
func (r *Result) LinksOfRead(log *link.Log, space, time uint64, buf []link.Frame) []link.Frame {
	return r.links(log.AddRead, space, time, buf)
}
