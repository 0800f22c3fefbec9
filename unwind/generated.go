package unwind

import (
	"unspool/dwarfcfi"
	"unspool/unwind/asm"
	"unspool/unwind/jit"
	"unspool/unwind/module"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// generated finds the caller of a frame in generated code that has no frame pointer and no ret instruction
// near.
func (w *walk) generated(p *place, f *frame) (next frame, source Source, end Reason) {
	if !w.Strict {
		if caller, ok := w.jumpsBack(p, f); ok {
			return caller, ByHeuristic, stepped
		}
		r := w.jit.RuleFarther(p.jit, w.space, f.pc, f.lookup())
		if r != rule.Uncovered {
			if next, source, end = w.guess(p, f, r); end == stepped {
				return next, source, end
			}
		}
	}
	return w.hosted(f)
}

// jumpsBack finds the caller of the sampled frame f, in generated code at p, whose next instruction is a jump
// to the return address: it has popped that into a register.
func (w *walk) jumpsBack(p *place, f *frame) (caller frame, ok bool) {
	if len(w.ips) != 1 || w.sample == nil {
		return caller, false
	}
	reg, ok := w.jit.JumpRegister(p.jit, p.m, f.pc)
	if !ok {
		return caller, false
	}
	pc, ok := w.held(reg)
	if !ok || !w.followsCall(pc) || !w.mayLeave(pc) {
		return caller, false
	}
	var to place
	if !w.locate(&to, pc) || to.module == nil || to.jit != nil {
		return caller, false
	}
	low, _, ok := to.function(pc)
	return frame{pc: pc, sp: f.sp, bp: f.bp}, ok && low != pc // a function may begin behind a call
}

// hosted finds the caller of a frame whose code runs on the frame of the interpreter that jumped to it, as
// LuaJIT's traces do: they make room for themselves below that frame, and nothing tells how much.
//
// Such an interpreter is assembly, unless hostCalled says otherwise. Its CFI gives one frame to all of
// it, from the first instruction on, where every other function still has CFA = SP + 8. So the return
// address of a call of such a function is looked for on the stack. With it the interpreter's frame is
// known, and the CFI says the rest. Nothing is passed over that may be such an address in a file that has
// not been read yet.
func (w *walk) hosted(f *frame) (next frame, source Source, end Reason) {
	const most = 256 // words: the spill slots of a trace, and a frame
	if w.Strict || f.sp%8 != 0 {
		return next, ByHeuristic, NoCFI
	}
	for i := range uint64(most) {
		at := f.sp + 8*i
		pc, ok := w.stack.word(at)
		if !ok {
			break
		}
		var p place
		if !w.locate(&p, pc-1) || p.module != nil && p.rules.Hostless.Get(pc-1-p.bias) == rule.Yes {
			continue
		}
		before := w.modules.Arrivals()
		entry, cfa, ok := w.interpreterCalled(pc)
		if !ok {
			var to callee
			entry, cfa, to = w.hostCalled(pc, at+8-f.sp)
			if to == unreadCallee || to != host && w.isLate(pc-1) {
				break
			}
			// Code that has come since interpreterCalled could not read it may be that of an interpreter.
			if to == noHost && p.module != nil && w.modules.Arrivals() == before {
				p.rules.Hostless.Put(pc-1-p.bias, true)
			}
			ok = to == host
		}
		if !ok || at+8-cfa < f.sp || cfa > at+8 {
			continue
		}
		host := frame{pc: entry, sp: at + 8 - cfa, bp: f.bp, exact: true}
		if !w.locate(&p, entry) {
			continue
		}
		moves := w.moves
		w.moves = stackMoves{}
		next, _, end = w.step(&p, &host)
		w.moves = moves
		switch {
		case end == stepped && next.pc == pc:
			return next, ByHeuristic, stepped
		case end != stepped && w.isLate(entry):
			return frame{}, ByHeuristic, NoCFI
		}
	}
	return frame{}, ByHeuristic, NoCFI
}

// hostCalled is interpreterCalled for an interpreter that is written in C, such as PHP's. It has its full
// frame when it jumps to generated code, which adds little or nothing below. So distance, from SP in the
// generated code to the CFA, tells whether the called function is the interpreter. If it is called through a
// pointer, that is read from the process.
func (w *walk) hostCalled(pc, distance uint64) (at, cfa uint64, to callee) {
	const room = 32
	var from place
	if !w.locate(&from, pc-1) || from.module == nil {
		return 0, 0, otherCallee
	}
	c, addr := from.module.CodeAt(from.m, pc-1)
	if c == nil {
		return 0, 0, otherCallee
	}
	entry, direct := c.DirectCall(addr + 1)
	if direct {
		entry += pc - 1 - addr
	} else {
		pointer, ok := c.PointerCalled(addr + 1)
		if !ok {
			return 0, 0, noHost
		}
		if entry, ok = w.jit.Pointer(w.generatedCode(), pointer+pc-1-addr); !ok {
			return 0, 0, otherCallee
		}
	}
	switch h, known := w.hostAt(entry); {
	case !known:
		return 0, 0, unreadCallee
	case h.cfa == 0 && direct && h.module == from.module:
		return 0, 0, noHost
	case h.cfa != 0 && distance >= h.cfa && distance-h.cfa <= room:
		return h.at, h.cfa, host
	}
	return 0, 0, otherCallee
}

// A callee is what a call leads to.
type callee uint8

const (
	host         callee = iota // an interpreter, with its full frame
	otherCallee                // something else, this time or in this process
	noHost                     // something else, as often as it is called in any process
	unreadCallee               // code of a file that has not been read yet
)

// A hostFrame is the frame of an interpreter where it jumps to other code: the address of that instruction,
// and the distance from SP to the CFA there.
type hostFrame struct {
	module  module.Module
	at, cfa uint64
}

// hostAt gives the frame of the function that begins at entry, with a CFA of 0 if it is no interpreter. It is
// not known while the file has not been read.
func (w *walk) hostAt(entry uint64) (h hostFrame, known bool) {
	const most = 1024
	m := w.space.Find(entry)
	if m == nil {
		return h, true
	}
	code := w.modules.Module(w.space.PID, m)
	if code == nil {
		return h, !m.File.Kind.HasImage()
	}
	if h, ok := w.hosts[entry]; ok && h.module == code {
		return h, true
	}
	if !code.State().Read {
		return h, false
	}
	h.module = code
	before := w.modules.Arrivals()
	if at, cfa, ok := dispatchFrame(code, m, entry); ok {
		h.at, h.cfa = at, cfa
	} else if c, _ := code.CodeAt(m, entry); c == nil {
		return h, !code.State().Late
	} else if w.modules.Arrivals() != before {
		return h, false // a piece came that was missed
	}
	if w.hosts == nil || len(w.hosts) >= most {
		w.hosts = make(map[uint64]hostFrame)
	}
	w.hosts[entry] = h
	return h, true
}

// dispatchFrame gives the address where the function that begins at pc, which lies in m, jumps through a pointer in
// memory, as interpreters of threaded code do, and the distance from SP to the CFA there. Only jumps where the function
// has its largest frame are considered: before a tail call the frame is gone. ok is false if there is no such jump.
func dispatchFrame(in module.Module, m *vmas.Mapping, pc uint64) (at, size uint64, ok bool) {
	const most = 256 << 10 // bytes of code that are searched
	d, addr, ok := in.FDE(m, pc)
	code, _ := in.CodeAt(m, pc)
	if !ok || code == nil || d.Start != addr {
		return 0, 0, false
	}
	size = largestFrame(&d)
	left := uint64(most)
	for row, err := range d.Rows() {
		if err != nil || size <= 8 || row.End-row.Start > left {
			break
		}
		if rule.CFAAboveSP(row) != size {
			continue
		}
		if jump, ok := code.Dispatch(row.Start, row.End); ok {
			return pc + jump - addr, size, !in.State().Late
		}
		left -= row.End - row.Start
	}
	return 0, 0, false
}

// largestFrame gives the largest distance from SP to the CFA in a function, 0 if it has too many rows.
func largestFrame(d *dwarfcfi.FDE) (size uint64) {
	const most = 1 << 12 // rows of an interpreter's CFI
	n := 0
	for row, err := range d.Rows() {
		if n++; err != nil || n > most {
			return 0
		}
		size = max(size, rule.CFAAboveSP(row))
	}
	return size
}

// resume continues the walk above f, a frame of generated code whose caller cannot be found, at the next
// return address in the code of a file. It must follow a call that can lead to generated code, and the CFI
// must lead from there to the root. More frames of generated code may be missing between, and the return
// address may be left over from a call that has returned. So these frames have a source of their own, and do
// not make the stack complete.
func (w *walk) resume(f *frame) {
	const (
		most  = 256 // words
		tries = 8
	)
	n, tried := len(w.ips), 0
	for i := uint64(0); i < most && tried < tries && f.sp%8 == 0; i++ {
		at := f.sp + 8*i
		pc, ok := w.stack.word(at)
		if !ok {
			return
		}
		if c, addr := w.codeAt(pc - 1); c == nil || !c.LeavesImage(addr+1) {
			if w.isLate(pc - 1) {
				return // it may be the caller
			}
			continue
		}
		end := w.leadsTo(frame{pc: pc, sp: at + 8})
		if end == Root {
			w.moves.resumed = true
			return
		}
		w.ips, w.frames = w.ips[:n], w.frames[:n]
		if end == NoImage {
			return // likewise
		}
		tried++
	}
}

// isLate reports whether pc is in a file whose code has not been read yet, or not all of what was asked of it.
func (w *walk) isLate(pc uint64) bool {
	m := w.space.Find(pc)
	if m == nil || !m.File.Kind.HasImage() {
		return false
	}
	in := w.modules.Module(w.space.PID, m)
	if in == nil {
		return true
	}
	state := in.State()
	return !state.Read || state.Late
}

// leadsTo adds the frames from f on, as far as CFI alone leads from there, and says where that ends: with
// NoCFI if something else than CFI is needed, and NoImage if that is not known yet. BP is not known.
//
// Two addresses that are left over may look like two frames, so the innermost calls must be able to lead to
// the functions that they are said to have called.
func (w *walk) leadsTo(f frame) Reason {
	const checked = 4
	var p place
	from := len(w.ips)
	w.regs.restart(len(w.ips), &f)
	for len(w.ips) < w.MaxFrames && w.locate(&p, f.lookup()) {
		w.push(&f, ByResuming)
		next, source, end := w.step(&p, &f)
		if end != stepped {
			return end
		}
		if source != ByCFI || next.exact || !w.followsCall(next.pc) {
			if w.isLate(next.pc - 1) {
				return NoImage
			}
			return NoCFI
		}
		if len(w.ips)-from <= checked && w.callsElsewhere(next.pc, f.lookup()) {
			return NoCFI
		}
		f = next
	}
	return NoCFI
}

// callsElsewhere reports whether the call before pc cannot lead to the function around callee: it is a direct
// one, perhaps by a procedure linkage table, whose pointer the process has now.
func (w *walk) callsElsewhere(pc, callee uint64) bool {
	c, addr := w.codeAt(pc - 1)
	if c == nil {
		return false
	}
	began, ok := w.modules.Begin()
	if !ok {
		return false
	}
	defer w.modules.End(began)
	entry, direct := c.DirectCall(addr + 1)
	if !direct {
		return false
	}
	pointer, isStub := c.Stub(entry)
	entry += pc - 1 - addr
	if isStub {
		if entry, ok = w.jit.Pointer(w.generatedCode(), pointer+pc-1-addr); !ok {
			return false
		}
	}
	var called, is place
	if !w.locate(&called, entry) || called.module == nil || called.jit != nil || !w.locate(&is, callee) {
		return false
	}
	code, start := called.module.CodeAt(called.m, entry)
	if code == nil {
		return false
	}
	at := module.Elsewhere
	if is.module == called.module {
		if code, at = is.module.CodeAt(is.m, callee); code == nil {
			return false
		}
	}
	return called.module.LeadsElsewhere(start, at)
}

// subroutine finds the caller of a frame in an interpreter (see hosted), instead of next, which its CFI gives
// and which is in no mapping. The CFI does not describe calls from one part of the interpreter to another,
// which leave their return address where SP points, nor what else the code pushes when a trace jumps to it.
func (w *walk) subroutine(p *place, f *frame, next frame) (frame, Source) {
	if w.Strict || !p.isInterpreter(f.pc) {
		return next, ByCFI
	}
	if caller, ok := w.leaving(f); ok {
		return caller, ByHeuristic
	}
	if caller, ok := w.entering(f); ok {
		return caller, ByHeuristic
	}
	if pc, ok := w.stack.word(f.sp); ok && f.exact && w.followsCall(pc) {
		return frame{pc: pc, sp: f.sp + 8, bp: f.bp}, ByHeuristic
	}
	if host, source, end := w.hosted(f); end == stepped {
		return host, source
	}
	return next, ByCFI
}

// leaving finds the caller of a frame whose code is about to return.
func (w *walk) leaving(f *frame) (next frame, ok bool) {
	code, addr := w.codeAt(f.pc)
	if code == nil || !f.exact {
		return next, false
	}
	way, ok := code.UntilReturn(addr)
	if !ok || way.ReturnAt < 0 {
		return next, false
	}
	at := f.sp + uint64(way.ReturnAt)
	pc, ok := w.stack.word(at)
	if !ok || !w.followsCall(pc) {
		return next, false
	}
	next = frame{pc: pc, sp: at + 8, bp: f.bp}
	if way.BPAt >= 0 {
		next.bp, ok = w.stack.word(f.sp + uint64(way.BPAt))
	}
	return next, ok
}

// entering finds the caller of a frame whose code has only pushed registers since it was called: as many as
// the code from the call's target on shows.
func (w *walk) entering(f *frame) (next frame, ok bool) {
	const (
		most     = 7 // registers that calls leave alone, and one more
		pushSize = 2 // bytes, at the most
	)
	code, addr := w.codeAt(f.pc)
	if code == nil || !f.exact {
		return next, false
	}
	for n := range uint32(most) {
		at := f.sp + 8*uint64(n)
		pc, ok := w.stack.word(at)
		if !ok {
			break
		}
		caller, after := w.codeAt(pc - 1)
		if caller != code {
			continue
		}
		entry, ok := code.DirectCall(after + 1)
		if !ok || entry > addr || addr-entry > uint64(n)*pushSize {
			continue // with room for more than pushes, BP may have been changed
		}
		if pushed, ok := code.StartCode(entry, addr); ok && pushed == n {
			return frame{pc: pc, sp: at + 8, bp: f.bp}, true
		}
	}
	return next, false
}

// isInterpreter reports whether pc, which lies at p, is in code whose CFI gives it one frame, from its first
// instruction on.
func (p *place) isInterpreter(pc uint64) bool {
	if p.module == nil {
		return false
	}
	d, _, ok := p.module.FDE(p.m, pc)
	if !ok {
		return false
	}
	var row dwarfcfi.Row
	return d.Row(d.Start, &row) == nil && hasFrameAtEntry(&row)
}

// hasFrameAtEntry reports whether the row of a function's first instruction has a frame, which no function can
// have made by then.
func hasFrameAtEntry(row *dwarfcfi.Row) bool {
	n := rule.CFAAboveSP(row)
	return n > 8 && n%8 == 0
}

// interpreterCalled reports whether pc follows a call of a function whose frame
// is there at its first instruction, and gives the distance from SP to the CFA
// there.
func (w *walk) interpreterCalled(pc uint64) (entry, cfa uint64, ok bool) {
	m := w.space.Find(pc - 1)
	if m == nil || pc < m.Start+asm.CallSize {
		return 0, 0, false
	}
	in := w.modules.Module(w.space.PID, m)
	if in == nil {
		return 0, 0, false
	}
	code, addr := in.CodeAt(m, pc-1)
	if code == nil {
		return 0, 0, false
	}
	target, ok := code.DirectCall(addr + 1)
	if !ok {
		return 0, 0, false
	}
	entry = target - addr + pc - 1
	em := w.space.Find(entry)
	if em == nil || em.File != m.File {
		return 0, 0, false
	}
	var row dwarfcfi.Row
	if in.Row(em, entry, &row) != nil {
		return 0, 0, false
	}
	return entry, uint64(row.CFA.Offset), hasFrameAtEntry(&row)
}

// generatedCode gives what is known of the code that the process has generated, the same throughout the walk.
func (w *walk) generatedCode() *jit.ProcessCode {
	if w.made == nil {
		w.made = w.jit.Lookup(w.space)
	}
	return w.made
}

// generatedRule gives the rule for the frame f in generated code.
func (w *walk) generatedRule(p *place, f *frame) rule.Rule {
	return w.jit.Rule(p.jit, p.m, f.pc, f.lookup(), w.Strict)
}
