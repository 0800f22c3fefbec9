package dwarfcfi

import (
	"math"
	"math/bits"

	"unspool/dwarfcfi/elf"
)

// NumRegs is how many registers a row has rules for. Unwinding needs registers 0 to 16 on x86-64 (16
// is the return address column), 0 to 8 on i386 and 0 to 32 on aarch64. Rules for higher registers are
// read and dropped.
const NumRegs = 33

// RuleKind is how a register of the caller is recovered (DWARF 5, 6.4.1).
type RuleKind uint8

const (
	Unspecified   RuleKind = iota // no rule: the ABI decides, usually the same value
	Undefined                     // lost; for the return address: outermost frame
	SameValue                     // unchanged
	Offset                        // saved at CFA+Offset
	ValOffset                     // is CFA+Offset
	Register                      // is in register Reg
	Expression                    // saved at the address that an expression yields
	ValExpression                 // is what an expression yields
)

var ruleNames = [...]string{"unspecified", "undefined", "same value", "offset", "val_offset",
	"register", "expression", "val_expression"}

func (k RuleKind) String() string {
	if int(k) < len(ruleNames) {
		return ruleNames[k]
	}
	return "unknown rule"
}

// RegRule is the rule of one register.
type RegRule struct {
	Kind RuleKind
	Reg  uint16 // Register: DWARF number of the register that holds the value
	// Offset, in bytes, from the CFA for Offset and ValOffset. For the expressions it is
	// where the section holds them: see [Row.Expr].
	Offset int32
}

// CFAKind is how the canonical frame address is computed.
type CFAKind uint8

const (
	CFAUnset      CFAKind = iota // no rule: nothing can be unwound here
	CFARegister                  // register Reg plus Offset
	CFAExpression                // what an expression yields: see [Row.CFAExpr]
)

// CFARule is the rule for the canonical frame address.
type CFARule struct {
	Kind   CFAKind
	Reg    uint8
	Offset int64

	expr uint32 // position in the section of the expression, with its length before it
}

// Rules are the columns of one row.
type Rules struct {
	CFA  CFARule
	Regs [NumRegs]RegRule // by DWARF register number
	// RASigned, on aarch64, says that the return address carries a pointer
	// authentication code (DW_CFA_AARCH64_negate_ra_state).
	RASigned bool
}

// Row is one row of the unwind table. It holds no memory of its own and can be reused.
type Row struct {
	Start, End uint64 // the addresses in the ELF image over which it holds; End is exclusive
	Rules
	RA     uint8 // return address column
	Signal bool  // signal frame: the return address is that of an interrupted instruction

	section []byte
}

// Expr returns the expression of a rule of the row whose kind is Expression or
// ValExpression, for [Eval] with the CFA as initial value. It points into the section.
func (r *Row) Expr(rule RegRule) []byte { return r.expr(uint32(rule.Offset)) }

// CFAExpr returns the expression that yields the CFA, when CFA.Kind is CFAExpression. It
// points into the section.
func (r *Row) CFAExpr() []byte { return r.expr(r.CFA.expr) }

// HasExpressions reports whether the CFA or a register of the row is given by an expression.
func (r *Row) HasExpressions() bool {
	if r.CFA.Kind == CFAExpression {
		return true
	}
	for n := range r.Regs {
		if k := r.Regs[n].Kind; k == Expression || k == ValExpression {
			return true
		}
	}
	return false
}

func (r *Row) expr(at uint32) []byte {
	if uint64(at) >= uint64(len(r.section)) {
		return nil
	}
	c := elf.Cursor{Data: r.section, Pos: int(at)}
	return c.Block()
}

// Call frame instructions (DWARF 5, table 7.29, and LSB Core 5.0, 10.5.2). The first three
// carry an operand in the low six bits.
const (
	cfaAdvanceLoc = 0x40
	cfaOffset     = 0x80
	cfaRestore    = 0xc0

	cfaNop              = 0x00
	cfaSetLoc           = 0x01
	cfaAdvanceLoc1      = 0x02
	cfaAdvanceLoc2      = 0x03
	cfaAdvanceLoc4      = 0x04
	cfaOffsetExtended   = 0x05
	cfaRestoreExtended  = 0x06
	cfaUndefined        = 0x07
	cfaSameValue        = 0x08
	cfaRegister         = 0x09
	cfaRememberState    = 0x0a
	cfaRestoreState     = 0x0b
	cfaDefCFA           = 0x0c
	cfaDefCFARegister   = 0x0d
	cfaDefCFAOffset     = 0x0e
	cfaDefCFAExpression = 0x0f
	cfaExpression       = 0x10
	cfaOffsetExtendedSF = 0x11
	cfaDefCFASF         = 0x12
	cfaDefCFAOffsetSF   = 0x13
	cfaValOffset        = 0x14
	cfaValOffsetSF      = 0x15
	cfaValExpression    = 0x16

	cfaAdvanceLoc8            = 0x1d // DW_CFA_MIPS_advance_loc8
	cfaNegateRAStateWithPC    = 0x2c // DW_CFA_AARCH64_negate_ra_state_with_pc
	cfaNegateRAState          = 0x2d // DW_CFA_AARCH64_negate_ra_state, DW_CFA_GNU_window_save
	cfaGNUArgsSize            = 0x2e
	cfaGNUNegOffsetExtended   = 0x2f
	maxRemembered             = 64 // nested DW_CFA_remember_state; compilers use one level
	unsupportedRegisterForCFA = "CFA is computed from a register out of range"
)

// program is a run of call frame instructions under way.
type program struct {
	frames  *frames
	cie     *CIE
	loc     uint64 // address that the current row starts at
	until   uint64 // rows that end here or before are passed over
	initial bool   // the initial instructions of the CIE itself
	saved   int    // rows on remembered
	c       elf.Cursor

	remembered *[]Rules // frames.remembered, except under FDE.Rows
}

// start readies p and row for the FDE's first row.
func (p *program) start(d *FDE, row *Row) error {
	f := d.frames
	if err := d.CIE.execute(f); err != nil {
		return err
	}
	p.frames, p.cie, p.loc, p.remembered = f, d.CIE, d.Start, &f.remembered
	p.c = elf.Cursor{Data: f.Data[:d.code.end], Pos: int(d.code.start)}
	row.Rules = d.CIE.initial
	row.RA, row.Signal, row.section = d.CIE.RA, d.CIE.Signal, f.Data
	return nil
}

// run executes instructions until the row is complete, which starts at p.loc: next is the address
// that the row after it starts at. more is false at the end of the program; the row then holds up to
// the end of the FDE.
func (p *program) run(rules *Rules) (next uint64, more bool, err error) {
	c := &p.c
	for c.Pos < len(c.Data) {
		at, op := c.Pos, c.Data[c.Pos]
		c.Pos++
		low := uint64(op & 0x3f)
		switch op & 0xc0 {
		case cfaAdvanceLoc:
			next, err = p.advanced(at, low)
		case cfaOffset:
			n, ok := c.ShortULEB()
			if !ok {
				n = c.ULEB()
			}
			err = p.setOffset(rules, at, Offset, low, int64(n))
		case cfaRestore:
			err = p.restore(rules, at, low)
		default:
			switch op {
			case cfaDefCFAOffset:
				n, ok := c.ShortULEB()
				if !ok {
					n = c.ULEB()
				}
				rules.CFA.Offset = int64(n)
			case cfaSetLoc:
				next, err = p.location(at)
			case cfaAdvanceLoc1:
				next, err = p.advanced(at, uint64(c.U8()))
			case cfaAdvanceLoc2:
				next, err = p.advanced(at, uint64(c.U16()))
			case cfaAdvanceLoc4:
				next, err = p.advanced(at, uint64(c.U32()))
			case cfaAdvanceLoc8:
				next, err = p.advanced(at, c.U64())
			default:
				err = p.execute(rules, at, op)
			}
		}
		switch {
		case err != nil:
			return 0, false, err
		case c.Bad:
			return 0, false, p.bad(at, "instruction is cut short")
		case next <= p.loc:
		case next > p.until:
			return next, true, nil
		default:
			p.loc = next
		}
	}
	return 0, false, nil
}

// advanced is the location delta units on.
func (p *program) advanced(at int, delta uint64) (uint64, error) {
	over, step := bits.Mul64(delta, p.cie.CodeAlign)
	if to := p.loc + step; to >= p.loc && over == 0 && !p.initial {
		return to, nil
	}
	return 0, p.badAdvance(at)
}

func (p *program) badAdvance(at int) error {
	if p.initial {
		return p.bad(at, "CIE advances the location")
	}
	return p.bad(at, "advance_loc overflows")
}

// location reads that of set_loc.
func (p *program) location(at int) (uint64, error) {
	b := p.frames.bases(p.cie)
	to := b.pointer(&p.c, p.cie.pointerEnc)
	if p.c.Bad || to < p.loc || p.initial {
		return 0, p.bad(at, "set_loc does not lead onwards")
	}
	return to, nil
}

// execute executes the instructions that change the row and have no operand in the opcode.
func (p *program) execute(rules *Rules, at int, op uint8) error {
	c := &p.c
	switch op {
	case cfaNop:
	case cfaDefCFA:
		reg := c.ULEB()
		return p.defCFA(rules, at, reg, int64(c.ULEB()))
	case cfaDefCFASF:
		reg := c.ULEB()
		return p.defCFA(rules, at, reg, c.SLEB()*p.cie.DataAlign)
	case cfaDefCFARegister:
		return p.defCFA(rules, at, c.ULEB(), rules.CFA.Offset)
	case cfaDefCFAOffsetSF:
		rules.CFA.Offset = c.SLEB() * p.cie.DataAlign
	case cfaDefCFAExpression:
		rules.CFA.Kind, rules.CFA.expr = CFAExpression, uint32(c.Pos)
		c.Block()
	case cfaOffsetExtended:
		reg := c.ULEB()
		return p.setOffset(rules, at, Offset, reg, int64(c.ULEB()))
	case cfaOffsetExtendedSF:
		reg := c.ULEB()
		return p.setOffset(rules, at, Offset, reg, c.SLEB())
	case cfaGNUNegOffsetExtended:
		reg := c.ULEB()
		return p.setOffset(rules, at, Offset, reg, -int64(c.ULEB()))
	case cfaValOffset:
		reg := c.ULEB()
		return p.setOffset(rules, at, ValOffset, reg, int64(c.ULEB()))
	case cfaValOffsetSF:
		reg := c.ULEB()
		return p.setOffset(rules, at, ValOffset, reg, c.SLEB())
	case cfaRestoreExtended:
		return p.restore(rules, at, c.ULEB())
	case cfaUndefined:
		rules.set(c.ULEB(), RegRule{Kind: Undefined})
	case cfaSameValue:
		rules.set(c.ULEB(), RegRule{Kind: SameValue})
	case cfaRegister:
		reg, from := c.ULEB(), c.ULEB()
		if from > math.MaxUint16 {
			return p.bad(at, "register number is out of range")
		}
		rules.set(reg, RegRule{Kind: Register, Reg: uint16(from)})
	case cfaExpression, cfaValExpression:
		kind := Expression
		if op == cfaValExpression {
			kind = ValExpression
		}
		reg := c.ULEB()
		rules.set(reg, RegRule{Kind: kind, Offset: int32(c.Pos)})
		c.Block()
	case cfaRememberState:
		return p.remember(rules, at)
	case cfaRestoreState:
		if p.saved == 0 {
			return p.bad(at, "restore_state without remember_state")
		}
		p.saved--
		*rules = (*p.remembered)[p.saved]
	case cfaNegateRAState, cfaNegateRAStateWithPC:
		rules.RASigned = !rules.RASigned
	case cfaGNUArgsSize:
		c.ULEB() // of use to exception handlers only
	default:
		return p.bad(at, "unknown call frame instruction")
	}
	return nil
}

func (r *Rules) set(reg uint64, rule RegRule) {
	if reg < NumRegs {
		r.Regs[reg] = rule
	}
}

func (p *program) setOffset(rules *Rules, at int, kind RuleKind, reg uint64, factored int64) error {
	offset := factored * p.cie.DataAlign
	if offset != int64(int32(offset)) || factored != int64(int32(factored)) {
		return p.bad(at, "offset is out of range")
	}
	rules.set(reg, RegRule{Kind: kind, Offset: int32(offset)})
	return nil
}

func (p *program) defCFA(rules *Rules, at int, reg uint64, offset int64) error {
	if reg >= NumRegs {
		return p.bad(at, unsupportedRegisterForCFA)
	}
	rules.CFA = CFARule{Kind: CFARegister, Reg: uint8(reg), Offset: offset}
	return nil
}

// restore gives a register back the rule that the CIE's initial instructions gave it.
func (p *program) restore(rules *Rules, at int, reg uint64) error {
	if p.initial {
		return p.bad(at, "CIE restores a register")
	}
	if reg < NumRegs {
		rules.Regs[reg] = p.cie.initial.Regs[reg]
	}
	return nil
}

// remember pushes the row. The stack belongs to the table, so that it is allocated once.
func (p *program) remember(rules *Rules, at int) error {
	if p.saved >= maxRemembered {
		return p.bad(at, "remember_state is nested too deeply")
	}
	if p.saved < len(*p.remembered) {
		(*p.remembered)[p.saved] = *rules
	} else {
		*p.remembered = append(*p.remembered, *rules)
	}
	p.saved++
	return nil
}

func (p *program) bad(at int, what string) error { return p.frames.bad(uint64(at), what) }
