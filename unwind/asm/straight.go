package asm

import (
	"unspool/unwind/rule"

	"unspool/unwind/x86"
)

// This file reads code straight ahead, to an instruction that must follow.

// PaddingEnd gives the first instruction at addr, or behind it, that does something: a function may
// run through the padding in front of the next one. ok is false where there is no padding, or more
// than there can be.
func (c *Code) PaddingEnd(addr uint64) (end uint64, ok bool) {
	const most = 64 // the alignment of functions, at the most
	var in insn
	for end = addr; end-addr <= most && in.Decode(c.bytes(end)); end += uint64(in.Len) {
		if !in.isNop() {
			return end, end > addr
		}
	}
	return 0, false
}

// A WayOut is what code does from an instruction up to the ret to which it leads without a branch or a call,
// or up to a tail call.
type WayOut struct {
	// Writes are the registers that are written on the way. The others have the values already that they have
	// for the caller.
	Writes uint16
	// ReturnAt is where the return address is, and BPAt where the caller's BP is, in bytes above SP. They are
	// less than 0 where that is not known, BPAt also where BP is not written.
	ReturnAt, BPAt int32
}

// UntilReturn gives the way from addr. ok is false where there is none. A tail call is an indirect jump behind the
// instruction that restores the last register, with none between that changes one: that of a switch is not there.
func (c *Code) UntilReturn(addr uint64) (out WayOut, ok bool) {
	const most = 16 // instructions
	var in insn
	var begin, s state
	begin.init(false)
	for i := range begin.regs {
		if i != x86.SP {
			begin.regs[i] = value{kind: aligned, at: int32(i)} // each another
		}
	}
	s = begin
	restored := false
	for range most {
		if !in.Decode(c.bytes(addr)) {
			return out, false
		}
		switch t, _ := in.turn(addr); {
		case t == returns, t == jumpsFar && restored:
			return s.wayOut(&begin), true
		case t != onwards:
			return out, false
		}
		regs := s.regs
		s.step(&in, addr)
		if s.regs != regs {
			restored = in.restores()
		}
		addr += uint64(in.Len)
	}
	return out, false
}

// StraightFrom gives the rule for addr by the code that leads from the start of its function straight to it.
// ok is false where there is none.
func (c *Code) StraightFrom(start, addr uint64) (r rule.Rule, ok bool) {
	const most = 16 // instructions
	var in insn
	var s state
	s.init(true)
	for n := 0; start < addr; n++ {
		if n == most || !in.Decode(c.bytes(start)) {
			return rule.None, false
		}
		if t, _ := in.turn(start); t != onwards {
			return rule.None, false
		}
		s.step(&in, start)
		start += uint64(in.Len)
	}
	r, _ = s.rules()
	return r, start == addr && r != rule.None
}

// wayOut returns what the way from another state was.
func (s *state) wayOut(begin *state) WayOut {
	out := WayOut{ReturnAt: -1, BPAt: -1}
	for i := range s.regs {
		if s.regs[i] != begin.regs[i] {
			out.Writes |= 1 << i
		}
	}
	if sp := s.regs[x86.SP]; sp.kind == ofSP {
		out.ReturnAt = sp.off
	}
	if bp := s.regs[x86.BP]; bp.kind == wordSP && bp.off == 0 {
		out.BPAt = bp.at
	}
	return out
}
