package unwind

import (
	"unspool/dwarfcfi"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// The walk of 32-bit programs on a 64-bit kernel. It is a sibling of the one
// for x86-64 and ends for the same reasons. They are rare, so there is one
// evaluator: every frame has all its registers, and a PC's row is kept with
// the image as the CFI gave it.

const wordSize386 = 4

// Regs386 is a set of i386 register values by DWARF number, with a bit for
// each one whose value is known. Values have 32 bits.
type Regs386 struct {
	Value [rule.NumRegs386]uint64
	Known uint32
}

func (r *Regs386) set(n int, v uint64) {
	r.Value[n] = uint64(uint32(v))
	r.Known |= 1 << n
}

func (r *Regs386) get(n int) (v uint64, known bool) {
	if n < 0 || n >= rule.NumRegs386 {
		return 0, false
	}
	return r.Value[n], r.Known>>n&1 != 0
}

// perfOrder386 gives the DWARF number of each register in the kernel's order,
// as perfOrder does: AX BX CX DX SI DI BP SP IP, and no other that matters.
var perfOrder386 = [9]int8{0, 3, 1, 2, 6, 7, 5, 4, 8}

// SetPerf fills r from the user registers of a sample whose ABI is
// PERF_SAMPLE_REGS_ABI_32: word(i) is the i-th register that mask selects. It
// does not allocate.
func (r *Regs386) SetPerf(mask uint64, n int, word func(i int) uint64) {
	r.Known = 0
	i := 0
	for bit := 0; bit < len(perfOrder386) && i < n; bit++ {
		if mask>>bit&1 != 0 {
			r.set(int(perfOrder386[bit]), word(i))
			i++
		}
	}
}

// A frame386 is a frame with its registers. exact is as in frame.
type frame386 struct {
	Regs386
	exact bool
}

func (f *frame386) pc() uint64 { return f.Value[rule.IP386] }
func (f *frame386) sp() uint64 { return f.Value[rule.SP386] }

func (f *frame386) lookup() uint64 {
	if f.exact {
		return f.pc()
	}
	return uint64(uint32(f.pc() - 1))
}

// Unwind386 is [Unwinder.Unwind] for a sample of i386 code.
func (u *Unwinder) Unwind386(space *vmas.Space, regs *Regs386, stack *Stack) Result {
	f := frame386{Regs386: *regs, exact: true}
	w := u.begin(space, stack)
	w.push(&frame{pc: f.pc(), sp: f.sp()}, BySample)

	var p place
	if !w.locate(&p, f.lookup()) {
		return w.end(Unmapped, nil)
	}
	for {
		live := w.moves.live
		source, reason := w.step386(&p, &f)
		if reason != stepped {
			return w.end(reason, p.m)
		}
		if live {
			source = ByLive
		}
		at := p.m
		if !w.locate(&p, f.lookup()) {
			return w.end(Unmapped, at)
		}
		if len(w.ips) >= w.MaxFrames {
			return w.end(DepthLimit, at)
		}
		w.push(&frame{pc: f.pc(), sp: f.sp()}, source)
	}
}

// step386 turns f, which lies at p, into its caller.
func (w *walk) step386(p *place, f *frame386) (Source, Reason) {
	kind, row := rule.Uncovered, (*dwarfcfi.Row)(nil)
	if p.image != nil {
		kind, row = p.image.Row386(p.m, f.lookup())
	}
	switch kind {
	case rule.General:
	case rule.EndOfStack:
		return ByCFI, Root
	case rule.EntryCode:
		if isProcessStart386(w.stack, f.sp()) {
			return ByCFI, Root
		}
		return w.framePointer386(p, f)
	case rule.Uncovered:
		if !f.exact && p.image != nil && p.image.EndsContext(p.m, f.pc()) {
			return ByCFI, Root
		}
		return w.framePointer386(p, f)
	case rule.Unreadable:
		return ByCFI, NoImage
	default:
		return ByCFI, BadCFI
	}

	from := f.sp()
	e := evaluation386{row: row, old: f.Regs386, stack: w.stack, pc: f.lookup(), missing: stepped}
	if !e.caller(&f.Regs386) {
		if e.missing != stepped && w.moves.switched {
			return ByCFI, DumpTooShort
		}
		return ByCFI, e.why()
	}
	f.exact = row.Signal
	if row.Signal {
		return ByCFI, w.interrupted(from, f.sp())
	}
	if f.sp() <= from {
		return ByCFI, BadCFI
	}
	return ByCFI, stepped
}

// framePointer386 turns f into its caller through the saved frame pointer, as
// framePointer does.
//
// The functions of the 32-bit vDSO have a frame pointer and no CFI
// (arch/x86/entry/vdso), while its callers rarely have one: the saved value
// need not continue a chain if there is CFI for the return address.
func (w *walk) framePointer386(p *place, f *frame386) (Source, Reason) {
	at, known := f.get(rule.BP386)
	if w.Strict || !known || at < f.sp() || at%wordSize386 != 0 {
		return ByFramePointer, NoCFI
	}
	bp, ok1 := w.stack.uint(at, wordSize386)
	pc, ok2 := w.stack.uint(at+wordSize386, wordSize386)
	if !ok1 || !ok2 {
		if w.stack.miss(at+wordSize386) == DumpTooShort {
			return ByFramePointer, DumpTooShort
		}
		return ByFramePointer, NoCFI
	}
	var caller place
	if !w.locate(&caller, uint64(uint32(pc-1))) {
		return ByFramePointer, NoCFI
	}
	if bp != 0 && bp <= at {
		if p.m.File.Kind != vmas.VDSO || caller.image == nil {
			return ByFramePointer, NoCFI
		}
		kind, _ := caller.image.Row386(caller.m, uint64(uint32(pc-1)))
		if kind != rule.General && kind != rule.EndOfStack {
			return ByFramePointer, NoCFI
		}
	}
	// What the frame did to the other registers is unknown.
	*f = frame386{}
	f.set(rule.IP386, pc)
	f.set(rule.SP386, at+2*wordSize386)
	f.set(rule.BP386, bp)
	return ByFramePointer, stepped
}

// isProcessStart386 says whether what the kernel puts on the stack of a new
// program is at SP: argc, argv and a zero (System V ABI, Intel386 supplement,
// figure 3-31). Start code has aligned SP and pushed arguments below: the
// dynamic linker's, eight words.
func isProcessStart386(stack *Stack, sp uint64) bool {
	const mostArgs, mostBelow = 1 << 16, 12
	for at := sp; at <= sp+mostBelow*wordSize386; at += wordSize386 {
		argc, ok := stack.uint(at, wordSize386)
		if !ok || argc == 0 || argc > mostArgs {
			continue
		}
		first, ok1 := stack.uint(at+wordSize386, wordSize386)
		last, ok2 := stack.uint(at+wordSize386*(1+argc), wordSize386)
		if ok1 && ok2 && first > at && last == 0 {
			return true
		}
	}
	return false
}

// An evaluation386 applies the rules of one row, as evaluation does.
type evaluation386 struct {
	row     *dwarfcfi.Row
	old     Regs386
	stack   *Stack
	pc      uint64
	missing Reason // why memory could not be read
}

func (e *evaluation386) why() Reason {
	if e.missing != stepped {
		return e.missing
	}
	return BadCFI
}

// caller sets regs to the caller's registers. It reports false when there is
// no return address to be had.
func (e *evaluation386) caller(regs *Regs386) bool {
	cfa, ok := e.cfa()
	if !ok {
		return false
	}
	next := e.old
	for n := range e.row.Regs[:rule.NumRegs386] {
		how := &e.row.Regs[n]
		if how.Kind == dwarfcfi.Unspecified || how.Kind == dwarfcfi.SameValue {
			continue
		}
		next.Known &^= 1 << n
		if v, ok := e.register(n, how, cfa); ok {
			next.set(n, v)
		}
	}
	if e.row.Regs[rule.SP386].Kind == dwarfcfi.Unspecified {
		next.set(rule.SP386, cfa)
	}
	ra, known := next.get(int(e.row.RA))
	if _, ok := next.get(rule.SP386); !known || !ok || e.row.Regs[e.row.RA].Kind == dwarfcfi.Unspecified {
		return false
	}
	next.set(rule.IP386, ra)
	*regs = next
	return true
}

func (e *evaluation386) cfa() (uint64, bool) {
	how := &e.row.CFA
	switch how.Kind {
	case dwarfcfi.CFARegister:
		v, ok := e.reg(int(how.Reg))
		return uint64(uint32(v + uint64(how.Offset))), ok
	case dwarfcfi.CFAExpression:
		return e.eval(e.row.CFAExpr())
	}
	return 0, false
}

// register is the caller's value of register n.
func (e *evaluation386) register(n int, how *dwarfcfi.RegRule, cfa uint64) (uint64, bool) {
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

// saved reads register n from where it was saved, unless that was popped.
func (e *evaluation386) saved(n int, addr uint64) (uint64, bool) {
	addr = uint64(uint32(addr))
	if sp, ok := e.old.get(rule.SP386); ok && addr < sp && n != int(e.row.RA) {
		return e.old.get(n)
	}
	return e.read(addr, wordSize386)
}

// reg is a register of the frame. The PC is the one that was looked up.
func (e *evaluation386) reg(n int) (uint64, bool) {
	if n == rule.IP386 {
		return e.pc, true
	}
	return e.old.get(n)
}

func (e *evaluation386) read(addr uint64, size int) (uint64, bool) {
	v, ok := e.stack.uint(addr, size)
	if !ok {
		e.missing = e.stack.miss(addr)
	}
	return v, ok
}

// eval evaluates an expression on a stack that holds the initial values. The
// two that compilers and the vDSO use, register + offset and what lies there
// (realigned stacks and signal frames), need no evaluator and no memory.
func (e *evaluation386) eval(expr []byte, initial ...uint64) (uint64, bool) {
	if reg, off, deref, ok := rule.RegisterExpr(expr); ok && reg < rule.NumRegs386 {
		v, known := e.reg(int(reg))
		v = uint64(uint32(v + uint64(off)))
		if !known || !deref {
			return v, known
		}
		return e.read(v, wordSize386)
	}
	return e.evalAny(expr, initial)
}

func (e *evaluation386) evalAny(expr []byte, initial []uint64) (uint64, bool) {
	regs := e.old
	regs.set(rule.IP386, e.pc)
	stack, missing := e.stack, Reason(stepped)
	v, err := dwarfcfi.Eval(expr, &dwarfcfi.Values{
		Regs:  regs.Value[:],
		Known: uint64(regs.Known),
		Read: func(addr uint64, size int) (uint64, bool) {
			v, ok := stack.uint(addr, size)
			if !ok {
				missing = stack.miss(addr)
			}
			return v, ok
		},
		PtrSize: wordSize386,
	}, append([]uint64(nil), initial...)...)
	if missing != stepped {
		e.missing = missing
	}
	return v, err == nil
}
