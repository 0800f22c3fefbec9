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
	if ra >= rule.NumRegs {
		return false, BadCFI
	}
	if row.Regs[ra].Kind == dwarfcfi.Undefined {
		return false, Root
	}

	e := evaluation{row: &row, old: regs, stack: w.stack, pc: lookup, missing: stepped}
	cfa, ok := e.cfa()
	if !ok {
		return false, e.why()
	}
	next := *regs
	for n := range row.Regs[:rule.NumRegs] {
		how := &row.Regs[n]
		if how.Kind == dwarfcfi.Unspecified || how.Kind == dwarfcfi.SameValue {
			continue
		}
		next.Known &^= 1 << n
		if v, ok := e.register(n, *how, cfa); ok {
			next.set(n, v)
		}
	}
	if row.Regs[ra].Kind == dwarfcfi.Unspecified {
		return false, BadCFI
	}
	if row.Regs[rule.SP].Kind == dwarfcfi.Unspecified {
		next.set(rule.SP, cfa)
	}
	if !next.has(ra) || !next.has(rule.SP) ||
		!next.has(rule.BP) && row.Regs[rule.BP].Kind != dwarfcfi.Undefined {
		return false, e.why()
	}
	next.set(rule.IP, next.Value[ra])
	*regs = next
	return row.Signal, stepped
}

// An evaluation applies the rules of one row. It remembers why memory could
// not be read.
type evaluation struct {
	row     *dwarfcfi.Row
	old     *Regs
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

func (e *evaluation) read(addr uint64) (uint64, bool) { return e.readSize(addr, 8) }

// reg is a register of the frame. The PC is the one that was looked up, as
// the row holds there.
func (e *evaluation) reg(n uint64) (uint64, bool) {
	if n == rule.IP {
		return e.pc, true
	}
	if n >= rule.NumRegs {
		return 0, false
	}
	return e.old.Get(int(n))
}

// eval evaluates an expression on a stack that holds the initial values.
func (e *evaluation) eval(expr []byte, initial ...uint64) (uint64, bool) {
	regs := *e.old
	regs.set(rule.IP, e.pc)
	v, err := dwarfcfi.Eval(expr, &dwarfcfi.Values{
		Regs:    regs.Value[:],
		Known:   uint64(regs.Known),
		Read:    e.readSize,
		PtrSize: 8,
	}, initial...)
	return v, err == nil
}

func (e *evaluation) readSize(addr uint64, size int) (uint64, bool) {
	v, ok := e.stack.uint(addr, size)
	if !ok {
		e.missing = e.stack.miss(addr)
	}
	return v, ok
}

func (e *evaluation) cfa() (uint64, bool) {
	how := &e.row.CFA
	switch how.Kind {
	case dwarfcfi.CFARegister:
		v, ok := e.reg(uint64(how.Reg))
		return v + uint64(how.Offset), ok
	case dwarfcfi.CFAExpression:
		return e.eval(e.row.CFAExpr())
	}
	return 0, false
}

// register is the caller's value of register n.
func (e *evaluation) register(n int, how dwarfcfi.RegRule, cfa uint64) (uint64, bool) {
	switch how.Kind {
	case dwarfcfi.Offset:
		return e.saved(n, cfa+uint64(how.Offset))
	case dwarfcfi.ValOffset:
		return cfa + uint64(how.Offset), true
	case dwarfcfi.Register:
		return e.reg(uint64(how.Reg))
	case dwarfcfi.Expression:
		addr, ok := e.eval(e.row.Expr(how), cfa)
		if !ok {
			return 0, false
		}
		return e.saved(n, addr)
	case dwarfcfi.ValExpression:
		return e.eval(e.row.Expr(how), cfa)
	}
	return 0, false
}

// saved reads register n from where it was saved. A slot below SP was
// popped: compilers leave the rule in place to the end of the epilogue, while
// the register has its value back.
func (e *evaluation) saved(n int, addr uint64) (uint64, bool) {
	if sp, ok := e.old.Get(rule.SP); ok && addr < sp && n != int(e.row.RA) {
		return e.old.Get(n)
	}
	return e.read(addr)
}
