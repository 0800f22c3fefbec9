package asm

import "unspool/unwind/x86"

// Pushed386 gives by how many bytes 32-bit code lowers ESP from start to addr, which lie in one function.
// Code behind an instruction that never goes on to it counts as being at the depth of start. ok is false if
// the effect of an instruction on ESP is not understood, or addr is not the start of an instruction.
func (c *Code) Pushed386(start, addr uint64) (n int64, ok bool) {
	const most = 4 << 10 // bytes of code
	if addr < start || addr-start > most {
		return 0, false
	}
	var in insn
	for at := start; at < addr; at += uint64(in.Len) {
		if !in.Decode386(c.bytes(at)) {
			return 0, false
		}
		down, known := in.lowers386()
		if !known {
			return 0, false
		}
		if n += down; in.leaves(at) {
			n = 0
		}
		if at+uint64(in.Len) > addr {
			return 0, false
		}
	}
	return n, true
}

// WayOut386 gives the way from addr, an instruction of 32-bit code, if it leads straight to a ret, or to
// where a function gives EBP another value, having saved it right below its return address. Of the
// registers that are written, it names no other than EBP.
func (c *Code) WayOut386(addr uint64) (out WayOut, ok bool) {
	const most = 16 // instructions
	const word = 4
	var in insn
	n, saved := int64(0), int64(-1) // by how much ESP was lowered, now and when EBP was pushed
	if c.follows(addr, pushBP) {
		saved = -word
	}
	out.BPAt = -1
	for range most {
		if !in.Decode386(c.bytes(addr)) {
			return out, false
		}
		t, _ := in.turn(addr)
		setsBP := in.Writes()&x86.Bit(x86.BP) != 0 && !in.popsBP()
		switch {
		case t == returns:
			out.ReturnAt = int32(-n)
			return out, n <= 0
		case out.Writes == 0 && saved+word == n && setsBP:
			out.ReturnAt = int32(-saved)
			return out, saved <= 0
		case !t.goesOn(), t == branches:
			return out, false
		case in.Op == 0x50+x86.BP && in.Map == 0 && in.Encoding == x86.Legacy:
			saved = n
		}
		if in.popsBP() {
			out.Writes, out.BPAt = x86.Bit(x86.BP), int32(max(-n, -1))
		} else if setsBP {
			out.Writes, out.BPAt = x86.Bit(x86.BP), -1
		}
		down, known := in.lowers386()
		if !known {
			return out, false
		}
		n += down
		addr += uint64(in.Len)
	}
	return out, false
}
