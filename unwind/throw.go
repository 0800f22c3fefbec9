package unwind

import (
	"unspool/dwarfcfi"
	"unspool/unwind/rule"
)

// This file is about functions that leave with __builtin_eh_return, such as libgcc's _Unwind_RaiseException
// and _Unwind_Resume. When such a function has found the frame that handles the exception, it writes that
// frame's registers over its own saved ones, the return address last (uw_install_context_1 in gcc's
// libgcc/unwind-dw2.c). From then on its CFI gives a caller with the return address and BP of the handling
// frame, and the SP of whoever threw. Then it loads these registers and jumps to the landing pad.
//
// It is for C++ programs that throw often. Without it, 0.7 % of the stacks of one that does nothing else lacked
// functions and passed for complete, and 1 % ended here (cmd/unspool/testdata/throws.cc).

// throwing finds the caller of f, which lies at p, a frame of such a function behind its prologue.
func (w *walk) throwing(p *place, f *frame, r rule.Rule) (next frame, source Source, end Reason) {
	up, below := r.FromBP()
	if up == 0 {
		return w.throwerWithoutBP(p, f)
	}
	if next.sp = f.bp + up; next.sp <= f.sp {
		return w.despiteCFI(p, f, w.below(next.sp))
	}
	pc, ok := w.stack.word(next.sp - 8)
	if !ok {
		return w.despiteCFI(p, f, w.miss(next.sp-8))
	}
	slot := next.sp - below
	bp, ok := w.stack.word(slot)
	if !ok {
		return next, ByCFI, w.miss(slot)
	}
	next.pc, next.bp = pc, bp
	if w.Strict || !f.exact && !w.frames[len(w.frames)-2].exact {
		return next, ByCFI, stepped // what writes them over calls nothing
	}
	switch h, how := w.handler(f, &next, slot); how {
	case whole:
		return frame{pc: pc, sp: h, bp: bp}, ByHeuristic, stepped
	case beyondCopy:
		return next, ByCFI, w.miss(h - 8)
	case begunBelow:
		next.bp = h - 16
		w.regs.restart(len(w.ips), &next)
		return next, ByHeuristic, stepped
	case begun:
		next.bp, w.moves.lostBP = 0, true // what the caller had in the registers is lost
		w.regs.restart(len(w.ips), &next)
		w.regs.regs.Known &^= 1 << rule.BP
	}
	return next, ByCFI, stepped
}

// throwerWithoutBP finds the caller of f, which lies at p, if the CFA of its function is not counted from BP.
func (w *walk) throwerWithoutBP(p *place, f *frame) (next frame, source Source, end Reason) {
	next, source, end = w.general(p, f, true)
	if end != stepped || source != ByCFI || next.exact || !f.exact || !w.isEHReturned(p, f.pc) {
		return next, source, end
	}
	// No call is before a landing pad, and another function may be. Names are looked up one byte before a
	// caller's PC.
	next.pc++
	next.exact = true
	w.regs.exact = true
	w.regs.regs.set(rule.IP, next.pc)
	return next, source, end
}

// isEHReturned is [rule.IsEHReturned] for the row of pc, which lies at p.
func (w *walk) isEHReturned(p *place, pc uint64) bool {
	began, ok := w.modules.Begin()
	if !ok {
		return false
	}
	defer w.modules.End(began)
	var row dwarfcfi.Row
	return p.row(pc, &row) == nil && rule.IsEHReturned(&row)
}

// An overwrite says which of its saved registers a function has written the handling frame's over.
type overwrite uint8

const (
	untouched  overwrite = iota
	begun                // BP
	begunBelow           // BP, and the handling frame is that of the caller's caller
	whole                // BP and the return address
	beyondCopy           // perhaps these, with those of a frame that is not in the copy
)

// Offsets in libgcc's struct _Unwind_Context, which begins with pointers to where the 17 registers with DWARF
// numbers are saved, and to that of one more.
const (
	contextCFA      = 18 * 8
	contextLanding  = contextCFA + 8
	contextFunction = contextCFA + 40 // behind the LSDA and the bases of text and data
	contextSize     = contextFunction + 8
)

// handler looks in the frame f for the context of a frame farther up than next, to which the CFI leads: it
// has that frame's CFA, which is the SP in it, and the beginning of its function. There, the return address
// of the frame below is the one that next has, or the landing pad has been written over it. slot is where BP
// was saved.
func (w *walk) handler(f, next *frame, slot uint64) (cfa uint64, how overwrite) {
	const (
		most  = 1 << 9 // words
		tries = 16
	)
	if f.sp%8 != 0 {
		return 0, untouched
	}
	for i, tried := uint64(0), 0; i < most && tried < tries && f.sp+8*i+contextSize <= slot; i++ {
		at := f.sp + 8*i
		if cfa, _ = w.stack.word(at + contextCFA); cfa <= next.sp || cfa%8 != 0 {
			continue
		}
		start, _ := w.stack.word(at + contextFunction)
		var p place
		if start == 0 || !w.locate(&p, start) || p.module == nil || p.jit != nil {
			continue
		}
		tried++
		low, high, ok := p.function(start)
		if !ok || low != start {
			continue
		}
		if next.pc-1-low < high-low {
			below, ok := w.stack.word(cfa - 8)
			if !ok && w.stack.miss(cfa-8) == DumpTooShort {
				return cfa, beyondCopy
			}
			landing, _ := w.stack.word(at + contextLanding)
			// While it searches, the context may have the function of one frame and the return address of the next.
			if ok && (below == next.pc || below == landing && !w.followsCall(landing)) {
				return cfa, whole
			}
		}
		if w.hasBP(at, next.bp, slot) {
			how = begun
			if ra, _ := w.stack.word(cfa - 8); ra-1-low < high-low && w.isRightBelow(next, cfa) {
				return cfa, begunBelow
			}
		}
	}
	return 0, how
}

// isRightBelow reports whether next is the frame below one whose SP is cfa: that has called a function that made
// a frame there, which reaches to next's SP.
func (w *walk) isRightBelow(next *frame, cfa uint64) bool {
	base := cfa - 16
	saved, _ := w.stack.word(base)
	ra, ok := w.stack.word(cfa - 8)
	if !ok || saved != next.bp || base < next.sp {
		return false
	}
	c, addr := w.codeAt(ra - 1)
	if c == nil {
		return false
	}
	began, ok := w.modules.Begin()
	if !ok {
		return false
	}
	defer w.modules.End(began)
	start, ok := c.FrameCalled(addr + 1)
	return ok && c.FrameSize(start) == base-next.sp
}

// hasBP reports whether the context at an address has BP in another place than slot, with the value bp.
func (w *walk) hasBP(context, bp, slot uint64) bool {
	from, ok := w.stack.word(context + 8*rule.BP)
	if !ok || from == 0 || from == slot {
		return false // no frame between has changed BP
	}
	v, ok := w.stack.word(from)
	return ok && v == bp
}
