package asm

import (
	"bytes"

	"unspool/unwind/rule"
)

// This file is about code with frame pointers in holes where the starts of functions are not known:
// Chromium has such a hole of 200 MiB. In this code BP leads to the caller, except where the function
// has not set BP yet or has restored it already. There BP is still the caller's, and a walk that
// followed it would leave out the caller.

// besideFrame gives the rule for an instruction from which all code leads to an instruction at which
// SP points to the return address: a ret, as in [paths.wayOut], or one that sets up a frame.
func (c *Code) besideFrame(addr uint64, h Hole) (rule.Rule, bool) {
	switch {
	case c.follows(addr, pushBP) && c.makesFrame(addr-1):
		return rule.GuessSP.With(2, 2), true
	case c.follows(addr, popBP) && c.jumpsAway(addr) && c.dropsFrame(addr-1):
		return rule.GuessSP.With(1, 0), true
	case c.findCall(addr+1) != notCall:
		return rule.None, false // addr is the last byte of a call
	}
	c.paths.frames = true
	sp, bp := c.paths.wayOut(addr, h.Lo, h.Hi)
	c.paths.frames = false
	return agree(rule.None, rule.None, sp, bp)
}

// makesFrame reports whether a function saves BP at addr and then sets BP.
func (c *Code) makesFrame(addr uint64) bool {
	b, ok := bytes.CutPrefix(c.bytes(addr), pushBP)
	if !ok || c.follows(addr, copyOfReturn) {
		return false
	}
	for _, mov := range setBP {
		if bytes.HasPrefix(b, mov) {
			return true
		}
	}
	return false
}

// entersFrame reports whether a function that begins at addr makes its frame at once.
func (c *Code) entersFrame(addr uint64) bool { return c.judge(&c.enters, addr, (*Code).findEntry) }

func (c *Code) findEntry(addr uint64) bool {
	if mark := endbr[c.layout.Machine]; mark != nil && bytes.HasPrefix(c.bytes(addr), mark) {
		addr += uint64(len(mark))
	}
	return c.executable(addr) && c.makesFrame(addr)
}

// dropsFrame reports whether the bytes at addr that look like a pop of BP are one: whether an instruction
// begins there, decoding from where the frame was set up.
func (c *Code) dropsFrame(addr uint64) bool {
	const farthest = 4 << 10
	for at := addr; at > 0 && addr-at < farthest; {
		if at--; c.makesFrame(at) {
			return c.reads(at, addr)
		}
	}
	return false
}

// reads reports whether one of the instructions from start on, read one behind the other, is at addr.
func (c *Code) reads(start, addr uint64) bool {
	var in insn
	for start < addr && in.Decode(c.bytes(start)) {
		start += uint64(in.Len)
	}
	return start == addr
}

// jumpsAway reports whether the instruction at addr is a jmp, as in a tail call.
func (c *Code) jumpsAway(addr uint64) bool {
	var in insn
	if !in.Decode(c.bytes(addr)) {
		return false
	}
	t, _ := in.turn(addr)
	return t == jumps || t == jumpsFar
}

// follows reports whether code stands right before addr.
func (c *Code) follows(addr uint64, code []byte) bool {
	n := uint64(len(code))
	return addr >= n && bytes.HasPrefix(c.bytes(addr-n), code)
}

// leavesFrame reports whether SP points to the return address at an instruction on a way out.
func (p *paths) leavesFrame(addr uint64, t turn, target uint64) bool {
	return t == returns ||
		p.frames && (p.c.makesFrame(addr) || t == jumps && !p.contains(target) && p.c.entersFrame(target))
}
