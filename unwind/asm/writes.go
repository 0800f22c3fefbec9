package asm

// This file says which general registers are written by instructions that are not
// followed in detail. If it names a register too many, a rule may be lost; if it
// left one out, a rule could be wrong.

// callerSaved are the registers that a call may change (System V ABI, AMD64
// supplement, figure 3.4).
const callerSaved = 1<<rAX | 1<<rCX | 1<<rDX | 1<<rSI | 1<<rDI | 0xf<<8

func bit(reg uint8) uint16 { return 1 << (reg & 15) }

// writes gives the set of general registers that the instruction may write,
// by encoding number, SP included only where it is an explicit operand.
func (in *insn) writes() uint16 {
	switch in.vector {
	case vex, evex:
		return in.vectorWrites()
	case xop: // bextr and similar instructions, in maps 9 and 10
		if in.space == 9 && in.op <= 0x02 || in.space == 10 {
			return bit(in.reg) | bit(in.vvvv) | in.rmBit()
		}
		return 0
	}
	switch in.space {
	case 0:
		return in.oneByteWrites()
	case 1:
		return in.twoByteWrites()
	case 2:
		if in.op >= 0xf0 { // movbe, crc32, adcx, adox, wrssq, aadd, …
			return bit(in.reg)
		}
		return 0
	}
	switch {
	case in.op >= 0x14 && in.op <= 0x17: // pextr
		return in.rmBit()
	case in.op >= 0x60 && in.op <= 0x63: // pcmpestri and similar instructions
		return bit(rCX)
	}
	return 0
}

// rmBit is the register in the r/m field, nothing when that is memory.
func (in *insn) rmBit() uint16 {
	if in.mod == 3 {
		return bit(in.rm)
	}
	return 0
}

// byteBit is bit for an operand of 8 bits: without REX, 4 to 7 are AH to BH.
func (in *insn) byteBit(reg uint8) uint16 {
	if in.rex == 0 && reg >= 4 && reg < 8 {
		return bit(reg - 4)
	}
	return bit(reg)
}

func (in *insn) byteRM() uint16 {
	if in.mod == 3 {
		return in.byteBit(in.rm)
	}
	return 0
}

// low is the register that the low three bits of the opcode name. REX.B is
// bit 0 of the prefix.
func (in *insn) low() uint8 { return in.op&7 | in.rex&1<<3 }

func (in *insn) oneByteWrites() uint16 {
	op := in.op
	switch {
	case op < 0x40: // the eight arithmetic operations; 38 to 3d is cmp
		if op >= 0x38 {
			return 0
		}
		switch op & 7 {
		case 0:
			return in.byteRM()
		case 1:
			return in.rmBit()
		case 2:
			return in.byteBit(in.reg)
		case 3:
			return bit(in.reg)
		}
		return bit(rAX)
	case op == 0x63, op == 0x69, op == 0x6b, op == 0x8b, op == 0x8d:
		return bit(in.reg)
	case op == 0x8a:
		return in.byteBit(in.reg)
	case op == 0x80, op == 0x81, op == 0x83:
		if in.reg&7 == 7 { // cmp
			return 0
		}
		if op == 0x80 {
			return in.byteRM()
		}
		return in.rmBit()
	case op == 0x84, op == 0x85: // test
		return 0
	case op == 0x86: // xchg
		return in.byteRM() | in.byteBit(in.reg)
	case op == 0x87:
		return in.rmBit() | bit(in.reg)
	case op == 0x88, op == 0xc0, op == 0xd0, op == 0xd2, op == 0xc6, op == 0xfe:
		return in.byteRM()
	case op == 0x89, op == 0x8c, op == 0xc1, op == 0xd1, op == 0xd3, op == 0xc7:
		return in.rmBit()
	case op == 0x8e: // mov to a segment register
		return 0
	case op >= 0x90 && op < 0x98: // xchg with AX; 90 is nop
		if in.low() == rAX {
			return 0
		}
		return bit(in.low()) | bit(rAX)
	case op == 0x98:
		return bit(rAX)
	case op == 0x99:
		return bit(rDX)
	case op == 0x9f, op == 0xa0, op == 0xa1, op == 0xe4, op == 0xe5, op == 0xec, op == 0xed, op == 0xd7:
		return bit(rAX)
	case op == 0xa4, op == 0xa5, op == 0xa6, op == 0xa7, op == 0x6c, op == 0x6d, op == 0x6e, op == 0x6f,
		op >= 0xaa && op < 0xb0: // string instructions, with a count
		return bit(rAX) | bit(rCX) | bit(rSI) | bit(rDI)
	case op >= 0xb0 && op < 0xb8:
		return in.byteBit(in.low())
	case op >= 0xb8 && op < 0xc0:
		return bit(in.low())
	case op >= 0xd8 && op < 0xe0: // x87: fnstsw ax
		return bit(rAX)
	case op >= 0xe0 && op < 0xe3: // loop
		return bit(rCX)
	case op == 0xf6, op == 0xf7:
		switch in.reg & 7 {
		case 0, 1: // test
			return 0
		case 2, 3: // not, neg
			if op == 0xf6 {
				return in.byteRM()
			}
			return in.rmBit()
		}
		return bit(rAX) | bit(rDX)
	case op == 0xff: // inc, dec
		if in.reg&7 < 2 {
			return in.rmBit()
		}
	}
	return 0
}

func (in *insn) twoByteWrites() uint16 {
	op := in.op
	switch {
	case op == 0x00, op == 0x01, op == 0xa4, op == 0xa5, op == 0xab, op == 0xac, op == 0xad,
		op == 0xae, op == 0xb3, op == 0xba, op == 0xbb:
		if op == 0x01 { // some of these instructions write AX, CX and DX as well
			return in.rmBit()&^bit(rSP)&^bit(rBP) | bit(rAX) | bit(rCX) | bit(rDX)
		}
		if op == 0xae && in.prefix != 0xf3 { // fences
			return 0
		}
		return in.rmBit()
	case op == 0x02, op == 0x03, op >= 0x40 && op < 0x50, op == 0xaf, op == 0xb8, op == 0xbc, op == 0xbd,
		op == 0xb6, op == 0xb7, op == 0xbe, op == 0xbf:
		return bit(in.reg)
	case op == 0x05: // syscall
		return bit(rAX) | bit(rCX) | bit(11)
	case op >= 0x20 && op < 0x22: // mov from control and debug registers
		return bit(in.rm)
	case op == 0x2c, op == 0x2d: // to general registers, or to MMX
		return bit(in.reg)
	case op == 0x50, op == 0xc5, op == 0xd7:
		return bit(in.reg)
	case op == 0x1e: // nop, endbr64, rdssp
		if in.prefix == 0xf3 && in.reg&7 == 1 {
			return in.rmBit()
		}
		return 0
	case op == 0x31, op == 0x32, op == 0x33: // rdtsc, rdmsr, rdpmc
		return bit(rAX) | bit(rDX)
	case op == 0x78: // vmread
		return in.rmBit()
	case op == 0x7e:
		if in.prefix == 0xf3 {
			return 0
		}
		return in.rmBit()
	case op >= 0x90 && op < 0xa0: // setcc
		return in.byteRM()
	case op == 0xa2: // cpuid
		return bit(rAX) | bit(rBX) | bit(rCX) | bit(rDX)
	case op == 0xb0:
		return in.byteRM() | bit(rAX)
	case op == 0xb1:
		return in.rmBit() | bit(rAX)
	case op == 0xb2, op == 0xb4, op == 0xb5: // lss, lfs, lgs
		return bit(in.reg)
	case op == 0xc0:
		return in.byteRM() | in.byteBit(in.reg)
	case op == 0xc1:
		return in.rmBit() | bit(in.reg)
	case op == 0xc7: // cmpxchg8b, rdrand, rdseed, rdpid
		return in.rmBit() | bit(rAX) | bit(rDX)
	case op >= 0xc8 && op < 0xd0: // bswap
		return bit(in.low())
	}
	return 0
}

func (in *insn) vectorWrites() uint16 {
	op := in.op
	switch in.space {
	case 1:
		switch op {
		case 0x2c, 0x2d, 0x50, 0xc5, 0xd7, 0x93:
			return bit(in.reg)
		case 0x78, 0x79:
			if in.vector == evex {
				return bit(in.reg)
			}
		case 0x7e:
			if in.prefix == 0x66 {
				return in.rmBit()
			}
		}
	case 2:
		if op >= 0xf0 { // BMI: andn, blsr, bzhi, pdep, mulx, shlx, …
			return bit(in.reg) | bit(in.vvvv)
		}
	case 3:
		switch {
		case op >= 0x14 && op <= 0x17:
			return in.rmBit()
		case op >= 0x60 && op <= 0x63:
			return bit(rCX)
		case op == 0xf0: // rorx
			return bit(in.reg)
		}
	case 5: // AVX512-FP16
		switch op {
		case 0x2c, 0x2d, 0x78, 0x79:
			return bit(in.reg)
		case 0x7e:
			return in.rmBit()
		}
	}
	return 0
}
