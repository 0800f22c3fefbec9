package gotab

import (
	"errors"

	"unspool/dwarfcfi"

	"unspool/unwind/rule"
)

// Rule gives the rule for an address in the image. ok is false if the address lies
// in no Go function. The rule is rule.OtherStack in those parts of assembly functions
// where SP points to another stack, while BP still points to the function's frame on
// the old one (systemstack, asmcgocall, the vDSO calls of nanotime1 and time.now), or is
// zero (morestack: see [Growth]). There the .debug_frame of unstripped Go binaries is wrong as well.
//
// For compiled code the CFA is SP + delta + 8. In every function with a frame, the
// caller's BP is saved at CFA-16.
//
//	goexit, mstart, rt0_go           rule.EndOfStack
//	mcall, clone's child             rule.EndOfStack once SP is switched: nothing called that stack's code
//	clone                            rule.NewThread from its system call up to there, where the child has that
//	                                 SP already
//	cgocallback                      by its table throughout: both stacks have its frame, and the
//	                                 goroutine's goes on with systemstack_switch, put there by asmcgocall.
//	                                 rule.FromC while SP is switched: who called it is on the other stack
//	sigreturn__sigaction             sigframe, also for the byte before it, at which the return
//	                                 address to it is looked up
//	asyncPreempt, sigpanic           local: they return to an instruction that a signal interrupted
//	rawVforkSyscall                  general while a register has the return address
//	racecall, msancall, asancall     general while a register has the SP of entry
//	gogo, and other code that        malformed: it is not known where the caller is
//	writes SP without a frame
func (t *Table) Rule(addr uint64) (r rule.Rule, ok bool) {
	index, ok := t.index(addr)
	if !ok {
		return rule.None, false
	}
	if t.isSigreturn(index, addr) || t.isSigreturn(index+1, addr+1) {
		return rule.Sigframe, true
	}
	f, ok := t.frame(index, addr)
	switch {
	case !ok:
		return rule.None, false
	case f.kind != rule.FromSP && f.kind != rule.FromBP:
		return f.kind, true
	case f.fromC:
		return rule.FromC, true
	case f.isNew:
		return rule.NewThread, true
	case f.ra != rule.IP, f.held != 0:
		return rule.General, true
	case f.exact || f.cfa/8 > rule.MaxCFA:
		return rule.Local, true
	}
	return f.kind.With(uint32(f.cfa/8), uint32(f.bp/8)), true
}

// ErrNotGo means that an address is in no Go function.
var ErrNotGo = errors.New("no Go function")

// Row gives the same as a CFI row, for the general evaluator. The error is
// [dwarfcfi.ErrNoFDE] if there is no such row in a Go function, as for the signal
// frame, and ErrNotGo outside of Go functions.
func (t *Table) Row(addr uint64, row *dwarfcfi.Row) error {
	index, ok := t.index(addr)
	if !ok {
		return ErrNotGo
	}
	f, ok := t.frame(index, addr)
	switch {
	case !ok:
		return ErrNotGo
	case f.kind == rule.Malformed || f.kind == rule.OtherStack:
		return dwarfcfi.ErrNoFDE
	}
	*row = dwarfcfi.Row{Start: addr, End: addr + 1, RA: rule.IP, Signal: f.exact}
	row.CFA = dwarfcfi.CFARule{Kind: dwarfcfi.CFARegister, Reg: rule.SP, Offset: int64(f.cfa)}
	row.Regs[rule.IP] = dwarfcfi.RegRule{Kind: dwarfcfi.Offset, Offset: -8}
	switch {
	case f.ra != rule.IP:
		row.Regs[rule.IP] = dwarfcfi.RegRule{Kind: dwarfcfi.Register, Reg: uint16(f.ra)}
	case f.kind == rule.EndOfStack:
		row.Regs[rule.IP] = dwarfcfi.RegRule{Kind: dwarfcfi.Undefined}
	case f.kind == rule.FromBP:
		row.CFA.Reg = rule.BP
	case f.held != 0:
		row.CFA.Reg = f.held
	}
	if f.bp != 0 {
		row.Regs[rule.BP] = dwarfcfi.RegRule{Kind: dwarfcfi.Offset, Offset: -int32(f.bp)}
	}
	// Go code saves no other register for its caller.
	for _, reg := range [...]int{3, 12, 13, 14, 15} {
		row.Regs[reg] = dwarfcfi.RegRule{Kind: dwarfcfi.Undefined}
	}
	return nil
}

// goFrame is a frame of a Go function: a rule before it is packed.
type goFrame struct {
	kind  rule.Rule // rule.FromSP, FromBP, OtherStack, EndOfStack or Malformed
	cfa   uint64    // from SP or BP, in bytes
	bp    uint64    // where BP is saved, below the CFA; 0 is "not saved"
	ra    uint8     // the register that has the return address; rule.IP if it is on the stack
	held  uint8     // the register that the CFA is counted from instead of SP; 0 for none
	exact bool      // the caller was interrupted, and did not make a call
	fromC bool      // it was called by C code, whose frames are on another stack
	isNew bool      // nothing called it where it is a new thread
}

// frame gives the frame at addr, which lies in a function.
func (t *Table) frame(index uint32, addr uint64) (f goFrame, ok bool) {
	entry, ok := t.entry(index)
	if !ok {
		return f, false
	}
	off := uint32(addr - t.text - t.start(index))
	var a asmFunc
	known := t.assembly(index, &entry)
	isAsm := known != nil
	if isAsm {
		a = *known
	}
	if a.kind == root {
		return goFrame{kind: rule.EndOfStack, ra: rule.IP}, true
	}

	// The frame begins where SP is first changed. Up to there BP is the caller's.
	s := t.deltas(&entry)
	start := ^uint32(0)
	for {
		if !s.next() {
			return f, false
		}
		if s.value != 0 && start == ^uint32(0) {
			start = s.from
		}
		if off < s.to {
			break
		}
	}
	if s.value == -8 && a.popped != 0 {
		return goFrame{kind: rule.FromSP, ra: a.popped}, true
	}
	if s.value < 0 || s.value%8 != 0 {
		return goFrame{kind: rule.Malformed, ra: rule.IP}, true
	}
	f = goFrame{kind: rule.FromSP, cfa: uint64(s.value) + 8, ra: rule.IP, exact: a.kind == injected}
	set := s.value != 0 && off != start && (a.savesBP || !isAsm)
	if set {
		f.bp = 16
	}
	if a.spWritten == 0 || off < a.spWritten {
		f.isNew = a.kind == newStack && a.called > 0 && a.called <= off
		return f, true
	}

	switch {
	case a.kind == callback:
		// The slot for BP on the goroutine's stack was not written.
		f.bp, f.fromC = 0, a.spBack == 0 || off < a.spBack
		return f, true
	case a.kind == newStack:
		return goFrame{kind: rule.EndOfStack, ra: rule.IP}, true
	case a.kind == grow: // BP is zero, and leads nowhere
		return goFrame{kind: rule.OtherStack, ra: rule.IP}, true
	case a.savesBP && s.value == 0:
		return f, true // SP is on its own stack again, and BP was popped
	case a.held != 0 && a.heldFrom <= off:
		if off < a.heldTo {
			f.held = a.held
		}
		return f, true
	case !set || a.bpWritten && a.kind != onward:
		return goFrame{kind: rule.Malformed, ra: rule.IP}, true
	case a.aligns:
		return goFrame{kind: rule.FromBP, cfa: 16, bp: 16, ra: rule.IP}, true
	}
	return goFrame{kind: rule.OtherStack, ra: rule.IP}, true
}
