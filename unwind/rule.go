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
//	fromSaved *(SP + 8(c & 0xfff)) + 8(c >> 12)
//	                          *(CFA-8)    CFA    b == 0 ? BP : *(CFA - 8b)
//	sigframe  *(SP + 160)     *(SP+168)   CFA    *(SP + 120)
//	otherStack BP + 16        *(BP+8)     CFA    *BP
//
// Numbers that are too large are kept beside: for the kind wide, the other bits are
// an index into a table of them.
//
// Reading the code where there is no CFI gives kinds of their own. They have
// b == maxBP where BP is lost:
//
//	guessSP    as fromSP
//	guessBP    as fromBP
//	guessSaved as fromSaved
//	guessReg   register c & 0xf, as instructions number it, + 8(c >> 4)
//
// What has no numbers shares one kind, and differs in b.
//
// A zero rule is no rule: an empty place in a cache.
type rule uint32

const (
	noRule rule = iota
	fromSP
	fromBP
	wide       // fromSP or fromBP with numbers that have no room here
	realigned  // gcc's stack realignment: the incoming SP is saved below BP
	fromSaved  // an earlier SP is saved on the stack, as in OpenSSL's assembly
	sigframe   // the kernel's rt_sigframe on x86-64, as __restore_rt's CFI describes it
	otherStack // Go's stack switches: BP still points to the function's frame on the stack that SP has left

	guessSP
	guessBP
	guessSaved
	guessReg // an earlier SP is in a register that no CFI tells of

	single

	kindMask = 1<<4 - 1
	maxBP    = 1<<12 - 1
	maxCFA   = 1<<16 - 1
)

const (
	endOfStack rule = single + iota<<4
	local           // the general evaluator, which needs no more than PC, SP and BP
	general         // the general evaluator with every register
	uncovered       // no FDE for the PC
	entryCode       // no FDE, but the code right at the ELF entry point
	malformed       // the CFI for the PC cannot be read
	unreadable      // the file cannot be opened or read
)

// Every kind has its place in the four bits.
const _ = uint(kindMask - single)

// kind is the kind of a rule, or the rule itself where kinds are shared.
func (r rule) kind() rule {
	if k := r & kindMask; k != single {
		return k
	}
	return r
}

func (r rule) bp() uint64  { return uint64(r>>4&maxBP) * 8 }
func (r rule) cfa() uint64 { return uint64(r>>16) * 8 }

// saved is where fromSaved and guessSaved find an SP, above their own, and what they add
// to it.
func (r rule) saved() (at, plus uint64) { return uint64(r>>16&0xfff) * 8, uint64(r>>28) * 8 }

// savedAt gives the c of fromSaved and guessSaved for two distances in words, if they have room there.
func savedAt(at, plus uint32) (c uint32, ok bool) { return at | plus<<12, at <= 0xfff && plus <= 0xf }

// inReg is where guessReg finds an SP, and what it adds to it.
func (r rule) inReg() (reg uint8, plus uint64) { return uint8(r >> 16 & 0xf), uint64(r>>20) * 8 }

// inReg gives the c of guessReg for a register and a distance in words, if they have room there.
func inReg(reg uint8, plus uint32) (c uint32, ok bool) {
	return uint32(reg) | plus<<4, reg <= 0xf && plus <= 0xfff
}

// with is a rule of the kind r with its numbers, in words.
func (r rule) with(c, b uint32) rule { return r | rule(b)<<4 | rule(c)<<16 }

// inWords turns a distance in bytes into words, if it has a place in a rule.
func inWords(n int64) (words uint32, ok bool) {
	if n < 0 || n%8 != 0 || n/8 > maxCFA {
		return 0, false
	}
	return uint32(n / 8), true
}

// A wideRule is a rule of the kind fromSP or fromBP with its numbers.
type wideRule struct {
	kind    rule
	cfa, bp uint64 // in bytes; bp is 0 where BP is not saved
}

// maxWide is how many of them an image may have.
const maxWide = 1 << 16

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
		b, ok := savedBP(row)
		if !ok || cfa.Offset < 0 || cfa.Offset%8 != 0 || cfa.Offset/8 > maxCFA || b > maxBP {
			return fallback
		}
		c := uint32(cfa.Offset / 8)
		if cfa.Reg == regBP {
			return fromBP.with(c, b)
		}
		// A slot below SP was popped: compilers leave the rule in place to the
		// end of the epilogue, while the register has its value back.
		if b > c {
			b = 0
		}
		if c == 0 {
			return fallback
		}
		return fromSP.with(c, b)
	case cfa.Kind == dwarfcfi.CFAExpression:
		if off, ok := pltOffset(row.CFAExpr(), pc); ok {
			if b, ok := savedBP(row); ok && b <= maxBP {
				return fromSP.with(uint32(off/8), b)
			}
		}
		if off, ok := realignedOffset(row.CFAExpr()); ok && isBPAtBP(row) {
			return realigned.with(uint32(off/8), 0)
		}
		if c, ok := savedSP(row.CFAExpr()); ok {
			if b, ok := savedBP(row); ok && b <= maxBP {
				return fromSaved.with(c, b)
			}
		}
	}
	return fallback
}

// compileWide gives the numbers of a row that [compile] calls local only because
// they have no room in a rule.
func compileWide(row *dwarfcfi.Row) (w wideRule, ok bool) {
	cfa := &row.CFA
	if row.Signal || row.RA != regIP || !isOffset(row, regIP, -8) || row.Regs[regSP].Kind != dwarfcfi.Unspecified ||
		cfa.Kind != dwarfcfi.CFARegister || cfa.Offset < 0 {
		return w, false
	}
	b, ok := savedBP(row)
	w = wideRule{kind: fromSP, cfa: uint64(cfa.Offset), bp: uint64(b) * 8}
	if cfa.Reg == regBP {
		w.kind = fromBP
	}
	return w, ok
}

// savedBP gives where BP is saved below the CFA, in words.
func savedBP(row *dwarfcfi.Row) (words uint32, ok bool) {
	r := &row.Regs[regBP]
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

// savedSP recognises *(SP + at) + plus, the CFA of code that has aligned its stack
// and keeps the incoming SP above its own (breg7 at; deref; plus_uconst plus), and
// gives the c of a rule that says so.
func savedSP(e []byte) (c uint32, ok bool) {
	at, rest, ok := breg(e, regSP)
	if !ok || len(rest) != 3 || rest[0] != opDeref || rest[1] != opPlusUconst || rest[2]&0x80 != 0 ||
		at < 0 || at%8 != 0 || at/8 > 0xfff || rest[2]%8 != 0 {
		return 0, false
	}
	return savedAt(uint32(at/8), uint32(rest[2]/8))
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
