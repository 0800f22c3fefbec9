package unwind

import (
	"unspool/dwarfcfi"
	"unspool/unwind/asm"
	"unspool/unwind/image"
	"unspool/unwind/jit"
	"unspool/unwind/rule"
)

// hosted finds the caller of a frame whose code runs on the frame of the
// interpreter that jumped to it, as LuaJIT's traces do: they make room for
// themselves below that frame, and say nowhere how much.
//
// Such an interpreter is assembly. Its CFI gives one frame to all of it, from
// the first instruction on, where every other function still has CFA = SP + 8.
// So the return address of a call of such a function is looked for on the
// stack. With it the interpreter's frame is known, and the CFI says the rest.
func (w *walk) hosted(f *frame) (next frame, source Source, end Reason) {
	const most = 256 // words: the spill slots of a trace, and a frame
	if w.Strict || f.sp%8 != 0 {
		return next, ByHeuristic, NoCFI
	}
	for i := range uint64(most) {
		at := f.sp + 8*i
		pc, ok := w.stack.word(at)
		if !ok {
			break
		}
		entry, cfa, ok := w.interpreterCalled(pc)
		if !ok || at+8-cfa < f.sp || cfa > at+8 {
			continue
		}
		host := frame{pc: entry, sp: at + 8 - cfa, bp: f.bp, exact: true}
		var p place
		if !w.locate(&p, entry) {
			continue
		}
		moves := w.moves
		w.moves = stackMoves{}
		next, _, end = w.step(&p, &host)
		w.moves = moves
		if end == stepped && next.pc == pc {
			return next, ByHeuristic, stepped
		}
	}
	return frame{}, ByHeuristic, NoCFI
}

// subroutine finds the caller of a frame in such an interpreter, in the stead
// of next, which its CFI gives and which is in no mapping. The
// CFI does not tell of calls from one part of the interpreter to another, whose
// return address is where SP points, nor of what else the code pushes when it
// comes from a trace.
func (w *walk) subroutine(p *place, f *frame, next frame) (frame, Source) {
	if w.Strict || !p.isInterpreter(f.pc) {
		return next, ByCFI
	}
	if pc, ok := w.stack.word(f.sp); ok && f.exact && w.followsCall(pc) {
		return frame{pc: pc, sp: f.sp + 8, bp: f.bp}, ByHeuristic
	}
	if host, source, end := w.hosted(f); end == stepped {
		return host, source
	}
	return next, ByCFI
}

// isInterpreter says whether pc, which lies at p, is in a piece of code that
// its CFI gives one frame, from the first instruction on.
func (p *place) isInterpreter(pc uint64) bool {
	if p.image == nil {
		return false
	}
	addr, ok := p.image.Address(pc - p.m.Start + p.m.Offset)
	if !ok {
		return false
	}
	var row dwarfcfi.Row
	return p.image.EntryRow(addr, &row) == nil && hasFrameAtEntry(&row)
}

// hasFrameAtEntry says whether a row, of a function's first instruction, has
// a frame that no function can have made there.
func hasFrameAtEntry(row *dwarfcfi.Row) bool {
	cfa := &row.CFA
	return cfa.Kind == dwarfcfi.CFARegister && cfa.Reg == rule.SP && cfa.Offset > 8 && cfa.Offset%8 == 0
}

// interpreterCalled says whether pc follows a call of a function whose frame
// is there at its first instruction, and gives the distance from SP to the CFA
// there.
func (w *walk) interpreterCalled(pc uint64) (entry, cfa uint64, ok bool) {
	m := w.space.Find(pc - 1)
	if m == nil || pc < m.Start+asm.CallSize {
		return 0, 0, false
	}
	im := w.images.Lookup(w.space.PID, m)
	if im == nil {
		return 0, 0, false
	}
	code, addr := im.CodeAt(m, pc-1)
	if code == nil {
		return 0, 0, false
	}
	target, ok := code.DirectCall(addr + 1)
	if !ok {
		return 0, 0, false
	}
	entry = target - addr + pc - 1
	em := w.space.Find(entry)
	if em == nil || em.File != m.File {
		return 0, 0, false
	}
	var row dwarfcfi.Row
	if im.Row(em, entry, &row) != nil {
		return 0, 0, false
	}
	return entry, uint64(row.CFA.Offset), hasFrameAtEntry(&row)
}

// generatedFrom says where what is known of generated code comes from, as that of the images.
func generatedFrom(images *image.Store) jit.Source {
	switch {
	case images.Offline():
		return jit.Recordings
	case !images.Asks():
		return jit.DumpsOnly
	}
	return jit.Live
}

// generatedRule gives the rule for the frame f in generated code.
func (w *walk) generatedRule(p *place, f *frame) rule.Rule {
	return w.jit.Rule(p.jit, p.m, f.pc, f.lookup(), w.Strict)
}

// generatedCall says whether the code before pc, in generated code, is a call.
func (w *walk) generatedCall(pc uint64) bool {
	var p place
	return w.locate(&p, pc-1) && p.jit != nil && w.jit.IsCall(p.jit, w.space, p.m, pc)
}
