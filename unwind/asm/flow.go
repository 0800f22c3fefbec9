package asm

import "unspool/unwind/x86"

// This file follows what code does to SP and BP. The values of registers and of words on
// the stack are kept as expressions of the SP and BP at the instruction where the reading
// starts. That is the entry of a function, where SP points to the return address; or the PC
// itself, from which code leads to a ret, before which SP points to the return address again.

// A value is what is known about a register or a word of the stack.
type value struct {
	kind    valueKind
	at, off int32
}

// A valueKind says what at and off of a value are.
type valueKind uint8

const (
	unknown  valueKind = iota
	ofSP               // SP + off, with SP as it was at the start
	ofBP               // BP + off
	wordSP             // *(SP + at) + off
	wordBP             // *(BP + at) + off
	wordWord           // *(*(SP + at) + off)
	ofReg              // register at + off
	aligned            // the result of the aligning instruction at image address at (mod 2³²), + off
)

// add is v + n. If the result is too large for any stack, it is unknown.
func (v value) add(n int64) value {
	const farthest = 1 << 28
	sum := int64(v.off) + n
	if v.kind == unknown || (v.kind == wordWord || v.kind > imageAddress) && n != 0 || sum > farthest ||
		sum < -farthest || n > farthest || n < -farthest {
		return value{}
	}
	v.off = int32(sum)
	return v
}

// A slot is a word of the stack that was written, with its address.
type slot struct{ addr, v value }

// A state is what is known at one instruction.
type state struct {
	regs  [16]value
	slots [maxSlots]slot
	n     int
	// entry means that the reading started at a function's entry: words that
	// were not written do not matter. Otherwise they still have the value that
	// they had at the start, so every write to them has to be remembered.
	entry bool
	lossy bool // there was no room for a slot

	compared int32 // the constant of the last comparison, + 1; 0 if there is none
	cases    int32 // the index of a jump table is less than this; 0 if that is not known
}

const maxSlots = 16

func (s *state) init(entry bool) {
	*s = state{entry: entry}
	s.regs[x86.SP] = value{kind: ofSP}
	s.regs[x86.BP] = value{kind: ofBP}
	for _, reg := range keepers {
		s.regs[reg] = value{kind: ofReg, at: reg}
	}
}

// keepers are registers that no caller passes anything in: assembly that aligns its stack may keep an earlier SP in one
// of them, also where it is split into parts that jump to each other through registers. A switch of stacks takes SP
// from others.
var keepers = [...]int32{10, 11}

func (s *state) load(addr value) value {
	if addr.kind == unknown {
		return value{}
	}
	for i := range s.slots[:s.n] {
		if s.slots[i].addr == addr {
			return s.slots[i].v
		}
	}
	if s.lossy || s.entry {
		return value{}
	}
	switch addr.kind {
	case ofSP:
		if addr.off >= 0 {
			return value{kind: wordSP, at: addr.off}
		}
	case ofBP:
		return value{kind: wordBP, at: addr.off}
	case wordSP:
		return value{kind: wordWord, at: addr.at, off: addr.off}
	}
	return value{}
}

func (s *state) store(addr, v value) {
	if addr.kind == unknown || addr.kind == wordWord || addr.kind == ofReg || addr.kind >= imageAddress {
		return
	}
	for i := range s.slots[:s.n] {
		if s.slots[i].addr == addr {
			s.slots[i].v = v
			return
		}
	}
	if (v.kind == unknown || v.kind == ofReg) && s.entry {
		return
	}
	if s.n == maxSlots {
		s.lossy = true
		return
	}
	s.slots[s.n] = slot{addr, v}
	s.n++
}

// popped drops the slots that are below SP now.
func (s *state) popped() {
	sp := s.regs[x86.SP]
	if sp.kind == unknown {
		return
	}
	n := 0
	for _, x := range s.slots[:s.n] {
		if x.addr.kind != sp.kind || x.addr.at != sp.at || x.addr.off >= sp.off {
			s.slots[n] = x
			n++
		}
	}
	s.n = n
}

func (s *state) push(v value) {
	s.regs[x86.SP] = s.regs[x86.SP].add(-8)
	s.store(s.regs[x86.SP], v)
}

func (s *state) pop() value {
	v := s.load(s.regs[x86.SP])
	s.regs[x86.SP] = s.regs[x86.SP].add(8)
	s.popped()
	return v
}

func (s *state) forget(regs uint16) {
	for i := range s.regs {
		if regs>>i&1 != 0 {
			s.regs[i] = value{}
		}
	}
}

// merge keeps only what s and t have in common, in s, and reports whether s has changed.
func (s *state) merge(t *state) (changed bool) {
	for i := range s.regs {
		if s.regs[i] != t.regs[i] && s.regs[i].kind != unknown {
			s.regs[i] = value{}
			changed = true
		}
	}
	for i := range s.slots[:s.n] {
		x := &s.slots[i]
		if x.v.kind != unknown && t.loadRaw(x.addr) != x.v {
			x.v = value{}
			changed = true
		}
	}
	if s.cases != t.cases && s.cases != 0 {
		s.cases, changed = 0, true
	}
	if s.compared != t.compared && s.compared != 0 {
		s.compared, changed = 0, true
	}
	if s.entry {
		return changed
	}
	for i := range t.slots[:t.n] {
		if addr := t.slots[i].addr; !s.written(addr) && !s.lossy {
			s.store(addr, value{})
			changed = true
		}
	}
	if t.lossy && !s.lossy {
		s.lossy, changed = true, true
	}
	return changed
}

func (s *state) written(addr value) bool {
	for i := range s.slots[:s.n] {
		if s.slots[i].addr == addr {
			return true
		}
	}
	return false
}

// loadRaw is the value of a word that was written, and unknown for other words.
func (s *state) loadRaw(addr value) value {
	for i := range s.slots[:s.n] {
		if s.slots[i].addr == addr {
			return s.slots[i].v
		}
	}
	return value{}
}

// address is the value of a memory operand's address.
func (s *state) address(in *insn) value {
	if in.Base >= 16 || in.HasIndex || in.Segment || in.Fixed {
		return value{}
	}
	return s.regs[in.Base].add(in.Disp)
}

// A turn says where an instruction leads: on to the next one, or elsewhere.
type turn uint8

const (
	onwards turn = iota
	branches
	jumps
	jumpsFar // the target is not known
	returns
	calls
	callsFar
	stops
)
