package asm

import "unspool/unwind/x86"

// This file follows registers across calls of functions that do not change them. Hand-written assembly may
// keep the incoming SP in a register that calls are allowed to change, and call helpers that do not
// change it.

// keptRegs are registers that hold an SP before a call, or may hold one, and still hold it after the call.
type keptRegs struct {
	regs   uint16
	values [16]value
}

// kept gives the registers that calls may change and that still hold an SP after the instruction, if that is
// a call of a known function.
func (p *paths) kept(s *state, t turn, target uint64) (k keptRegs) {
	if t != calls {
		return k
	}
	for reg := range s.regs {
		if kind := s.regs[reg].kind; x86.CallerSaved>>reg&1 != 0 && (kind == ofSP || kind == ofReg) {
			k.regs |= 1 << reg
		}
	}
	if k.regs != 0 {
		k.regs &^= p.c.clobbers(target)
		k.values = s.regs
	}
	return k
}

func (k *keptRegs) restore(s *state) {
	for reg := range s.regs {
		if k.regs>>reg&1 != 0 {
			s.regs[reg] = k.values[reg]
		}
	}
}

// Keeps reports whether the function that holds addr does not change a register.
func (c *Code) Keeps(addr uint64, reg uint8) bool {
	c.left = mostWork
	h, ok := c.chart().hole(addr)
	if !ok {
		return false
	}
	f, known := c.fromStart(addr, h)
	return known && c.clobbers(f.start)>>reg&1 == 0
}

// clobbers gives the registers that the function at start may change: those that its instructions
// write, or all that calls may change if it calls another function or jumps to where it cannot be
// followed.
func (c *Code) clobbers(start uint64) uint16 {
	const (
		most = 200
		span = 4096
		work = 64 // to look at so many bytes
	)
	if start>>32 != 0 {
		return x86.CallerSaved
	}
	if set := c.changed.get(uint32(start)); set != 0 {
		return uint16(set)
	}
	regs := uint16(x86.CallerSaved)
	if h, ok := c.charted.hole(start); ok {
		p := &c.probes[0]
		p.c, p.depth = c, 1
		p.lo, p.hi, p.whole, p.start = start, min(h.Hi, start+span), true, start
		if p.discover(start, most) < most && c.spend(work) {
			regs = p.writes()
		}
	}
	if c.isSpent() {
		return x86.CallerSaved
	}
	c.changed.put(uint32(start), regSet(regs)|answered)
	return regs
}

// A regSet is a set of registers, as instructions number them. Zero means that it is not known.
type regSet uint32

// answered is set in every known set, so that an empty set differs from zero.
const answered regSet = 1 << 16

// writes gives the registers that the discovered instructions may change.
func (p *paths) writes() (regs uint16) {
	var in insn
	for off, flag := range p.flags {
		addr := p.lo + uint64(off)
		if flag&reachedBit == 0 {
			continue
		}
		if !in.Decode(p.c.bytes(addr)) {
			return x86.CallerSaved
		}
		switch t, target := in.turn(addr); t {
		case calls, callsFar, jumpsFar, stops:
			return x86.CallerSaved
		case branches, jumps:
			if !p.contains(target) || p.flags[target-p.lo]&reachedBit == 0 {
				return x86.CallerSaved
			}
		}
		regs |= in.Writes()
	}
	return regs
}

// Writes gives the registers that the function from lo to hi may change, as instructions number them: all
// that calls may change if it calls another one, or jumps out.
func (c *Code) Writes(lo, hi uint64) uint16 {
	if lo>>32 != 0 || hi < lo || hi-lo > mostOfFunction {
		return x86.CallerSaved
	}
	if set := c.written.get(uint32(lo)); set != 0 {
		return uint16(set)
	}
	regs := c.readWrites(lo, hi)
	c.written.put(uint32(lo), regSet(regs)|answered)
	return regs
}

// readWrites is Writes for a function that is read from front to back.
func (c *Code) readWrites(lo, hi uint64) (regs uint16) {
	var in insn
	for at := lo; at < hi; at += uint64(in.Len) {
		if !in.Decode(c.bytes(at)) {
			return x86.CallerSaved
		}
		switch t, target := in.turn(at); t {
		case calls, callsFar, jumpsFar, stops:
			return x86.CallerSaved
		case branches, jumps:
			if target < lo || target >= hi {
				return x86.CallerSaved
			}
		}
		regs |= in.Writes()
	}
	return regs
}
