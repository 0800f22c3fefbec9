package unwind

import (
	"bytes"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A codeWindow is where generated code is read into, a piece at a time.
type codeWindow struct {
	code   *code
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

// readGenerated gives the rule for pc, an instruction in generated code, by
// the ways that lead from there to a ret; uncovered when they tell nothing.
// It reports false when the process's memory cannot be read.
func (u *Unwinder) readGenerated(pid uint32, m *vmas.Mapping, pc uint64) (rule.Rule, bool) {
	w, ok := u.readWindow(pid, m, pc)
	if !ok {
		return rule.Uncovered, false
	}
	sp, bp := w.code.paths.wayOut(pc, w.lo, w.hi)
	if r, ok := agree(rule.None, rule.None, sp, bp); ok {
		return r, true
	}
	if r, ok := w.beforeCall(pc); ok {
		return r, true
	}
	return rule.Uncovered, true
}

// beforeCall gives the rule for pc from that for the call that comes next, as
// in a trampoline: the ways out do not go over calls.
func (w *codeWindow) beforeCall(pc uint64) (rule.Rule, bool) {
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
			if r.Kind() != rule.GuessSP || r.BP() != 0 || sp.kind != ofSP || !ok || words == 0 || s.regs[rBP] != (value{kind: ofBP}) {
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

// generatedCall says whether the code before pc, in generated code, is a call.
func (u *Unwinder) generatedCall(space *vmas.Space, pc uint64) bool {
	var p place
	if !u.locate(&p, space, pc-1) || p.jit == nil {
		return false
	}
	j := p.jit
	call, ok := j.now.calls[pc]
	if ok {
		return call
	}
	if j.blind {
		return j.old.calls[pc]
	}
	w, ok := u.readWindow(j.pid, p.m, pc)
	if !ok {
		j.blind = true
		return j.old.calls[pc]
	}
	var in insn
	if at, ok := w.code.callBefore(pc, callSize, &in); ok {
		t, target := in.turn(at)
		call = t == calls && space.Find(target) != nil
	}
	call = call || w.code.findCall(pc) == indirectCall
	if len(j.now.calls) >= jitRules {
		clear(j.now.calls)
	}
	j.now.calls[pc] = call
	return call
}

// callSize is the length of a direct call.
const callSize = 5

// readWindow reads the code around pc, which lies in m.
func (u *Unwinder) readWindow(pid uint32, m *vmas.Mapping, pc uint64) (*codeWindow, bool) {
	if u.images.proc == "" || pc < m.Start || pc >= m.End {
		return nil, false
	}
	if u.window == nil {
		u.window = newCodeWindow()
	}
	w := u.window
	w.lo, w.hi = max(m.Start, pc-min(pc, windowBefore)), min(m.End, pc+windowAfter)
	data := w.buf[:w.hi-w.lo]
	local := [1]unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
	remote := [1]unix.RemoteIovec{{Base: uintptr(w.lo), Len: len(data)}}
	if n, err := unix.ProcessVMReadv(int(pid), local[:], remote[:], 0); err != nil || n < len(data) {
		return nil, false
	}
	w.reader.Reset(data)
	w.layout.Loads[0] = elf.Load{Vaddr: w.lo, Filesz: w.hi - w.lo, Memsz: w.hi - w.lo, Flags: elf.PF_X}
	for i := range w.code.pages {
		w.code.pages[i].addr = 1 // no page starts there
	}
	return w, true
}

func newCodeWindow() *codeWindow {
	w := &codeWindow{layout: elf.Layout{Loads: make([]elf.Load, 1)}}
	w.code = readCode(&w.reader, &w.layout, nil)
	return w
}
