package rule

import "unspool/dwarfcfi"

// Compile gives the rule for a row. It is General or Local if the row says more than
// a rule can.
func Compile(row *dwarfcfi.Row, pc uint64) Rule {
	if int(row.RA) < len(row.Regs) && row.Regs[row.RA].Kind == dwarfcfi.Undefined {
		return EndOfStack
	}
	if row.Signal && isSigframe(row) {
		return Sigframe
	}
	if int(row.RA) >= NumRegs {
		return Malformed
	}
	if savesEHData(row) {
		return ehReturn(row)
	}
	fallback := General
	if needsNoMore(row) {
		fallback = Local
	}
	if row.Signal || row.RA != IP || !isOffset(row, IP, -8) || row.Regs[SP].Kind != dwarfcfi.Unspecified {
		return fallback
	}

	cfa := &row.CFA
	switch {
	case cfa.Kind == dwarfcfi.CFARegister && (cfa.Reg == SP || cfa.Reg == BP):
		b, ok := savedBP(row)
		if !ok || cfa.Offset < 0 || cfa.Offset%8 != 0 || cfa.Offset/8 > MaxCFA || b > MaxBP {
			return fallback
		}
		c := uint32(cfa.Offset / 8)
		if cfa.Reg == BP {
			return FromBP.With(c, b)
		}
		// The slot is below SP, so it was popped: compilers leave its rule in place up to
		// the end of the epilogue, although the register has its value again.
		if b > c {
			b = 0
		}
		if c == 0 {
			return fallback
		}
		return FromSP.With(c, b)
	case cfa.Kind == dwarfcfi.CFAExpression:
		if off, ok := pltOffset(row.CFAExpr(), pc); ok {
			if b, ok := savedBP(row); ok && b <= MaxBP {
				return FromSP.With(uint32(off/8), b)
			}
		}
		if off, ok := realignedOffset(row.CFAExpr()); ok && isBPAtBP(row) {
			return Realigned.With(uint32(off/8), 0)
		}
		if c, ok := savedSP(row.CFAExpr()); ok {
			if b, ok := savedBP(row); ok && b <= MaxBP {
				return FromSaved.With(c, b)
			}
		}
	}
	return fallback
}

// savesEHData reports whether a row has the registers in which landing pads are told what was thrown, RAX and
// RDX, on the stack, and no argument: gcc saves them in functions that call __builtin_eh_return, as those of
// libgcc that throw exceptions do. What keeps all registers of its caller, as mcount, keeps RCX as well.
func savesEHData(row *dwarfcfi.Row) bool {
	return !row.Signal && row.RA == IP && row.Regs[AX].Kind == dwarfcfi.Offset &&
		row.Regs[DX].Kind == dwarfcfi.Offset && row.Regs[CX].Kind != dwarfcfi.Offset
}

// ehReturn is the rule for a row of such a function.
func ehReturn(row *dwarfcfi.Row) Rule {
	b, ok := savedBP(row)
	cfa := &row.CFA
	if !ok || b == 0 || cfa.Kind != dwarfcfi.CFARegister || cfa.Reg != BP || cfa.Offset <= 0 ||
		cfa.Offset%8 != 0 || !isOffset(row, IP, -8) || row.Regs[SP].Kind != dwarfcfi.Unspecified {
		return EHReturn
	}
	if c, ok := PackFromBP(uint32(cfa.Offset/8), b); ok {
		return EHReturn.With(c, 0)
	}
	return EHReturn
}

// IsEHReturned says of a row with the rule [EHReturn] whether the function has restored all registers, and
// only leaves for the landing pad: its address is the return address now.
func IsEHReturned(row *dwarfcfi.Row) bool {
	kind := row.Regs[BP].Kind
	return row.CFA.Kind == dwarfcfi.CFARegister && row.CFA.Reg != BP &&
		(kind == dwarfcfi.Unspecified || kind == dwarfcfi.SameValue)
}

// CompileWide gives the numbers of a row for which [Compile] returns Local only because
// there is no room for them in a rule.
func CompileWide(row *dwarfcfi.Row) (w WideRule, ok bool) {
	cfa := &row.CFA
	if row.Signal || row.RA != IP || !isOffset(row, IP, -8) || row.Regs[SP].Kind != dwarfcfi.Unspecified ||
		cfa.Kind != dwarfcfi.CFARegister || cfa.Reg != SP && cfa.Reg != BP || cfa.Offset < 0 {
		return w, false
	}
	b, ok := savedBP(row)
	w = WideRule{Kind: FromSP, CFA: uint64(cfa.Offset), BP: uint64(b) * 8}
	if cfa.Reg == BP {
		w.Kind = FromBP
	}
	return w, ok
}

// CFAAboveSP is by how many bytes the CFA of a row lies above SP, 0 if it is not counted from SP, or does not lie
// above.
func CFAAboveSP(row *dwarfcfi.Row) uint64 {
	cfa := &row.CFA
	if cfa.Kind != dwarfcfi.CFARegister || cfa.Reg != SP || cfa.Offset < 0 {
		return 0
	}
	return uint64(cfa.Offset)
}

// savedBP gives where BP is saved below the CFA, in words.
func savedBP(row *dwarfcfi.Row) (words uint32, ok bool) {
	r := &row.Regs[BP]
	switch r.Kind {
	case dwarfcfi.Unspecified, dwarfcfi.SameValue:
		return 0, true
	case dwarfcfi.Offset:
		if r.Offset < 0 && r.Offset%8 == 0 {
			return uint32(-r.Offset / 8), true
		}
	}
	return 0, false
}

func isOffset(row *dwarfcfi.Row, reg int, off int32) bool {
	r := &row.Regs[reg]
	return r.Kind == dwarfcfi.Offset && r.Offset == off
}

// Opcodes of the few expressions that have a rule (DWARF 5 § 7.7.1).
const (
	opDeref = 0x06
	opAnd   = 0x1a
	opPlus  = 0x22

	opPlusUconst = 0x23
	opShl        = 0x24
	opGe         = 0x2a
	opLit0       = 0x30
	opBreg0      = 0x70
)

// pltOffset recognizes the CFA expression that linkers write for .plt:
//
//	rsp + 8 + ((rip & 15) >= n) * 8
//
// (breg7 8; breg16 0; lit15; and; litN; ge; lit3; shl; plus). At a given PC
// it is a constant offset from SP; pc is the address in the image.
func pltOffset(e []byte, pc uint64) (uint64, bool) {
	if len(e) != 11 || e[0] != opBreg0+SP || e[1] != 8 ||
		e[2] != opBreg0+IP || e[3] != 0 || e[4] != opLit0+15 || e[5] != opAnd ||
		e[6] < opLit0 || e[6] > opLit0+31 || e[7] != opGe || e[8] != opLit0+3 || e[9] != opShl || e[10] != opPlus {
		return 0, false
	}
	if pc&15 >= uint64(e[6]-opLit0) {
		return 16, true
	}
	return 8, true
}

// realignedOffset recognizes *(BP - off), the CFA of a function that has aligned its
// stack and keeps the incoming SP below its BP (breg6 -off; deref).
func realignedOffset(e []byte) (uint64, bool) {
	off, rest, ok := breg(e, BP)
	if !ok || len(rest) != 1 || rest[0] != opDeref || off >= 0 || off%8 != 0 || -off/8 > MaxCFA {
		return 0, false
	}
	return uint64(-off), true
}

// savedSP recognizes *(SP + at) + plus, the CFA of code that has aligned its stack
// and keeps the incoming SP above its own (breg7 at; deref; plus_uconst plus), and
// gives the c of a rule for it.
func savedSP(e []byte) (c uint32, ok bool) {
	at, rest, ok := breg(e, SP)
	if !ok || len(rest) != 3 || rest[0] != opDeref || rest[1] != opPlusUconst || rest[2]&0x80 != 0 ||
		at < 0 || at%8 != 0 || at/8 > 0xfff || rest[2]%8 != 0 {
		return 0, false
	}
	return PackSaved(uint32(at/8), uint32(rest[2]/8))
}

// isBPAtBP reports whether the caller's BP is saved where BP points.
func isBPAtBP(row *dwarfcfi.Row) bool {
	r := &row.Regs[BP]
	if r.Kind != dwarfcfi.Expression {
		return false
	}
	off, rest, ok := breg(row.Expr(*r), BP)
	return ok && off == 0 && len(rest) == 0
}

// isSigframe reports whether the row means the same as the sigframe rule.
func isSigframe(row *dwarfcfi.Row) bool {
	off, rest, ok := breg(row.CFAExpr(), SP)
	if !ok || off != SigSP || len(rest) != 1 || rest[0] != opDeref {
		return false
	}
	return row.RA == IP && isSigReg(row, IP, SigIP) && isSigReg(row, BP, SigBP)
}

func isSigReg(row *dwarfcfi.Row, reg int, at int64) bool {
	r := &row.Regs[reg]
	if r.Kind != dwarfcfi.Expression {
		return false
	}
	off, rest, ok := breg(row.Expr(*r), SP)
	return ok && off == at && len(rest) == 0
}

// breg reads a leading DW_OP_breg<reg> and returns its offset and the rest.
func breg(e []byte, reg byte) (off int64, rest []byte, ok bool) {
	if len(e) < 2 || e[0] != opBreg0+reg {
		return 0, nil, false
	}
	shift := uint(0)
	for i, b := range e[1:] {
		off |= int64(b&0x7f) << shift
		shift += 7
		if b&0x80 == 0 {
			if b&0x40 != 0 && shift < 64 {
				off |= -1 << shift
			}
			return off, e[i+2:], true
		}
		if shift > 56 {
			break
		}
	}
	return 0, nil, false
}

// RegisterExpr reads an expression that is a register plus an offset (DW_OP_breg), or the word at that
// address (DW_OP_deref). Registers with DWARF numbers above 31 are not supported.
func RegisterExpr(e []byte) (reg uint8, off int64, deref, ok bool) {
	if len(e) == 0 || e[0] < opBreg0 || e[0] >= opBreg0+32 {
		return 0, 0, false, false
	}
	reg = e[0] - opBreg0
	off, rest, ok := breg(e, reg)
	deref = len(rest) == 1 && rest[0] == opDeref
	return reg, off, deref, ok && (len(rest) == 0 || deref)
}

// needsNoMore reports whether CFA, return address and BP of a row follow from PC, SP and
// BP alone. It does not read expressions, which may name any register.
func needsNoMore(row *dwarfcfi.Row) bool {
	known := func(reg uint16) bool { return reg == SP || reg == BP || reg == IP }
	if row.CFA.Kind != dwarfcfi.CFARegister || !known(uint16(row.CFA.Reg)) {
		return false
	}
	for _, reg := range [...]uint8{row.RA, BP, SP} {
		switch r := &row.Regs[reg]; r.Kind {
		case dwarfcfi.Register:
			if !known(r.Reg) {
				return false
			}
		case dwarfcfi.Expression, dwarfcfi.ValExpression:
			return false
		}
	}
	return true
}
