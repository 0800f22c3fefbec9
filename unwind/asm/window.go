package asm

import (
	"bytes"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/rule"
)

// A Window reads code that no file holds, as runtimes generate it, a piece at a time.
type Window struct {
	code   *Code
	layout elf.Layout
	reader bytes.Reader
	lo, hi uint64 // of what was read
	buf    [windowBefore + windowAfter]byte
}

// How much code around a PC is read. Trampolines and epilogues are short, and
// what is longer has a frame pointer as a rule.
const (
	windowBefore = 256
	windowAfter  = 768
)

// NewWindow returns a window without code.
func NewWindow() *Window {
	w := &Window{layout: elf.Layout{Loads: make([]elf.Load, 1)}}
	w.code = New(&w.reader, &w.layout, Covered{})
	return w
}

// Around returns which piece of the code from start to end is read to learn about pc: its address, and
// a buffer of its length, which belongs to the window.
func (w *Window) Around(pc, start, end uint64) (addr uint64, buf []byte) {
	lo, hi := max(start, pc-min(pc, windowBefore)), min(end, pc+windowAfter)
	return lo, w.buf[:hi-lo]
}

// Set makes data, the code at addr, what is read from now on. It is used until the next call.
func (w *Window) Set(addr uint64, data []byte) {
	w.lo, w.hi = addr, addr+uint64(len(data))
	w.reader.Reset(data)
	w.layout.Loads[0] = elf.Load{Vaddr: w.lo, Filesz: w.hi - w.lo, Memsz: w.hi - w.lo, Flags: elf.PF_X}
	for i := range w.code.pages {
		w.code.pages[i].addr = 1 // no page starts there
	}
}

// Rule gives the rule for pc, an instruction, by the ways that lead from there to a ret.
func (w *Window) Rule(pc uint64) (r rule.Rule, ok bool) {
	sp, bp := w.code.paths.wayOut(pc, w.lo, w.hi)
	if r, ok := agree(rule.None, rule.None, sp, bp); ok {
		return r, true
	}
	return w.beforeCall(pc)
}

// DirectCall gives the target of the direct call that ends at pc.
func (w *Window) DirectCall(pc uint64) (target uint64, ok bool) { return w.code.DirectCall(pc) }

// IndirectCall says whether an indirect call ends at pc.
func (w *Window) IndirectCall(pc uint64) bool { return w.code.findCall(pc) == indirectCall }

// beforeCall gives the rule for pc from that for the call that comes next, as
// in a trampoline: the ways out do not go over calls.
func (w *Window) beforeCall(pc uint64) (rule.Rule, bool) {
	const near = 8 // instructions
	var s state
	var in insn
	s.init(false)
	for at, n := pc, 0; n < near && in.decode(w.code.bytes(at)); n++ {
		switch t, _ := in.turn(at); t {
		case calls, callsFar:
			r, _ := w.code.paths.wayOut(at, w.lo, w.hi)
			sp := s.regs[rSP]
			words, ok := rule.InWords(int64(r.CFA()) + int64(sp.off))
			if r.Kind() != rule.GuessSP || r.BP() != 0 || sp.kind != ofSP || !ok || words == 0 ||
				s.regs[rBP] != (value{kind: ofBP}) {
				return rule.None, false
			}
			return rule.GuessSP.With(words, 0), true
		case onwards:
			s.step(&in, at)
			at += uint64(in.n)
		default:
			return rule.None, false
		}
	}
	return rule.None, false
}
