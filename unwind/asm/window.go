package asm

import (
	"bytes"

	"unspool/dwarfcfi/elf"

	"unspool/unwind/rule"
	"unspool/unwind/x86"
)

// A Window reads code that is in no file, such as runtimes generate, a piece at a time.
type Window struct {
	code   *Code
	layout elf.Layout
	reader bytes.Reader
	data   []byte // the code that was read
	lo, hi uint64 // of it
	buf    [windowBefore + windowAfter]byte
}

// How much code around a PC is read. Trampolines and epilogues are short, and
// longer code usually has a frame pointer.
const (
	windowBefore = 512
	windowAfter  = 1536
)

// NewWindow returns a window without code.
func NewWindow() *Window {
	w := &Window{layout: elf.Layout{Loads: make([]elf.Load, 1)}}
	w.code = New(&w.reader, &w.layout, Covered{})
	return w
}

// Around returns which piece of the code from start to end has to be read for pc: its address, and a
// buffer of its length, which belongs to the window.
func (w *Window) Around(pc, start, end uint64) (addr uint64, buf []byte) {
	lo, hi := max(start, pc-min(pc, windowBefore)), min(end, pc+windowAfter)
	return lo, w.buf[:hi-lo]
}

// Set makes the window read data, which is the code at addr. data is used until the next call.
func (w *Window) Set(addr uint64, data []byte) {
	w.data, w.lo, w.hi = data, addr, addr+uint64(len(data))
	w.reader.Reset(data)
	w.layout.Loads[0] = elf.Load{Vaddr: w.lo, Filesz: w.hi - w.lo, Memsz: w.hi - w.lo, Flags: elf.PF_X}
	for i := range w.code.pages {
		w.code.pages[i].addr = 1 // no page starts there
	}
}

// Rule gives the rule for pc, an instruction, by the code that leads from there to a ret, or to where
// a frame is set up.
func (w *Window) Rule(pc uint64) (r rule.Rule, ok bool) {
	w.code.left = mostInWindow
	sp, bp := w.code.paths.wayOut(pc, w.lo, w.hi)
	if r, ok := agree(rule.None, rule.None, sp, bp); ok {
		return r, true
	}
	if r, ok := w.code.besideFrame(pc, Hole{w.lo, w.hi}); ok {
		return r, true
	}
	return w.beforeCall(pc)
}

// A Ways has what is known about the paths from a PC to the rets of its function. They go on behind calls,
// which return with the same SP, and into other windows.
type Ways struct {
	pc     uint64
	rule   rule.Rule
	failed bool // two paths do not agree
	far    []farJump
	looked int
}

// A farJump is a jump out of a window. There, BP has the value that it had at the PC, and SP differs from
// its value there by sp bytes.
type farJump struct {
	target uint64
	sp     int64
}

// maxFar is how many windows are read for one PC.
const maxFar = 4

// Begin starts again, with the paths from pc.
func (ws *Ways) Begin(pc uint64) { *ws = Ways{pc: pc, far: append(ws.far[:0], farJump{target: pc})} }

// Next returns the address at which to read on; ok is false if there is nothing more to read.
func (ws *Ways) Next() (at uint64, ok bool) {
	if ws.failed || ws.looked == len(ws.far) {
		return 0, false
	}
	return ws.far[ws.looked].target, true
}

// Read reads on at the address that Next returned, which w holds unless it is not readable.
func (ws *Ways) Read(w *Window, readable bool) {
	from := ws.far[ws.looked]
	ws.looked++
	if !readable {
		return
	}
	p := &w.code.paths
	w.code.left = mostInWindow
	p.over = true
	complete := p.eachTurn(from.target, w.lo, w.hi, func(_ uint64, t turn, target uint64, s *state) {
		switch {
		case t == returns:
			ws.returns(s.ruleAtRet(), from.sp)
		case (t == jumps || t == branches) && !p.contains(target):
			ws.leave(target, s, from.sp)
		}
	})
	p.over = false
	ws.failed = ws.failed || !complete
}

// returns notes a rule for code where SP differs by sp bytes from the SP at the PC.
func (ws *Ways) returns(r rule.Rule, sp int64) {
	if r.Kind() == rule.GuessSP && sp != 0 {
		words, ok := rule.InWords(int64(r.CFA()) + sp)
		if !ok {
			words = 0
		}
		r = rule.GuessSP.With(words, uint32(r.BP()/8))
	}
	if r == rule.None || r.CFA() == 0 || ws.rule != rule.None && ws.rule != r {
		ws.failed = true
	}
	ws.rule = r
}

// leave notes a jump to another window, if SP and BP are known there.
func (ws *Ways) leave(target uint64, s *state, sp int64) {
	v := s.regs[x86.SP]
	if v.kind != ofSP || s.regs[x86.BP] != (value{kind: ofBP}) || len(ws.far) == maxFar {
		return
	}
	for _, f := range ws.far {
		if f.target == target {
			return
		}
	}
	ws.far = append(ws.far, farJump{target, sp + int64(v.off)})
}

// Rule is the rule for the PC on which all paths that could be read agree.
func (ws *Ways) Rule() (rule.Rule, bool) { return ws.rule, ws.rule != rule.None && !ws.failed }

// DirectCall gives the target of the direct call that ends at pc.
func (w *Window) DirectCall(pc uint64) (target uint64, ok bool) { return w.code.DirectCall(pc) }

// IndirectCall reports whether an indirect call ends at pc.
func (w *Window) IndirectCall(pc uint64) bool { return w.code.findCall(pc) == indirectCall }

// WayOut386 is [Code.WayOut386].
func (w *Window) WayOut386(pc uint64) (WayOut, bool) { return w.code.WayOut386(pc) }

// TailJumps reports whether all code that pc leads to jumps where a register or a pointer says, soon and without
// a change to SP or BP, as in thunks that choose a method: the return address stays where SP points.
func (w *Window) TailJumps(pc uint64) bool {
	const most = 64 // instructions
	var in insn
	todo, seen := [8]uint64{pc}, 0
	for paths := 1; paths > 0; {
		paths--
		for at := todo[paths]; ; {
			if seen++; seen > most || !in.Decode(w.code.bytes(at)) || in.movesStack() ||
				in.Writes()&(x86.Bit(x86.SP)|x86.Bit(x86.BP)) != 0 {
				return false
			}
			t, target := in.turn(at)
			if t == jumpsFar {
				break
			}
			at += uint64(in.Len)
			switch t {
			case onwards:
			case jumps:
				at = target
			case branches:
				if paths == len(todo) {
					return false
				}
				todo[paths] = target
				paths++
			default:
				return false
			}
		}
	}
	return true
}

// JumpRegister gives the register, by its number in instructions, to whose address the instruction at pc
// jumps.
func (w *Window) JumpRegister(pc uint64) (reg uint8, ok bool) {
	var in insn
	if !in.Decode(w.code.bytes(pc)) {
		return 0, false
	}
	t, _ := in.turn(pc)
	return in.RM, t == jumpsFar && in.Mod == 3
}

// beforeCall gives the rule for pc by way of the next call, as in a trampoline: the
// ways out do not go on behind calls.
func (w *Window) beforeCall(pc uint64) (rule.Rule, bool) {
	const near = 8 // instructions
	var s state
	var in insn
	s.init(false)
	for at, n := pc, 0; n < near && in.Decode(w.code.bytes(at)); n++ {
		switch t, _ := in.turn(at); t {
		case calls, callsFar:
			r, _ := w.code.paths.wayOut(at, w.lo, w.hi)
			sp := s.regs[x86.SP]
			words, ok := rule.InWords(int64(r.CFA()) + int64(sp.off))
			if r.Kind() != rule.GuessSP || r.BP() != 0 || sp.kind != ofSP || !ok || words == 0 ||
				s.regs[x86.BP] != (value{kind: ofBP}) {
				return rule.None, false
			}
			return rule.GuessSP.With(words, 0), true
		case onwards:
			s.step(&in, at)
			at += uint64(in.Len)
		default:
			return rule.None, false
		}
	}
	return rule.None, false
}
