package rule

import "fmt"

// A Rule is a CFI row in four bytes, for the rows that compilers emit. It says how PC,
// SP and BP of the caller follow from those of the frame; *x is the word of the stack
// copy at x.
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
// Where there is no CFI, reading the code gives the following kinds. They have
// b == MaxBP if BP is lost:
//
//	GuessSP    as FromSP
//	GuessBP    as FromBP
//	GuessSaved as FromSaved
//	GuessReg   register c & 0xf, as instructions number it, + 8(c >> 4)
//
// Rules without numbers share one kind, and differ in b. The c of EntryCode is how many words were pushed
// since the entry point.
//
// Zero is None, which means that there is no rule: an empty place in a cache.
type Rule uint32

const (
	None Rule = iota
	FromSP
	FromBP
	Wide       // FromSP or FromBP with numbers that do not fit here
	Realigned  // gcc's stack realignment: the incoming SP is saved below BP
	FromSaved  // an earlier SP is saved on the stack, as in OpenSSL's assembly
	Sigframe   // the kernel's rt_sigframe on x86-64, as __restore_rt's CFI describes it
	OtherStack // Go has switched stacks: SP is on the new one, BP points to the frame on the old one

	GuessSP
	GuessBP
	GuessSaved
	GuessReg // an earlier SP is in a register

	Single // shared by the rules without numbers

	KindMask = 1<<4 - 1
	MaxBP    = 1<<12 - 1
	MaxCFA   = 1<<16 - 1
)

const (
	EndOfStack Rule = Single + iota<<4
	Local           // the general evaluator, which needs no more than PC, SP and BP
	General         // the general evaluator with every register
	Uncovered       // no FDE for the PC
	EntryCode       // no FDE, but the code at the ELF entry point, before it hands over
	Malformed       // the CFI for the PC cannot be read
	Unreadable      // the file cannot be opened or read
	FromC           // Local, in Go code that C has called: the frames of C are on another stack
	NewThread       // Local, or EndOfStack in the new thread: behind the system call that makes it, 0 in RAX
	EHReturn        // in a function that leaves with __builtin_eh_return, and can overwrite what its row says
)

// Every kind fits into the four bits.
const _ = uint(KindMask - Single)

// Kind is the kind of a rule, together with b for rules that share a kind.
func (r Rule) Kind() Rule {
	if k := r & KindMask; k != Single {
		return k
	}
	return r & (KindMask | MaxBP<<4)
}

// BP is how many bytes below the CFA the caller's BP is saved, 0 if it is not saved.
func (r Rule) BP() uint64 { return uint64(r>>4&MaxBP) * 8 }

// CFA is the distance to the CFA, in bytes.
func (r Rule) CFA() uint64 { return uint64(r>>16) * 8 }

// Saved is how many bytes above SP FromSaved and GuessSaved find an earlier SP, and how many
// bytes they add to it.
func (r Rule) Saved() (at, plus uint64) { return uint64(r>>16&0xfff) * 8, uint64(r>>28) * 8 }

// InReg is the register in which GuessReg finds an SP, and how many bytes it adds to it.
func (r Rule) InReg() (reg uint8, plus uint64) { return uint8(r >> 16 & 0xf), uint64(r>>20) * 8 }

// PackFromBP gives the c of EHReturn for the results of [Rule.FromBP] in words. ok is false if they do not
// fit.
func PackFromBP(cfa, bp uint32) (c uint32, ok bool) { return cfa | bp<<8, cfa <= 0xff && bp <= 0xff }

// FromBP is the distance from BP to the CFA that EHReturn has, and how many bytes below the CFA the caller's
// BP is saved; 0 if the CFA is not counted from BP.
func (r Rule) FromBP() (cfa, bp uint64) { return uint64(r>>16&0xff) * 8, uint64(r>>24) * 8 }

// Index is the index of the numbers of a rule of the kind Wide.
func (r Rule) Index() int { return int(r >> 4) }

// With is a rule of the kind r with the numbers c and b, in words.
func (r Rule) With(c, b uint32) Rule { return r | Rule(b)<<4 | Rule(c)<<16 }

// PackSaved gives the c of FromSaved and GuessSaved for the results of [Rule.Saved] in words. ok is
// false if they do not fit.
func PackSaved(at, plus uint32) (c uint32, ok bool) { return at | plus<<12, at <= 0xfff && plus <= 0xf }

// PackInReg gives the c of GuessReg for the results of [Rule.InReg] in words. ok is false if they do
// not fit.
func PackInReg(reg uint8, plus uint32) (c uint32, ok bool) {
	return uint32(reg) | plus<<4, reg <= 0xf && plus <= 0xfff
}

// InWords turns a distance in bytes into words. ok is false if it does not fit into a rule.
func InWords(n int64) (words uint32, ok bool) {
	if n < 0 || n%8 != 0 || n/8 > MaxCFA {
		return 0, false
	}
	return uint32(n / 8), true
}

// names are the names of the kinds, and of the rules that share a kind.
var names = map[Rule]string{
	None: "none", FromSP: "from SP", FromBP: "from BP", Wide: "wide", Realigned: "realigned",
	FromSaved: "from a saved SP", Sigframe: "signal frame", OtherStack: "other stack",
	GuessSP: "guess from SP", GuessBP: "guess from BP", GuessSaved: "guess from a saved SP",
	GuessReg: "guess from a register", EndOfStack: "end of stack", Local: "local", General: "general",
	Uncovered: "uncovered", EntryCode: "entry code", Malformed: "malformed", Unreadable: "unreadable",
	FromC: "called from C", NewThread: "new thread", EHReturn: "eh_return",
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

// A WideRule is a rule of the kind FromSP or FromBP with numbers of any size.
type WideRule struct {
	Kind    Rule
	CFA, BP uint64 // in bytes; BP is 0 where BP is not saved
}

// WideAt is the rule of the kind Wide whose numbers are at an index.
func WideAt(i int) Rule { return Wide | Rule(i)<<4 }

// Offsets in rt_sigframe from the SP after a handler has returned: the ucontext begins
// there, and 40 bytes further on its mcontext
// (arch/x86/include/uapi/asm/sigcontext.h, struct sigcontext_64).
const (
	SigBP = 120
	SigSP = 160
	SigIP = 168
)
