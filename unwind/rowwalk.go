package unwind

import (
	"unspool/dwarfcfi"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// The walk of architectures whose rows are not compiled to rules, as 32-bit
// programs on a 64-bit kernel. It is a sibling of the one for x86-64 and ends
// for the same reasons. Such programs are rare, so there is the general
// evaluator alone: every frame has all its registers, and a PC's row is kept
// with the image as the CFI gave it.

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
	w.push(&frame{pc: f.pc(), sp: f.sp()}, BySample)

	var p place
	if !w.locate(&p, f.lookup()) {
		return w.end(Unmapped, nil)
	}
	for {
		live := w.moves.live
		source, reason := w.stepByRow(&p, &f)
		if reason != stepped {
			return w.end(reason, p.m)
		}
		if live {
			source = ByLive
		}
		at := p.m
		if !w.locate(&p, f.lookup()) {
			return w.end(Unmapped, at)
		}
		if len(w.ips) >= w.MaxFrames {
			return w.end(DepthLimit, at)
		}
		w.push(&frame{pc: f.pc(), sp: f.sp()}, source)
	}
}

// stepByRow turns f, which lies at p, into its caller.
func (w *walk) stepByRow(p *place, f *fullFrame) (Source, Reason) {
	kind, row := rule.Uncovered, (*dwarfcfi.Row)(nil)
	if p.image != nil {
		kind, row = p.image.KeptRow(f.arch, p.m, f.lookup())
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
		if !f.exact && p.image != nil && p.image.EndsContext(p.m, f.pc()) {
			return ByCFI, Root
		}
		return w.fullFramePointer(p, f)
	case rule.Unreadable:
		return ByCFI, NoImage
	default:
		return ByCFI, BadCFI
	}

	from := f.sp()
	e := evaluation{arch: f.arch, row: row, old: f.regs, stack: w.stack, pc: f.lookup(), missing: stepped}
	if e.caller(&f.regs) != stepped {
		if e.missing != stepped && w.moves.switched {
			return ByCFI, DumpTooShort
		}
		return ByCFI, e.why() // memory that was not read comes first, as for a row without a return address
	}
	f.exact = row.Signal
	if row.Signal {
		return ByCFI, w.interrupted(from, f.sp())
	}
	if f.sp() <= from {
		return ByCFI, BadCFI
	}
	return ByCFI, stepped
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
	if bp != 0 && bp <= at {
		if p.m.File.Kind != vmas.VDSO || to.image == nil {
			return ByFramePointer, NoCFI
		}
		kind, _ := to.image.KeptRow(arch, to.m, caller.lookup())
		if kind != rule.General && kind != rule.EndOfStack {
			return ByFramePointer, NoCFI
		}
	}
	*f = caller
	return ByFramePointer, stepped
}
