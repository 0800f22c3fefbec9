package unwind

import (
	"unspool/dwarfcfi"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// This file has the walk for architectures whose rows are not compiled to rules: 32-bit programs on a 64-bit
// kernel. It is a sibling of the one for x86-64 and ends for the same reasons. Such programs are rare, so it
// uses the general evaluator alone: every frame has all its registers, and the image keeps the CFI row of
// each PC.

// A fullFrame is a frame with all its registers. exact is as in frame.
type fullFrame struct {
	arch  *rule.Arch
	regs  Regs
	exact bool
}

func (f *fullFrame) pc() uint64 { return f.regs.Value[f.arch.IP] }
func (f *fullFrame) sp() uint64 { return f.regs.Value[f.arch.SP] }

func (f *fullFrame) lookup() uint64 {
	if f.exact {
		return f.pc()
	}
	return (f.pc() - 1) & f.arch.Mask
}

// UnwindByRows is [Unwinder.Unwind] for a sample of code of another
// architecture than x86-64, whose registers are regs.
func (u *Unwinder) UnwindByRows(arch *rule.Arch, space *vmas.Space, regs *Regs, stack *Stack) Result {
	f := fullFrame{arch: arch, regs: *regs, exact: true}
	w := u.begin(space, stack)
	w.push(&frame{pc: f.pc(), sp: f.sp(), exact: true}, BySample)

	var p place
	if !w.locate(&p, f.lookup()) {
		return w.end(Unmapped, nil)
	}
	for {
		pc := f.lookup()
		source, reason := w.stepByRow(&p, &f)
		if reason != stepped {
			return w.endOpen(w.moves.end(reason), p.m)
		}
		at, from := p.m, p
		if !w.locate(&p, f.lookup()) || p.data && !f.exact {
			if w.zero = f.pc() == 0 && source == ByCFI && !f.exact; w.beginsStack() {
				return w.end(Root, at)
			}
			if source == ByCFI && w.leavesEntry(&from, pc, &f) {
				return w.end(Root, at)
			}
			return w.end(Unmapped, at)
		}
		if len(w.ips) >= w.MaxFrames {
			return w.end(DepthLimit, at)
		}
		w.push(&frame{pc: f.pc(), sp: f.sp(), exact: f.exact}, source)
	}
}

// leavesEntry is isEntered for a frame at pc, which lies at from, given the caller that its CFI leads to.
func (w *walk) leavesEntry(from *place, pc uint64, caller *fullFrame) bool {
	return from.module != nil && !caller.exact && from.isEntry(pc) &&
		w.isProcessStart(caller.arch, caller.sp()-uint64(caller.arch.WordSize))
}

// stepByRow turns f, which lies at p, into its caller.
func (w *walk) stepByRow(p *place, f *fullFrame) (Source, Reason) {
	kind, row := rule.Uncovered, (*dwarfcfi.Row)(nil)
	if p.module != nil {
		kind, row = p.module.KeptRow(f.arch, p.m, f.lookup())
	}
	switch kind {
	case rule.General:
	case rule.EndOfStack:
		return ByCFI, Root
	case rule.EntryCode:
		if w.isProcessStart(f.arch, f.sp()) {
			return ByCFI, Root
		}
		return w.fullFramePointer(p, f)
	case rule.Uncovered:
		if !f.exact && p.module != nil && p.module.EndsContext(p.m, f.pc()) {
			return ByCFI, Root
		}
		if caller, ok := w.straightOut(p, f); ok {
			*f = caller
			return ByHeuristic, stepped
		}
		return w.fullFramePointer(p, f)
	case rule.Unreadable:
		return ByCFI, NoImage
	default:
		return ByCFI, BadCFI
	}

	from, was := f.sp(), *f
	e := evaluation{arch: f.arch, row: row, old: f.regs, stack: w.stack, pc: f.lookup(), missing: stepped,
		left: &w.expressions}
	if !f.exact { // it has called
		e.old.Known &^= f.arch.Scratch
	}
	end := w.apply(&e, &f.regs)
	if end != stepped {
		if e.missing != stepped && w.moves.switched {
			return ByCFI, DumpTooShort
		}
		return ByCFI, e.why() // memory that could not be read comes before a row without a return address
	}
	f.exact = row.Signal
	if row.Signal {
		return ByCFI, w.interrupted(from, f.sp())
	}
	if was.exact && !w.followsCall(f.pc()) {
		if caller, ok := w.pushedMore(p, &was, row); ok {
			*f = caller
			return ByHeuristic, stepped
		}
	}
	if f.sp() <= from {
		return ByCFI, BadCFI
	}
	return ByCFI, stepped
}

// apply turns regs into those of the caller. As the row is known, the process is charged only for its
// expressions.
func (w *walk) apply(e *evaluation, regs *Regs) Reason {
	if !e.row.HasExpressions() {
		return e.caller(regs)
	}
	began, ok := w.modules.Begin()
	if !ok {
		return NoImage
	}
	defer w.modules.End(began)
	return e.caller(regs)
}

// fullFramePointer turns f into its caller through the saved frame pointer, as
// framePointer does.
//
// The functions of the 32-bit vDSO have a frame pointer and no CFI
// (arch/x86/entry/vdso), while its callers rarely have one: the saved value
// need not continue a chain if there is CFI for the return address.
func (w *walk) fullFramePointer(p *place, f *fullFrame) (Source, Reason) {
	arch, word := f.arch, uint64(f.arch.WordSize)
	at, known := f.regs.Get(arch.BP)
	if w.Strict || !known || at < f.sp() || at%word != 0 {
		return ByFramePointer, NoCFI
	}
	bp, ok1 := w.stack.uint(at, arch.WordSize)
	pc, ok2 := w.stack.uint(at+word, arch.WordSize)
	if !ok1 || !ok2 {
		if w.stack.miss(at+word) == DumpTooShort {
			return ByFramePointer, DumpTooShort
		}
		return ByFramePointer, NoCFI
	}
	caller := fullFrame{arch: arch} // what the frame did to the other registers is unknown
	caller.regs.set(arch.IP, pc)
	caller.regs.set(arch.SP, (at+2*word)&arch.Mask)
	caller.regs.set(arch.BP, bp)
	var to place
	if !w.locate(&to, caller.lookup()) {
		return ByFramePointer, NoCFI
	}
	if call, known := w.callBefore(pc); known && !call {
		return ByFramePointer, NoCFI
	}
	if bp != 0 && bp <= at {
		if p.m.File.Kind != vmas.VDSO || to.module == nil {
			return ByFramePointer, NoCFI
		}
		kind, _ := to.module.KeptRow(arch, to.m, caller.lookup())
		if kind != rule.General && kind != rule.EndOfStack {
			return ByFramePointer, NoCFI
		}
	}
	*f = caller
	return ByFramePointer, stepped
}
