package unwind

import (
	"unspool/dwarfcfi"
)

// A rule is a CFI row in four bytes, for the rows that compilers emit. It
// says how PC, SP and BP of the caller follow from those of the frame; *x is
// the word of the stack copy at x.
//
//	bits  0…3   kind
//	bits  4…15  b: where the caller's BP is saved, in words; 0 is "not saved"
//	bits 16…31  c: the distance to the CFA, in words
//
//	kind      CFA             PC          SP     BP
//	fromSP    SP + 8c         *(CFA-8)    CFA    b == 0 ? BP : *(CFA - 8b)
//	fromBP    BP + 8c         *(CFA-8)    CFA    b == 0 ? BP : *(CFA - 8b)
//	realigned *(BP - 8c)      *(CFA-8)    CFA    *BP
//	sigframe  *(SP + 160)     *(SP+168)   CFA    *(SP + 120)
//	otherStack BP + 16        *(BP+8)     CFA    *BP
//
// Reading the code where there is no CFI gives kinds of their own. They have
// b == maxBP where BP is lost, and guessSaved keeps two numbers in c:
//
//	guessSP    SP + 8c
//	guessBP    BP + 8c
//	guessSaved *(SP + 8(c & 0xfff)) + 8(c >> 12)
//
// A zero rule is no rule: an empty place in a cache.
type rule uint32

const (
	noRule rule = iota
	fromSP
	fromBP
	realigned  // gcc's stack realignment: the incoming SP is saved below BP
	sigframe   // the kernel's rt_sigframe on x86-64, as __restore_rt's CFI describes it
	otherStack // Go's stack switches: BP still points to the function's frame on the stack that SP has left
	endOfStack
	local   // the general evaluator, which needs no more than PC, SP and BP
	general // the general evaluator with every register

	guessSP    // as fromSP, found by reading the code
	guessBP    // as fromBP, found by reading the code
	guessSaved // found by reading the code: an earlier SP is saved on the stack

	uncovered  // no FDE for the PC
	entryCode  // no FDE, but the code right at the ELF entry point
	malformed  // the CFI for the PC cannot be read
	unreadable // the file cannot be opened or read

	kindMask = 1<<4 - 1
	maxBP    = 1<<12 - 1
	maxCFA   = 1<<16 - 1
)

// Every kind has its place in the four bits.
const _ = uint(kindMask - unreadable)

func (r rule) kind() rule  { return r & kindMask }
func (r rule) bp() uint64  { return uint64(r>>4&maxBP) * 8 }
func (r rule) cfa() uint64 { return uint64(r>>16) * 8 }

// Offsets in rt_sigframe from the SP that the kernel leaves when a handler
// has returned: the ucontext begins there, its mcontext 40 bytes in
// (arch/x86/include/uapi/asm/sigcontext.h, struct sigcontext_64).
const (
	sigBP = 120
	sigSP = 160
	sigIP = 168
)

// compile gives the rule for a row, general or local when the row says more
// than a rule can.
func compile(row *dwarfcfi.Row, pc uint64) rule {
	if int(row.RA) < len(row.Regs) && row.Regs[row.RA].Kind == dwarfcfi.Undefined {
		return endOfStack
	}
	if row.Signal && isSigframe(row) {
		return sigframe
	}
	if int(row.RA) >= numRegs {
		return malformed
	}
	fallback := general
	if needsNoMore(row) {
		fallback = local
	}
	if row.Signal || row.RA != regIP || !isOffset(row, regIP, -8) || row.Regs[regSP].Kind != dwarfcfi.Unspecified {
		return fallback
	}

	cfa := &row.CFA
	switch {
	case cfa.Kind == dwarfcfi.CFARegister && (cfa.Reg == regSP || cfa.Reg == regBP):
		if cfa.Offset < 0 || cfa.Offset%8 != 0 || cfa.Offset/8 > maxCFA {
			return fallback
		}
		kind := fromSP
		if cfa.Reg == regBP {
			kind = fromBP
		}
		b, ok := savedBP(row)
		if !ok {
			return fallback
		}
		return kind | b<<4 | rule(cfa.Offset/8)<<16
	case cfa.Kind == dwarfcfi.CFAExpression:
		if off, ok := pltOffset(row.CFAExpr(), pc); ok {
			if b, ok := savedBP(row); ok {
				return fromSP | b<<4 | rule(off/8)<<16
			}
		}
		if off, ok := realignedOffset(row.CFAExpr()); ok && isBPAtBP(row) {
			return realigned | rule(off/8)<<16
		}
	}
	return fallback
}

// savedBP gives where BP is saved below the CFA, in words.
func savedBP(row *dwarfcfi.Row) (rule, bool) {
	r := &row.Regs[regBP]
	switch r.Kind {
	case dwarfcfi.Unspecified, dwarfcfi.SameValue:
		return 0, true
	case dwarfcfi.Offset:
		if r.Offset < 0 && r.Offset%8 == 0 && -r.Offset/8 <= maxBP {
			return rule(-r.Offset / 8), true
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
	opShl   = 0x24
	opGe    = 0x2a
	opLit0  = 0x30
	opBreg0 = 0x70
)

// pltOffset recognises the CFA expression that linkers write for .plt:
//
//	rsp + 8 + ((rip & 15) >= n) * 8
//
// (breg7 8; breg16 0; lit15; and; litN; ge; lit3; shl; plus). At a given PC
// it is a constant offset from SP; pc is the address in the image.
func pltOffset(e []byte, pc uint64) (uint64, bool) {
	if len(e) != 11 || e[0] != opBreg0+regSP || e[1] != 8 ||
		e[2] != opBreg0+regIP || e[3] != 0 || e[4] != opLit0+15 || e[5] != opAnd ||
		e[6] < opLit0 || e[6] > opLit0+31 || e[7] != opGe || e[8] != opLit0+3 || e[9] != opShl || e[10] != opPlus {
		return 0, false
	}
	if pc&15 >= uint64(e[6]-opLit0) {
		return 16, true
	}
	return 8, true
}

// realignedOffset recognises *(BP - off), the CFA of a function that aligned
// its stack and keeps the incoming SP below its BP (breg6 -off; deref).
func realignedOffset(e []byte) (uint64, bool) {
	off, rest, ok := breg(e, regBP)
	if !ok || len(rest) != 1 || rest[0] != opDeref || off >= 0 || off%8 != 0 || -off/8 > maxCFA {
		return 0, false
	}
	return uint64(-off), true
}

// isBPAtBP says whether the caller's BP is saved where BP points.
func isBPAtBP(row *dwarfcfi.Row) bool {
	r := &row.Regs[regBP]
	if r.Kind != dwarfcfi.Expression {
		return false
	}
	off, rest, ok := breg(row.Expr(*r), regBP)
	return ok && off == 0 && len(rest) == 0
}

// isSigframe says whether the row is the one that fits the sigframe rule.
func isSigframe(row *dwarfcfi.Row) bool {
	off, rest, ok := breg(row.CFAExpr(), regSP)
	if !ok || off != sigSP || len(rest) != 1 || rest[0] != opDeref {
		return false
	}
	return row.RA == regIP && isSigReg(row, regIP, sigIP) && isSigReg(row, regBP, sigBP)
}

func isSigReg(row *dwarfcfi.Row, reg int, at int64) bool {
	r := &row.Regs[reg]
	if r.Kind != dwarfcfi.Expression {
		return false
	}
	off, rest, ok := breg(row.Expr(*r), regSP)
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

// needsNoMore says whether CFA, return address and BP of a row follow from
// PC, SP and BP alone. Expressions may name any register; they are not read
// for it.
func needsNoMore(row *dwarfcfi.Row) bool {
	known := func(reg uint16) bool { return reg == regSP || reg == regBP || reg == regIP }
	if row.CFA.Kind != dwarfcfi.CFARegister || !known(uint16(row.CFA.Reg)) {
		return false
	}
	for _, reg := range [...]uint8{row.RA, regBP, regSP} {
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
