package unwind

import (
	"bytes"
	"errors"

	"unspool/dwarfcfi"
	"unspool/unwind/asm"
	"unspool/unwind/rule"
)

// A checkpoint is a frame of the walk whose registers are all known as far as the CFI tells them. The fast
// rules follow three registers only; when a row needs another, the walk is repeated from the last checkpoint
// with all of them, so the general evaluator sees each frame once at most.
type checkpoint struct {
	frame int // index into the walk's IPs
	exact bool
	regs  Regs
}

// general finds the caller of f by evaluating its CFI row. With full, every
// register is at hand; otherwise the row is known to need PC, SP and BP only.
func (w *walk) general(p *place, f *frame, full bool) (next frame, source Source, end Reason) {
	var regs Regs
	if full {
		if end := w.replay(); end != stepped {
			return w.despiteCFI(p, f, end)
		}
		regs = w.regs.regs
	} else {
		regs.set(rule.IP, f.pc)
		regs.set(rule.SP, f.sp)
		regs.set(rule.BP, f.bp)
	}
	exact, end := w.evaluate(p, f.lookup(), &regs)
	if end != stepped {
		switch {
		case (end == BadCFI || end == NotCopied || end == UnknownRegister) && w.moves.switched:
			return next, ByCFI, DumpTooShort
		case exact:
			return next, ByCFI, end
		}
		return w.despiteCFI(p, f, end)
	}
	next = frame{pc: regs.Value[rule.IP], sp: regs.Value[rule.SP], bp: regs.Value[rule.BP], exact: exact}
	if exact {
		end = w.interrupted(f.sp, next.sp)
	} else if next.sp < f.sp || next.sp == f.sp && len(w.ips) > 1 {
		// In a leaf the return address may be in a register, and nothing on the stack.
		return w.despiteCFI(p, f, w.below(next.sp))
	}
	if full && end == stepped {
		w.regs = checkpoint{frame: len(w.ips), exact: exact, regs: regs}
	}
	return next, ByCFI, end
}

// restart makes the checkpoint a frame that was not found by CFI: what its
// callee did to the other registers is unknown.
func (c *checkpoint) restart(n int, f *frame) {
	*c = checkpoint{frame: n, exact: f.exact}
	c.regs.set(rule.IP, f.pc)
	c.regs.set(rule.SP, f.sp)
	c.regs.set(rule.BP, f.bp)
}

// replay brings the checkpoint to the last frame of the walk. The reason is why that cannot be done.
func (w *walk) replay() Reason {
	c := &w.regs
	var p place
	for c.frame < len(w.ips)-1 {
		pc := c.regs.Value[rule.IP]
		if pc != w.ips[c.frame] {
			return BadCFI
		}
		f := frame{pc: pc, sp: c.regs.Value[rule.SP], bp: c.regs.Value[rule.BP], exact: c.exact}
		if !w.locate(&p, f.lookup()) {
			return BadCFI
		}
		exact, end := w.evaluate(&p, f.lookup(), &c.regs)
		switch end {
		case stepped:
		case Root, NoCFI:
			return BadCFI // a fast rule has found a caller
		default:
			return end
		}
		c.exact = exact
		c.frame++
	}
	if c.frame != len(w.ips)-1 || c.regs.Value[rule.IP] != w.ips[c.frame] {
		return BadCFI
	}
	return stepped
}

// evaluate turns the registers of the frame at p into those of its caller,
// by the CFI row for lookup. exact means that the caller was interrupted
// rather than that it called, also where it is not found.
func (w *walk) evaluate(p *place, lookup uint64, regs *Regs) (exact bool, end Reason) {
	began, ok := w.modules.Begin()
	if !ok {
		return false, NoImage
	}
	defer w.modules.End(began)
	var row dwarfcfi.Row
	if err := p.row(lookup, &row); err != nil {
		if errors.Is(err, dwarfcfi.ErrNoFDE) {
			return false, NoCFI
		}
		return false, BadCFI
	}
	ra := int(row.RA)
	if ra >= rule.AMD64.NumRegs {
		return false, BadCFI
	}
	if row.Regs[ra].Kind == dwarfcfi.Undefined {
		return false, Root
	}
	if regs.Value[rule.IP] == lookup {
		p.dropRestored(lookup, &row)
	}
	e := evaluation{arch: rule.AMD64, row: &row, old: *regs, stack: w.stack, pc: lookup, missing: stepped,
		left: &w.expressions}
	if regs.Value[rule.IP] != lookup { // it has called
		e.old.Known &^= rule.AMD64.Scratch
	}
	next := *regs
	end = e.caller(&next)
	if end == UnknownRegister && e.old.Known != regs.Known {
		e.old.Known |= regs.Known & w.keptByLeaf(p, lookup)
		e.unknown, next = false, *regs
		end = e.caller(&next)
	}
	if end != stepped {
		return row.Signal, end
	}
	// The frames of the fast rules cannot say that BP is not known.
	if !next.has(rule.BP) && row.Regs[rule.BP].Kind != dwarfcfi.Undefined {
		return row.Signal, e.why()
	}
	*regs = next
	return row.Signal, stepped
}

// keptByLeaf gives those of the scratch registers that still have their values after the call before
// lookup's next address, which lies at p. Assembly such as OpenSSL's has its CFA in one of them, and calls
// functions of its own that leave it alone. The called function has to be the sampled one.
func (w *walk) keptByLeaf(p *place, lookup uint64) (kept uint32) {
	var leaf place
	if len(w.ips) < 2 || lookup+1 != w.ips[1] || p.module == nil || !w.locate(&leaf, w.ips[0]) ||
		leaf.module != p.module {
		return 0
	}
	low, high, ok := leaf.function(w.ips[0])
	code, addr := p.module.CodeAt(p.m, lookup)
	if !ok || code == nil {
		return 0
	}
	start := low - lookup + addr
	if target, ok := code.DirectCall(addr + 1); !ok || target != start {
		return 0
	}
	changed := code.Writes(start, start+high-low)
	for reg, n := range numbers {
		if changed>>reg&1 == 0 {
			kept |= 1 << n
		}
	}
	return kept & rule.AMD64.Scratch
}

// dropRestored removes from a row the rules of registers that have the caller's values again: compilers leave
// these rules in place to the end of the epilogue. An expression that computes the slot of BP from BP itself,
// as in functions that align their stack, gives another address as soon as BP is restored. The code from pc,
// the function's next instruction, shows which registers are still to be restored: none where nothing but the
// return address is left on the stack, as at a tail call.
func (p *place) dropRestored(pc uint64, row *dwarfcfi.Row) {
	if p.module == nil || row.Signal || row.Regs[rule.BP].Kind != dwarfcfi.Expression {
		return
	}
	var way asm.WayOut
	if rule.CFAAboveSP(row) != 8 {
		code, addr := p.module.CodeAt(p.m, pc)
		if code == nil {
			return
		}
		var ok bool
		if way, ok = code.UntilReturn(addr); !ok {
			return
		}
	}
	for reg, n := range numbers {
		if way.Writes>>reg&1 == 0 && row.Regs[n].Kind == dwarfcfi.Expression {
			row.Regs[n] = dwarfcfi.RegRule{Kind: dwarfcfi.SameValue}
		}
	}
}

// An evaluation applies the rules of one row to the registers of a frame, on
// any architecture. It remembers why memory could not be read, and that a register was not known.
type evaluation struct {
	arch    *rule.Arch
	row     *dwarfcfi.Row // whose return address column is a register of arch
	old     Regs          // a copy, so that an evaluation needs no allocation
	stack   *Stack
	pc      uint64
	missing Reason
	unknown bool
	left    *int // what expressions may still cost in this walk
}

// maxExpressions bounds what the expressions of one walk may cost, in steps. An expression costs
// perEvaluation and one step for each byte, loopSteps if it may have a loop. PLT stubs and OpenSSL's
// assembly, which few frames of a stack are, need about a hundred steps.
const (
	maxExpressions = 64 << 10
	perEvaluation  = 64
	loopSteps      = 10
)

// steps is what an expression may cost.
func steps(expr []byte) int {
	if bytes.ContainsAny(expr, "\x28\x2f") { // DW_OP_bra, DW_OP_skip, or an operand
		return perEvaluation + loopSteps*len(expr)
	}
	return perEvaluation + len(expr)
}

func (e *evaluation) why() Reason {
	switch {
	case e.missing != stepped:
		return e.missing
	case e.unknown:
		return UnknownRegister
	}
	return BadCFI
}

// caller turns regs, which are those of the frame, into those of its caller.
// Without its PC and SP there is no caller, and the reason is returned.
func (e *evaluation) caller(regs *Regs) Reason {
	cfa, ok := e.cfa()
	if !ok {
		return e.why()
	}
	mask, known := e.arch.Mask, regs.Known
	for n := range e.row.Regs[:e.arch.NumRegs] {
		how := &e.row.Regs[n]
		var v uint64
		switch how.Kind {
		case dwarfcfi.Unspecified, dwarfcfi.SameValue:
			continue
		case dwarfcfi.Offset: // most are
			v, ok = e.saved(n, cfa+uint64(how.Offset))
		default:
			v, ok = e.register(n, how, cfa)
		}
		if known &^= 1 << n; ok {
			known |= 1 << n
			regs.Value[n] = v & mask
		}
	}
	regs.Known = known
	ra, sp := int(e.row.RA), e.arch.SP
	if e.row.Regs[ra].Kind == dwarfcfi.Unspecified {
		return BadCFI
	}
	if e.row.Regs[sp].Kind == dwarfcfi.Unspecified {
		regs.set(sp, cfa)
	}
	if !regs.has(ra) || !regs.has(sp) {
		return e.why()
	}
	regs.set(e.arch.IP, regs.Value[ra])
	return stepped
}

func (e *evaluation) cfa() (uint64, bool) {
	how := &e.row.CFA
	switch how.Kind {
	case dwarfcfi.CFARegister:
		v, ok := e.reg(int(how.Reg))
		return (v + uint64(how.Offset)) & e.arch.Mask, ok
	case dwarfcfi.CFAExpression:
		return e.eval(e.row.CFAExpr())
	}
	return 0, false
}

// register is the caller's value of register n, whose rule is another than its place on the stack.
func (e *evaluation) register(n int, how *dwarfcfi.RegRule, cfa uint64) (uint64, bool) {
	switch how.Kind {
	case dwarfcfi.ValOffset:
		return cfa + uint64(how.Offset), true
	case dwarfcfi.Register:
		return e.reg(int(how.Reg))
	case dwarfcfi.Expression:
		addr, ok := e.eval(e.row.Expr(*how), cfa)
		if !ok {
			return 0, false
		}
		return e.saved(n, addr)
	case dwarfcfi.ValExpression:
		return e.eval(e.row.Expr(*how), cfa)
	}
	return 0, false
}

// saved reads register n from where it was saved. A slot below SP was
// popped: compilers leave the rule in place to the end of the epilogue, while
// the register has its value back.
func (e *evaluation) saved(n int, addr uint64) (uint64, bool) {
	addr &= e.arch.Mask
	if sp, ok := e.old.Get(e.arch.SP); ok && addr < sp && n != int(e.row.RA) {
		return e.old.Get(n)
	}
	return e.read(addr)
}

// reg is a register of the frame. The PC is the one that was looked up, as
// the row holds there.
func (e *evaluation) reg(n int) (uint64, bool) {
	switch {
	case n == e.arch.IP:
		return e.pc, true
	case n >= e.arch.NumRegs || !e.old.has(n):
		e.unknown = true
		return 0, false
	}
	return e.old.Get(n)
}

// read reads the word at addr.
func (e *evaluation) read(addr uint64) (uint64, bool) {
	v, ok := e.stack.uint(addr, e.arch.WordSize)
	if !ok {
		e.missing = e.stack.miss(addr)
	}
	return v, ok
}

// eval evaluates an expression on a stack that holds the initial values. The
// two that compilers and the vDSO use, register + offset and what lies there
// (realigned stacks and signal frames), need no evaluator and no memory.
func (e *evaluation) eval(expr []byte, initial ...uint64) (uint64, bool) {
	if reg, off, deref, ok := rule.RegisterExpr(expr); ok && int(reg) < e.arch.NumRegs {
		v, known := e.reg(int(reg))
		v = (v + uint64(off)) & e.arch.Mask
		if !known || !deref {
			return v, known
		}
		return e.read(v)
	}
	return e.evalAny(expr, initial)
}

// evalAny is eval for any expression. It works on copies, so that e itself is never allocated.
func (e *evaluation) evalAny(expr []byte, initial []uint64) (uint64, bool) {
	if *e.left -= steps(expr); *e.left < 0 {
		return 0, false
	}
	regs := e.old
	regs.set(e.arch.IP, e.pc)
	stack, missing := e.stack, stepped
	v, err := dwarfcfi.Eval(expr, &dwarfcfi.Values{
		Regs:  regs.Value[:e.arch.NumRegs],
		Known: uint64(regs.Known),
		Read: func(addr uint64, size int) (uint64, bool) {
			v, ok := stack.uint(addr, size)
			if !ok {
				missing = stack.miss(addr)
			}
			return v, ok
		},
		PtrSize: e.arch.WordSize,
	}, append([]uint64(nil), initial...)...)
	if missing != stepped {
		e.missing = missing
	}
	e.unknown = e.unknown || errors.Is(err, dwarfcfi.ErrUnknownRegister)
	return v, err == nil
}
