package asm

// Pushed386 gives by how many bytes 32-bit code lowers ESP from start to addr, which lie in one function.
// Code behind an instruction that never goes on to it counts as being at the depth of start. ok is false if
// the effect of an instruction on ESP is not understood, or addr is not the start of an instruction.
func (c *Code) Pushed386(start, addr uint64) (n int64, ok bool) {
	const most = 4 << 10 // bytes of code
	if addr < start || addr-start > most {
		return 0, false
	}
	var in insn
	for at := start; at < addr; at += uint64(in.n) {
		if !in.decode386(c.bytes(at)) {
			return 0, false
		}
		down, known := in.lowers386()
		if !known {
			return 0, false
		}
		if n += down; in.leaves(at) {
			n = 0
		}
		if at+uint64(in.n) > addr {
			return 0, false
		}
	}
	return n, true
}

// leaves reports whether the instruction at addr never goes on to the next one.
func (in *insn) leaves(addr uint64) bool {
	t, _ := in.turn(addr)
	return !t.goesOn()
}

// lowers386 is by how many bytes the 32-bit instruction lowers ESP, if that is known.
func (in *insn) lowers386() (n int64, known bool) {
	const word = 4
	op := in.op
	switch {
	case in.vector != legacy || in.space != 0:
		return 0, in.space != 1 || op&^9 != 0xa0 // push and pop of fs and gs
	case op >= 0x50 && op < 0x58, op == 0x68, op == 0x6a, op == 0x9c, op == 0xff && in.reg == 6:
		return word, !in.narrow
	case op >= 0x58 && op < 0x60, op == 0x8f, op == 0x9d:
		return -word, !in.narrow && op != 0x58+rSP
	case (op == 0x81 || op == 0x83) && in.mod == 3 && in.rm == rSP && in.reg == 5: // sub
		return in.imm, true
	case (op == 0x81 || op == 0x83) && in.mod == 3 && in.rm == rSP && in.reg == 0: // add
		return -in.imm, true
	case op == 0x8d && in.reg == rSP && in.base == rSP && !in.index && in.mod != 3:
		return -in.disp, true
	case op < 0x40 && op&6 == 6, op == 0x60, op == 0x61, op == 0xc8, op == 0xc9, op == 0x44, op == 0x4c:
		return 0, false // segments, pusha, popa, enter, leave, inc and dec of ESP
	case op == 0xe8 && in.imm == 0: // call of the next instruction, which pushes its address
		return word, true
	}
	return 0, in.writes()&bit(rSP) == 0
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
		if !in.decode386(c.bytes(addr)) {
			return out, false
		}
		t, _ := in.turn(addr)
		setsBP := in.writes()&bit(rBP) != 0 && !in.popsBP()
		switch {
		case t == returns:
			out.ReturnAt = int32(-n)
			return out, n <= 0
		case out.Writes == 0 && saved+word == n && setsBP:
			out.ReturnAt = int32(-saved)
			return out, saved <= 0
		case !t.goesOn(), t == branches:
			return out, false
		case in.op == 0x50+rBP && in.space == 0 && in.vector == legacy:
			saved = n
		}
		if in.popsBP() {
			out.Writes, out.BPAt = bit(rBP), int32(max(-n, -1))
		} else if setsBP {
			out.Writes, out.BPAt = bit(rBP), -1
		}
		down, known := in.lowers386()
		if !known {
			return out, false
		}
		n += down
		addr += uint64(in.n)
	}
	return out, false
}

func (in *insn) popsBP() bool {
	return in.vector == legacy && in.space == 0 && in.op == 0x58+rBP
}
