package unwind

import (
	"slices"

	"unspool/dwarfcfi"
	"unspool/unwind/asm"
	"unspool/unwind/rule"
)

// This file finds callers where neither CFI nor the frame pointer says how, or one of them is wrong, and the
// code says more.

// savedSP finds the caller of the sampled function f, at p, whose CFI has the SP that it was entered
// with in a word that was not copied, as OpenSSL's SHA-512 has it below SP. Such functions keep that
// SP in other words, too, for as long as they do not write over them. It leads to the return address,
// and that follows a call that names this function.
func (w *walk) savedSP(p *place, f *frame) (next frame, ok bool) {
	const (
		words = 512
		room  = 16 << 10 // bytes of a frame
		tries = 8
	)
	var row dwarfcfi.Row
	if len(w.ips) != 1 || f.sp%8 != 0 || p.row(f.pc, &row) != nil || row.CFA.Kind != dwarfcfi.CFAExpression {
		return next, false
	}
	began, ok := w.modules.Begin()
	if !ok {
		return next, false
	}
	defer w.modules.End(began)
	for i, tried := uint64(0), 0; i < words && tried < tries; i++ {
		at := f.sp + 8*i
		sp, ok := w.stack.word(at)
		if !ok {
			break
		}
		if sp <= at || sp-f.sp > room || sp%8 != 0 {
			continue
		}
		pc, ok := w.stack.word(sp)
		if !ok || pc-p.m.Start-1 >= p.m.End-p.m.Start || !w.followsCall(pc) {
			continue
		}
		if tried++; p.leadsTo(pc, f.pc) {
			return w.calledAt(pc, sp, f, &row)
		}
	}
	return next, false
}

// leadsTo reports whether the call before pc calls the function around callee directly, or one that soon jumps to the
// start of that. Both lie at p.
func (p *place) leadsTo(pc, callee uint64) bool {
	const choosing = 512 // bytes of a function that jumps to one of several by the processor's features
	c, addr := p.module.CodeAt(p.m, pc-1)
	to, _, ok := p.module.FDE(p.m, callee)
	if c == nil || !ok {
		return false
	}
	target, ok := c.DirectCall(addr + 1)
	if !ok || target == to.Start {
		return ok
	}
	d, _, ok := p.module.FDE(p.m, target+pc-1-addr)
	if !ok || d.Start != target {
		return false
	}
	exits, _ := c.Exits(d.Start, min(d.End, d.Start+choosing))
	return slices.ContainsFunc(exits, func(x asm.Exit) bool { return !x.Indirect && x.Target == to.Start })
}

// calledAt is the caller of f, which has a row: its return address pc is at sp, the value of SP when f was
// entered.
func (w *walk) calledAt(pc, sp uint64, f *frame, row *dwarfcfi.Row) (next frame, ok bool) {
	next = frame{pc: pc, sp: sp + 8, bp: f.bp}
	switch how := &row.Regs[rule.BP]; how.Kind {
	case dwarfcfi.Offset:
		next.bp, ok = w.stack.word(next.sp + uint64(how.Offset))
		return next, ok
	case dwarfcfi.Unspecified, dwarfcfi.SameValue:
		return next, true
	}
	return next, false
}

// straight finds the caller of f, a sampled or interrupted function at p, instead of next, to which its CFI
// leads and which is in no mapping: mono's compiler has the rows for the end of a function right behind its
// prologue instead. The code leads from f straight to its ret, or straight there from the function's start.
func (w *walk) straight(p *place, f *frame, next frame) (frame, Source) {
	if w.Strict || !f.exact || p.module == nil {
		return next, ByCFI
	}
	low, _, ok := p.function(f.pc)
	if !ok {
		return next, ByCFI
	}
	if caller, ok := w.leaving(f); ok {
		return caller, ByHeuristic
	}
	code, addr := w.codeAt(f.pc)
	if code == nil {
		return next, ByCFI
	}
	r, ok := code.StraightFrom(low-f.pc+addr, addr)
	if !ok || r.Kind() != rule.GuessSP {
		return next, ByCFI
	}
	if caller, source, end := w.guess(p, f, r); end == stepped && source == ByHeuristic {
		return caller, source
	}
	return next, ByCFI
}

// pushedMore finds the caller of f, a sampled or interrupted function at p, whose CFI counts the
// CFA from SP and leaves out what the function has pushed since its row began, as that of
// glibc's memcpy for i386 does. The code says how much it is. What the function did to other
// registers may not be in its CFI either.
func (w *walk) pushedMore(p *place, f *fullFrame, row *dwarfcfi.Row) (caller fullFrame, ok bool) {
	arch, word := f.arch, uint64(f.arch.WordSize)
	if w.Strict || !f.exact || arch != rule.I386 || row.Signal ||
		row.CFA.Kind != dwarfcfi.CFARegister || int(row.CFA.Reg) != arch.SP {
		return caller, false
	}
	code, addr := p.module.CodeAt(p.m, f.pc())
	if code == nil {
		return caller, false
	}
	n, ok := code.Pushed386(row.Start, addr)
	cfa := (f.sp() + uint64(row.CFA.Offset) + uint64(n)) & arch.Mask
	if !ok || n == 0 || cfa < f.sp()+word {
		return caller, false
	}
	pc, ok := w.stack.uint(cfa-word, arch.WordSize)
	if !ok || !w.followsCall(pc) {
		return caller, false
	}
	caller.arch = arch
	caller.regs.set(arch.IP, pc)
	caller.regs.set(arch.SP, cfa)
	if bp, known := f.regs.Get(arch.BP); known && row.Regs[arch.BP].Kind == dwarfcfi.Unspecified {
		caller.regs.set(arch.BP, bp)
	}
	return caller, true
}

// straightOut finds the caller of f, a sampled or interrupted function at p without CFI, whose code leads
// straight to its ret, or to where it makes its frame: BP is not its frame pointer there. f may also have
// called a sampled function that is about to return, such as those that tell 32-bit code its own address.
func (w *walk) straightOut(p *place, f *fullFrame) (caller fullFrame, ok bool) {
	returns := f.exact || len(w.ips) == 2 && w.frames[1].Source == ByHeuristic
	if w.Strict || !returns || f.arch != rule.I386 {
		return caller, false
	}
	way, ok := w.wayOut386(p, f.pc())
	at := (f.sp() + uint64(way.ReturnAt)) & f.arch.Mask
	if !ok || at < f.sp() {
		return caller, false
	}
	pc, ok := w.stack.uint(at, f.arch.WordSize)
	if !ok || !w.followsCall(pc) {
		return caller, false
	}
	caller.arch = f.arch
	caller.regs.set(f.arch.IP, pc)
	caller.regs.set(f.arch.SP, (at+uint64(f.arch.WordSize))&f.arch.Mask)
	bp, known := f.regs.Get(f.arch.BP)
	if way.Writes != 0 {
		bp, known = w.stack.uint(f.sp()+uint64(way.BPAt), f.arch.WordSize)
		known = known && way.BPAt >= 0
	}
	if known {
		caller.regs.set(f.arch.BP, bp)
	}
	return caller, true
}

// wayOut386 is [asm.Code.WayOut386] for the code at pc, which lies at p.
func (w *walk) wayOut386(p *place, pc uint64) (way asm.WayOut, ok bool) {
	switch {
	case p.jit != nil:
		return w.jit.WayOut386(p.jit, p.m, pc)
	case p.module != nil:
		if code, addr := p.module.CodeAt(p.m, pc); code != nil {
			return code.WayOut386(addr)
		}
	}
	return way, false
}

// What follows is about functions that the frame pointer passes over. Code that makes no frame and calls
// nothing, but jumps to another function in the end, has the BP of whoever called it. The frame to which that
// leads is the one of the direct caller, and the return address above it is that of the caller's caller.

// mostWords is how many words between SP and BP are looked at for a return address.
const mostWords = 1 << 10

// passedOver gives the direct caller of f, a frame that was interrupted, where next is the one to which the
// frame pointer leads: the call before next's PC has called a function that made the frame, and f is in one
// that has made none. There is only one return address into the former between SP and its frame: of what it
// called before nothing is left there, as that was below its SP. If the direct caller is not found, lost says
// that next cannot be it: the function that made the frame is left by returning only, and f is not in it.
func (w *walk) passedOver(f, next *frame) (caller frame, found, lost bool) {
	var to place
	if !w.locate(&to, next.pc-1) || to.module == nil || to.jit != nil {
		return caller, false, false
	}
	c, addr := to.module.CodeAt(to.m, next.pc-1)
	if c == nil {
		return caller, false, false
	}
	start, ok := c.FrameCalled(addr + 1)
	if !ok {
		return caller, false, false
	}
	began, ok := w.modules.Begin()
	if !ok {
		return caller, false, false
	}
	defer w.modules.End(began)
	base := next.pc - 1 - addr // what an address of the image is mapped at, less that address
	end := c.EndOfReturning(start)
	lost = end != 0 && f.pc-base-start >= end-start
	if at, pc, ok := w.onlyReturn(c, start, end, base, f.sp, f.bp); ok && at+8 <= f.bp-c.FrameSize(start) {
		here, pcHere := w.codeAt(f.pc)
		switch {
		case lost && w.isEntering(f, at):
		case here == nil || !here.Frameless(pcHere):
			return caller, false, lost
		case end == 0 && !c.Within(start, pc-base):
			return caller, false, false
		}
		return frame{pc: pc, sp: at + 8, bp: f.bp}, true, false
	}
	return caller, false, lost
}

// isEntering reports whether f has pushed nothing yet, or BP only, on a return address at an address of the
// stack.
func (w *walk) isEntering(f *frame, at uint64) bool {
	if at == f.sp {
		return true
	}
	saved, ok := w.stack.word(f.sp)
	return ok && at == f.sp+8 && saved == f.bp
}

// onlyReturn finds the only address from sp to bp that may be one in the function from start to end to which
// a call returns, and where it is first: code that moves its arguments leaves it where it was, too.
func (w *walk) onlyReturn(c *asm.Code, start, end, base, sp, bp uint64) (at, pc uint64, ok bool) {
	for a := sp; a < min(bp, sp+8*mostWords); a += 8 {
		v, there := w.stack.word(a)
		switch {
		case !there:
			return 0, 0, false
		case ok && v == pc, !c.MayReturn(start, end, v-base):
		case ok:
			return 0, 0, false
		default:
			at, pc, ok = a, v, true
		}
	}
	return at, pc, ok
}

// leafCaller finds the caller of f, a frame that was interrupted, if the word at SP is a return address
// behind a direct call of its function, and that has touched neither SP nor BP since. Where the code behind f
// jumps by a table, it does not tell where the return address is.
func (w *walk) leafCaller(f *frame) (caller frame, ok bool) {
	if !f.exact {
		return caller, false
	}
	pc, ok := w.stack.word(f.sp)
	if !ok {
		return caller, false
	}
	c, addr := w.codeAt(f.pc)
	from, back := w.codeAt(pc - 1)
	if c == nil || c != from {
		return caller, false
	}
	start, ok := c.DirectCall(back + 1)
	if !ok {
		return caller, false
	}
	began, ok := w.modules.Begin()
	if !ok {
		return caller, false
	}
	defer w.modules.End(began)
	return frame{pc: pc, sp: f.sp + 8, bp: f.bp}, c.Untouched(start, addr)
}
