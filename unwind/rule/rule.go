// Package rule has the rules by which a walk goes from a frame to its caller: rows of call
// frame information (CFI, DWARF 5 § 6.4.1) in four bytes each, for the rows that compilers
// emit on x86-64, and the cache that keeps them by file offset.
//
// Rules come from CFI ([Compile]), from reading machine code, from Go's function table and
// from what runtimes tell of the code that they generate. A rule is a value; it owns nothing
// and points to nothing.
package rule

import "fmt"

// A Rule is a CFI row in four bytes, for the rows that compilers emit. It
// says how PC, SP and BP of the caller follow from those of the frame; *x is
// the word of the stack copy at x.
//
//	bits  0…3   kind
//	bits  4…15  b: where the caller's BP is saved, in words; 0 is "not saved"
//	bits 16…31  c: the distance to the CFA, in words
//
//	kind      CFA             PC          SP     BP
//	FromSP    SP + 8c         *(CFA-8)    CFA    b == 0 ? BP : *(CFA - 8b)
//	FromBP    BP + 8c         *(CFA-8)    CFA    b == 0 ? BP : *(CFA - 8b)
//	realigned *(BP - 8c)      *(CFA-8)    CFA    *BP
//	FromSaved *(SP + 8(c & 0xfff)) + 8(c >> 12)
//	                          *(CFA-8)    CFA    b == 0 ? BP : *(CFA - 8b)
//	sigframe  *(SP + 160)     *(SP+168)   CFA    *(SP + 120)
//	OtherStack BP + 16        *(BP+8)     CFA    *BP
//
// Numbers that are too large are stored in a table beside the cache, as a [WideRule]: for
// the kind Wide, the other bits are an index into it.
//
// Reading the code where there is no CFI gives kinds of their own. They have
// b == MaxBP where BP is lost:
//
//	GuessSP    as FromSP
//	GuessBP    as FromBP
//	GuessSaved as FromSaved
//	GuessReg   register c & 0xf, as instructions number it, + 8(c >> 4)
//
// What has no numbers shares one kind, and differs in b.
//
// Zero is None, which is no rule: an empty place in a cache.
type Rule uint32

const (
	None Rule = iota
	FromSP
	FromBP
	Wide       // FromSP or FromBP with numbers that have no room here
	Realigned  // gcc's stack realignment: the incoming SP is saved below BP
	FromSaved  // an earlier SP is saved on the stack, as in OpenSSL's assembly
	Sigframe   // the kernel's rt_sigframe on x86-64, as __restore_rt's CFI describes it
	OtherStack // Go's stack switches: BP still points to the function's frame on the stack that SP has left

	GuessSP
	GuessBP
	GuessSaved
	GuessReg // an earlier SP is in a register that no CFI tells of

	Single // what has no numbers

	KindMask = 1<<4 - 1
	MaxBP    = 1<<12 - 1
	MaxCFA   = 1<<16 - 1
)

const (
	EndOfStack Rule = Single + iota<<4
	Local           // the general evaluator, which needs no more than PC, SP and BP
	General         // the general evaluator with every register
	Uncovered       // no FDE for the PC
	EntryCode       // no FDE, but the code right at the ELF entry point
	Malformed       // the CFI for the PC cannot be read
	Unreadable      // the file cannot be opened or read
)

// Every kind has its place in the four bits.
const _ = uint(KindMask - Single)

// Kind is the kind of a rule, or the rule itself where kinds are shared.
func (r Rule) Kind() Rule {
	if k := r & KindMask; k != Single {
		return k
	}
	return r
}

// BP is where the caller's BP is saved below the CFA, in bytes, 0 where it is not saved.
func (r Rule) BP() uint64 { return uint64(r>>4&MaxBP) * 8 }

// CFA is the distance to the CFA, in bytes.
func (r Rule) CFA() uint64 { return uint64(r>>16) * 8 }

// Saved is where FromSaved and GuessSaved find an SP, above their own, and what they add
// to it, in bytes.
func (r Rule) Saved() (at, plus uint64) { return uint64(r>>16&0xfff) * 8, uint64(r>>28) * 8 }

// InReg is where GuessReg finds an SP, and what it adds to it, in bytes.
func (r Rule) InReg() (reg uint8, plus uint64) { return uint8(r >> 16 & 0xf), uint64(r>>20) * 8 }

// Index is the place of the numbers of a rule of the kind Wide.
func (r Rule) Index() int { return int(r >> 4) }

// With is a rule of the kind r with its numbers, in words.
func (r Rule) With(c, b uint32) Rule { return r | Rule(b)<<4 | Rule(c)<<16 }

// PackSaved gives the c of FromSaved and GuessSaved for what [Rule.Saved] gives, in words. ok is
// false where that has no room.
func PackSaved(at, plus uint32) (c uint32, ok bool) { return at | plus<<12, at <= 0xfff && plus <= 0xf }

// PackInReg gives the c of GuessReg for what [Rule.InReg] gives, in words. ok is false where that
// has no room.
func PackInReg(reg uint8, plus uint32) (c uint32, ok bool) {
	return uint32(reg) | plus<<4, reg <= 0xf && plus <= 0xfff
}

// InWords turns a distance in bytes into words. ok is false where that has no place in a rule.
func InWords(n int64) (words uint32, ok bool) {
	if n < 0 || n%8 != 0 || n/8 > MaxCFA {
		return 0, false
	}
	return uint32(n / 8), true
}

// names are those of the kinds, and of the rules that share one.
var names = map[Rule]string{
	None: "none", FromSP: "from SP", FromBP: "from BP", Wide: "wide", Realigned: "realigned",
	FromSaved: "from a saved SP", Sigframe: "signal frame", OtherStack: "other stack",
	GuessSP: "guess from SP", GuessBP: "guess from BP", GuessSaved: "guess from a saved SP",
	GuessReg: "guess from a register", EndOfStack: "end of stack", Local: "local", General: "general",
	Uncovered: "uncovered", EntryCode: "entry code", Malformed: "malformed", Unreadable: "unreadable",
}

// String gives the rule as formulas for CFA and BP.
func (r Rule) String() string {
	name, ok := names[r.Kind()]
	var cfa string
	switch r.Kind() {
	case FromSP, GuessSP:
		cfa = fmt.Sprintf("SP+%d", r.CFA())
	case FromBP, GuessBP:
		cfa = fmt.Sprintf("BP+%d", r.CFA())
	case Realigned:
		return fmt.Sprintf("%s: CFA = *(BP-%d), BP = *BP", name, r.CFA())
	case FromSaved, GuessSaved:
		at, plus := r.Saved()
		cfa = fmt.Sprintf("*(SP+%d)+%d", at, plus)
	case GuessReg:
		reg, plus := r.InReg()
		cfa = fmt.Sprintf("register %d+%d", reg, plus)
	case Wide:
		return fmt.Sprintf("%s: number %d", name, r.Index())
	default:
		if !ok {
			return fmt.Sprintf("rule %#x", uint32(r))
		}
		return name
	}
	switch b := r.BP(); {
	case b == 0:
		return fmt.Sprintf("%s: CFA = %s, BP = BP", name, cfa)
	case b == 8*MaxBP && r.Kind() >= GuessSP:
		return fmt.Sprintf("%s: CFA = %s, BP lost", name, cfa)
	default:
		return fmt.Sprintf("%s: CFA = %s, BP = *(CFA-%d)", name, cfa, b)
	}
}

// A WideRule is a rule of the kind FromSP or FromBP with its numbers.
type WideRule struct {
	Kind    Rule
	CFA, BP uint64 // in bytes; BP is 0 where BP is not saved
}

// WideAt is the rule whose numbers are at an index.
func WideAt(i int) Rule { return Wide | Rule(i)<<4 }

// Offsets in rt_sigframe from the SP that the kernel leaves when a handler
// has returned: the ucontext begins there, its mcontext 40 bytes in
// (arch/x86/include/uapi/asm/sigcontext.h, struct sigcontext_64).
const (
	SigBP = 120
	SigSP = 160
	SigIP = 168
)
