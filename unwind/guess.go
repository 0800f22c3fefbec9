package unwind

import (
	"unspool/unwind/asm"
	"unspool/unwind/jit"
	"unspool/unwind/module"
	"unspool/unwind/rule"
)

// guess finds the caller of a frame by a rule that was found by reading the code. The caller is credible if
// its return address follows a call that can lead to f. Otherwise the frame pointer is tried.
func (w *walk) guess(p *place, f *frame, r rule.Rule) (next frame, source Source, end Reason) {
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
			return w.framePointer(p, f)
		}
		next.sp = held + plus
	}
	if next.sp <= f.sp || r.Kind() == rule.GuessSP && w.hasFrame(f, next.sp) {
		return w.framePointer(p, f)
	}
	pc, ok := w.stack.word(next.sp - 8)
	switch {
	case ok && w.followsCall(pc) && (r != jit.Thunk || p.jit == nil || w.mayLeave(pc)) &&
		!w.contradicts(p, f.lookup(), pc, false):
	case w.isNewThread(f):
		return next, ByHeuristic, Root
	case !ok && r.Kind() == rule.GuessSP:
		return next, ByHeuristic, w.miss(next.sp - 8)
	case !ok && w.miss(next.sp-8) == DumpTooShort:
		at := next.sp - 8
		if next, source, end = w.framePointer(p, f); end == NoCFI {
			end = w.miss(at)
		}
		return next, source, end
	default:
		return w.framePointer(p, f)
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

// hasFrame reports whether BP is the frame pointer of this frame, although the rule by SP says that the frame
// ends above it, at cfa. A caller's BP would not point below cfa. The rule is wrong like this where callees
// pop their arguments, as in V8.
func (w *walk) hasFrame(f *frame, cfa uint64) bool {
	if f.bp < f.sp || f.bp+16 >= cfa || f.bp%8 != 0 {
		return false
	}
	pc, ok := w.stack.word(f.bp + 8)
	return ok && w.followsCall(pc)
}

// numbers are the DWARF numbers of the registers as instructions number them: AX CX DX BX SP BP SI DI R8 …
// R15.
var numbers = [16]int{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15}

// held is the value of a register, by its number in instructions, in the last frame of the walk. It is known
// in the sampled frame, and in its caller if the sampled function does not change the register.
func (w *walk) held(reg uint8) (v uint64, ok bool) {
	switch len(w.ips) {
	case 1:
		return w.sample.Get(numbers[reg&15])
	case 2:
		c, addr := w.codeAt(w.ips[0])
		if c == nil {
			break
		}
		began, ok := w.modules.Begin()
		if !ok {
			break
		}
		defer w.modules.End(began)
		if c.Keeps(addr, reg) {
			return w.sample.Get(numbers[reg&15])
		}
	}
	return 0, false
}

// followsCall reports whether the code before pc is a call, or pc is where a coroutine
// ends, to which its first function returns.
func (w *walk) followsCall(pc uint64) bool {
	call, known := w.callBefore(pc)
	return call && known
}

// callBefore is followsCall if the code is known. It is not known if neither the file nor the process can be
// read, as for generated code in a recording.
func (w *walk) callBefore(pc uint64) (call, known bool) {
	var p place
	return w.callAt(&p, pc)
}

// callAt is callBefore, and moves p to the call.
func (w *walk) callAt(p *place, pc uint64) (call, known bool) {
	switch {
	case !w.locate(p, pc-1):
		return false, true
	case p.jit != nil:
		return w.jit.IsCall(w.generatedCode(), w.space, p.m, pc)
	}
	if !p.fast && !p.module.State().Read {
		return false, false
	}
	return p.module.IsReturn(p.m, pc), true
}

// credible reports whether pc can be the return address of f, which lies at p: a frame pointer led to pc and to
// bp, the caller's frame pointer. It has to follow a call that can lead to f. If the code cannot be read, it
// has to be in a mapping. If both frames are generated code, whose interpreters push addresses themselves, it
// is enough that the chain of frame pointers goes on.
func (w *walk) credible(p *place, f *frame, pc, bp uint64) bool {
	var to place
	call, known := w.callAt(&to, pc)
	switch {
	case call:
		return p.jit == nil || w.mayLeaveAt(&to, pc)
	case !known:
		return true // callAt has found its mapping
	case p.jit == nil || bp <= f.bp || bp%8 != 0:
		return false
	}
	next, ok := w.stack.word(bp + 8)
	return to.jit != nil && ok && w.space.Find(next-1) != nil
}

// mayLeave reports whether the call before pc can have led to generated code.
func (w *walk) mayLeave(pc uint64) bool {
	var p place
	return !w.locate(&p, pc-1) || w.mayLeaveAt(&p, pc)
}

// mayLeaveAt is mayLeave for a call that lies at p: the call is indirect, or the called function jumps to where a
// register or a pointer says, itself or by way of tail calls, other than by a procedure linkage table. It is true if
// that is not known. The file alone decides, whatever the process has mapped at the called function's address: the
// answer is kept for all processes that map the file.
func (w *walk) mayLeaveAt(p *place, pc uint64) bool {
	if p.module == nil || p.jit != nil {
		return true
	}
	off := pc - 1 - p.bias
	if a := p.rules.Leaving.Get(off); a != rule.Unasked {
		return a == rule.Yes
	}
	began, ok := w.modules.Begin()
	if !ok {
		return true
	}
	defer w.modules.End(began)
	c, addr := p.module.CodeAt(p.m, pc-1)
	if c == nil {
		return true
	}
	leaves := true
	if entry, direct := c.DirectCall(addr + 1); direct {
		leaves = !p.module.LeadsElsewhere(entry, module.NoFile)
	}
	if !p.module.State().Late {
		p.rules.Leaving.Put(off, leaves)
	}
	return leaves
}

// isNewThread reports whether f is the sampled frame of a new thread: the system call that created it has just
// returned zero. Its stack is empty, or holds the argument of the function that it is about to call.
func (w *walk) isNewThread(f *frame) bool {
	if !w.returnsZero() {
		return false
	}
	c, addr := w.codeAt(f.pc)
	return c != nil && c.FollowsClone(addr)
}

// returnsZero reports whether what was sampled is in the last frame of the walk, and has 0 in the register for
// results.
func (w *walk) returnsZero() bool {
	ax, known := w.sample.Get(rule.AX)
	return len(w.ips) == 1 && known && ax == 0
}

// codeAt gives the code of the image in which pc lies, and its address there.
// It is nil where there is no such code.
func (w *walk) codeAt(pc uint64) (*asm.Code, uint64) {
	var p place
	if !w.locate(&p, pc) || p.module == nil {
		return nil, 0
	}
	return p.module.CodeAt(p.m, pc)
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
