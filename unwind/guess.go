package unwind

import (
	"unspool/unwind/asm"
	"unspool/unwind/rule"
)

// guess finds the caller of a frame by a rule that was found by reading the
// code. What it finds is credible when its return address follows a call.
// Otherwise, the frame pointer is left.
func (w *walk) guess(f *frame, r rule.Rule) (next frame, source Source, end Reason) {
	if w.Strict {
		return next, ByHeuristic, NoCFI
	}
	switch r.Kind() {
	case rule.GuessSP:
		next.sp = f.sp + r.CFA()
	case rule.GuessBP:
		next.sp = f.bp + r.CFA()
	case rule.GuessSaved:
		at, plus := r.Saved()
		saved, ok := w.stack.word(f.sp + at)
		if !ok {
			return next, ByHeuristic, w.miss(f.sp + at)
		}
		next.sp = saved + plus
	case rule.GuessReg:
		reg, plus := r.InReg()
		held, ok := w.held(reg)
		if !ok {
			return w.framePointer(f)
		}
		next.sp = held + plus
	}
	if next.sp <= f.sp || r.Kind() == rule.GuessSP && w.hasFrame(f, next.sp) {
		return w.framePointer(f)
	}
	pc, ok := w.stack.word(next.sp - 8)
	switch {
	case ok && w.followsCall(pc):
	case w.isNewThread(f):
		return next, ByHeuristic, Root
	case !ok && r.Kind() == rule.GuessSP:
		return next, ByHeuristic, w.miss(next.sp - 8)
	default:
		return w.framePointer(f)
	}
	next.pc, next.bp = pc, f.bp
	switch b := r.BP(); {
	case b == 8*rule.MaxBP:
		next.bp = 0 // so that no frame above is found through it
	case b != 0 && next.sp-b >= f.sp:
		if next.bp, ok = w.stack.word(next.sp - b); !ok {
			return next, ByHeuristic, w.miss(next.sp - b)
		}
	}
	return next, ByHeuristic, stepped
}

// hasFrame says whether BP is the frame pointer of a frame that SP says ends
// further up, at cfa: a caller's BP would not point below that. So it is where
// callees take their arguments off the stack, as V8's do.
func (w *walk) hasFrame(f *frame, cfa uint64) bool {
	if f.bp < f.sp || f.bp+16 >= cfa || f.bp%8 != 0 {
		return false
	}
	pc, ok := w.stack.word(f.bp + 8)
	return ok && w.followsCall(pc)
}

// held is the value of a register, as instructions number it, in the frame in work: in the
// sampled one, and in its caller if the sampled function leaves the register alone.
func (w *walk) held(reg uint8) (v uint64, ok bool) {
	// In the order of instructions: AX CX DX BX SP BP SI DI R8 … R15.
	dwarf := [16]int{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15}
	switch len(w.ips) {
	case 1:
		return w.sample.Get(dwarf[reg&15])
	case 2:
		if c, addr := w.codeAt(w.ips[0]); c != nil && c.Keeps(addr, reg) {
			return w.sample.Get(dwarf[reg&15])
		}
	}
	return 0, false
}

// followsCall says whether the code before pc is a call, or pc is where a coroutine
// ends, to which its first function returns.
func (w *walk) followsCall(pc uint64) bool {
	c, addr := w.codeAt(pc - 1)
	if c == nil {
		return w.generatedCall(pc)
	}
	return c.FollowsCall(addr+1) || c.IsContextEnd(addr+1) || c.IsRestorer(addr+1)
}

// isNewThread says whether f is a sampled thread to which the system call that
// made it has returned zero, and nothing has happened since. Its stack is
// empty, or holds the argument of what it is about to call.
func (w *walk) isNewThread(f *frame) bool {
	if ax, known := w.regs.regs.Get(rule.AX); len(w.ips) != 1 || !known || ax != 0 {
		return false
	}
	c, addr := w.codeAt(f.pc)
	return c != nil && c.FollowsClone(addr)
}

// codeAt gives the code of the image in which pc lies, and its address there.
// It is nil where there is no such code.
func (w *walk) codeAt(pc uint64) (*asm.Code, uint64) {
	m := w.space.Find(pc)
	if m == nil {
		return nil, 0
	}
	im := w.images.Lookup(w.space.PID, m)
	if im == nil {
		return nil, 0
	}
	return im.CodeAt(m, pc)
}

// sigcontext lists the DWARF numbers of the registers that a signal frame
// holds, in its order: R8 to R15, DI SI BP BX DX AX CX SP IP
// (arch/x86/include/uapi/asm/sigcontext.h, struct sigcontext_64), 40 bytes
// above the SP that the handler leaves.
var sigcontext = [...]int{8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16}

// signal makes the frame that a signal interrupted a checkpoint: all its
// registers are in the signal frame at sp.
func (c *checkpoint) signal(frame int, sp uint64, stack *Stack) {
	var regs Regs
	for i, n := range sigcontext {
		if v, ok := stack.word(sp + 40 + 8*uint64(i)); ok {
			regs.set(n, v)
		}
	}
	*c = checkpoint{frame: frame, exact: true, regs: regs}
}
