package unwind

import (
	"errors"
	"runtime/debug"

	"unspool/dwarfcfi"
	"unspool/unwind/rule"
)

// A checkpoint is a frame of the walk whose registers are all known as far
// as the CFI tells them. The fast rules follow three registers only; when a
// row needs another, the walk is repeated from the last checkpoint with all
// of them, so each frame is evaluated in general once at most.
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
		if !w.replay() {
			return next, ByCFI, BadCFI
		}
		regs = w.regs.regs
	} else {
		regs.set(rule.IP, f.pc)
		regs.set(rule.SP, f.sp)
		regs.set(rule.BP, f.bp)
	}
	exact, end := w.evaluate(p, f.lookup(), &regs)
	if end != stepped {
		if end == DumpTooShort || end == BadCFI && w.moves.switched {
			end = DumpTooShort
		}
		return next, ByCFI, end
	}
	next = frame{pc: regs.Value[rule.IP], sp: regs.Value[rule.SP], bp: regs.Value[rule.BP], exact: exact}
	if exact {
		end = w.interrupted(f.sp, next.sp)
	} else if next.sp < f.sp || next.sp == f.sp && len(w.ips) > 1 {
		// In a leaf the return address may be in a register, and nothing on the stack.
		end = BadCFI
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

// replay brings the checkpoint to the last frame of the walk.
func (w *walk) replay() bool {
	c := &w.regs
	var p place
	for c.frame < len(w.ips)-1 {
		pc := c.regs.Value[rule.IP]
		if pc != w.ips[c.frame] {
			return false
		}
		f := frame{pc: pc, sp: c.regs.Value[rule.SP], bp: c.regs.Value[rule.BP], exact: c.exact}
		if !w.locate(&p, f.lookup()) {
			return false
		}
		exact, end := w.evaluate(&p, f.lookup(), &c.regs)
		if end != stepped {
			return false
		}
		c.exact = exact
		c.frame++
	}
	return c.frame == len(w.ips)-1 && c.regs.Value[rule.IP] == w.ips[c.frame]
}

// evaluate turns the registers of the frame at p into those of its caller,
// by the CFI row for lookup. exact says that the caller was interrupted
// rather than that it called.
func (w *walk) evaluate(p *place, lookup uint64, regs *Regs) (exact bool, end Reason) {
	if im := p.image; im != nil {
		var fault error
		defer im.Guard(debug.SetPanicOnFault(true), &fault)
		end = BadCFI // after a fault in an expression
	}
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
	e := evaluation{arch: rule.AMD64, row: &row, old: *regs, stack: w.stack, pc: lookup, missing: stepped}
	next := *regs
	if end := e.caller(&next); end != stepped {
		return false, end
	}
	// The frames of the fast rules cannot say that BP is not known.
	if !next.has(rule.BP) && row.Regs[rule.BP].Kind != dwarfcfi.Undefined {
		return false, e.why()
	}
	*regs = next
	return row.Signal, stepped
}

// An evaluation applies the rules of one row to the registers of a frame, on
// any architecture. It remembers why memory could not be read.
type evaluation struct {
	arch    *rule.Arch
	row     *dwarfcfi.Row // whose return address column is a register of arch
	old     Regs          // a copy: it is not allocated for what an expression needs
	stack   *Stack
	pc      uint64
	missing Reason
}

func (e *evaluation) why() Reason {
	if e.missing != stepped {
		return e.missing
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
	for n := range e.row.Regs[:e.arch.NumRegs] {
		how := &e.row.Regs[n]
		if how.Kind == dwarfcfi.Unspecified || how.Kind == dwarfcfi.SameValue {
			continue
		}
		regs.Known &^= 1 << n
		if v, ok := e.register(n, how, cfa); ok {
			regs.set(n, v&e.arch.Mask)
		}
	}
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

// register is the caller's value of register n.
func (e *evaluation) register(n int, how *dwarfcfi.RegRule, cfa uint64) (uint64, bool) {
	switch how.Kind {
	case dwarfcfi.Offset:
		return e.saved(n, cfa+uint64(how.Offset))
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
	case n >= e.arch.NumRegs:
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

// evalAny is eval for any expression. What it allocates is not part of e.
func (e *evaluation) evalAny(expr []byte, initial []uint64) (uint64, bool) {
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
	return v, err == nil
}
