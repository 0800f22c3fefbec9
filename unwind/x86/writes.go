package x86

// CallerSaved are the registers that a call may change (System V ABI, AMD64
// supplement, figure 3.4).
const CallerSaved = 1<<AX | 1<<CX | 1<<DX | 1<<SI | 1<<DI | 0xf<<8

// Bit is the set of one register.
func Bit(reg uint8) uint16 { return 1 << (reg & 15) }

// Writes returns the set of general registers that the instruction may write, by their numbers in instructions, SP only
// where it is an explicit operand. If Writes has a register too many, a rule may be lost; if it lacked one, a rule
// could be wrong.
func (in *Insn) Writes() uint16 {
	switch in.Encoding {
	case VEX, EVEX:
		return in.vectorWrites()
	case XOP: // bextr and similar instructions, in maps 9 and 10
		if in.Map == 9 && in.Op <= 0x02 || in.Map == 10 {
			return Bit(in.Reg) | Bit(in.VVVV) | in.RMBit()
		}
		return 0
	}
	switch in.Map {
	case 0:
		return in.oneByteWrites()
	case 1:
		return in.twoByteWrites()
	case 2:
		if in.Op >= 0xf0 { // movbe, crc32, adcx, adox, wrssq, aadd, …
			return Bit(in.Reg)
		}
		return 0
	}
	switch {
	case in.Op >= 0x14 && in.Op <= 0x17: // pextr
		return in.RMBit()
	case in.Op >= 0x60 && in.Op <= 0x63: // pcmpestri and similar instructions
		return Bit(CX)
	}
	return 0
}

// RMBit is the register in the r/m field, nothing when that is memory.
func (in *Insn) RMBit() uint16 {
	if in.Mod == 3 {
		return Bit(in.RM)
	}
	return 0
}

// ByteBit is Bit for an operand of 8 bits: without REX, 4 to 7 are AH to BH.
func (in *Insn) ByteBit(reg uint8) uint16 {
	if in.REX == 0 && reg >= 4 && reg < 8 {
		return Bit(reg - 4)
	}
	return Bit(reg)
}

func (in *Insn) byteRM() uint16 {
	if in.Mod == 3 {
		return in.ByteBit(in.RM)
	}
	return 0
}

// Low is the register that the low three bits of the opcode name. REX.B is
// bit 0 of the prefix.
func (in *Insn) Low() uint8 { return in.Op&7 | in.REX&1<<3 }

func (in *Insn) oneByteWrites() uint16 {
	op := in.Op
	switch {
	case op < 0x40: // the eight arithmetic operations; 38 to 3d is cmp
		if op >= 0x38 {
			return 0
		}
		switch op & 7 {
		case 0:
			return in.byteRM()
		case 1:
			return in.RMBit()
		case 2:
			return in.ByteBit(in.Reg)
		case 3:
			return Bit(in.Reg)
		}
		return Bit(AX)
	case op == 0x63, op == 0x69, op == 0x6b, op == 0x8b, op == 0x8d:
		return Bit(in.Reg)
	case op == 0x8a:
		return in.ByteBit(in.Reg)
	case op == 0x80, op == 0x81, op == 0x83:
		if in.Reg&7 == 7 { // cmp
			return 0
		}
		if op == 0x80 {
			return in.byteRM()
		}
		return in.RMBit()
	case op == 0x84, op == 0x85: // test
		return 0
	case op == 0x86: // xchg
		return in.byteRM() | in.ByteBit(in.Reg)
	case op == 0x87:
		return in.RMBit() | Bit(in.Reg)
	case op == 0x88, op == 0xc0, op == 0xd0, op == 0xd2, op == 0xc6, op == 0xfe:
		return in.byteRM()
	case op == 0x89, op == 0x8c, op == 0xc1, op == 0xd1, op == 0xd3, op == 0xc7:
		return in.RMBit()
	case op == 0x8e: // mov to a segment register
		return 0
	case op >= 0x90 && op < 0x98: // xchg with AX; 90 is nop
		if in.Low() == AX {
			return 0
		}
		return Bit(in.Low()) | Bit(AX)
	case op == 0x98:
		return Bit(AX)
	case op == 0x99:
		return Bit(DX)
	case op == 0x9f, op == 0xa0, op == 0xa1, op == 0xe4, op == 0xe5, op == 0xec, op == 0xed, op == 0xd7:
		return Bit(AX)
	case op == 0xa4, op == 0xa5, op == 0xa6, op == 0xa7, op == 0x6c, op == 0x6d, op == 0x6e, op == 0x6f,
		op >= 0xaa && op < 0xb0: // string instructions, with a count
		return Bit(AX) | Bit(CX) | Bit(SI) | Bit(DI)
	case op >= 0xb0 && op < 0xb8:
		return in.ByteBit(in.Low())
	case op >= 0xb8 && op < 0xc0:
		return Bit(in.Low())
	case op >= 0xd8 && op < 0xe0: // x87: fnstsw ax
		return Bit(AX)
	case op >= 0xe0 && op < 0xe3: // loop
		return Bit(CX)
	case op == 0xf6, op == 0xf7:
		switch in.Reg & 7 {
		case 0, 1: // test
			return 0
		case 2, 3: // not, neg
			if op == 0xf6 {
				return in.byteRM()
			}
			return in.RMBit()
		}
		return Bit(AX) | Bit(DX)
	case op == 0xff: // inc, dec
		if in.Reg&7 < 2 {
			return in.RMBit()
		}
	}
	return 0
}

func (in *Insn) twoByteWrites() uint16 {
	op := in.Op
	switch {
	case op == 0x00, op == 0x01, op == 0xa4, op == 0xa5, op == 0xab, op == 0xac, op == 0xad,
		op == 0xae, op == 0xb3, op == 0xba, op == 0xbb:
		if op == 0x01 { // some of these instructions write AX, CX and DX as well
			return in.RMBit()&^Bit(SP)&^Bit(BP) | Bit(AX) | Bit(CX) | Bit(DX)
		}
		if op == 0xae && in.Prefix != 0xf3 { // fences
			return 0
		}
		return in.RMBit()
	case op == 0x02, op == 0x03, op >= 0x40 && op < 0x50, op == 0xaf, op == 0xb8, op == 0xbc, op == 0xbd,
		op == 0xb6, op == 0xb7, op == 0xbe, op == 0xbf:
		return Bit(in.Reg)
	case op == 0x05: // syscall
		return Bit(AX) | Bit(CX) | Bit(11)
	case op >= 0x20 && op < 0x22: // mov from control and debug registers
		return Bit(in.RM)
	case op == 0x2c, op == 0x2d: // to general registers, or to MMX
		return Bit(in.Reg)
	case op == 0x50, op == 0xc5, op == 0xd7:
		return Bit(in.Reg)
	case op == 0x1e: // nop, endbr64, rdssp
		if in.Prefix == 0xf3 && in.Reg&7 == 1 {
			return in.RMBit()
		}
		return 0
	case op == 0x31, op == 0x32, op == 0x33: // rdtsc, rdmsr, rdpmc
		return Bit(AX) | Bit(DX)
	case op == 0x78: // vmread
		return in.RMBit()
	case op == 0x7e:
		if in.Prefix == 0xf3 {
			return 0
		}
		return in.RMBit()
	case op >= 0x90 && op < 0xa0: // setcc
		return in.byteRM()
	case op == 0xa2: // cpuid
		return Bit(AX) | Bit(BX) | Bit(CX) | Bit(DX)
	case op == 0xb0:
		return in.byteRM() | Bit(AX)
	case op == 0xb1:
		return in.RMBit() | Bit(AX)
	case op == 0xb2, op == 0xb4, op == 0xb5: // lss, lfs, lgs
		return Bit(in.Reg)
	case op == 0xc0:
		return in.byteRM() | in.ByteBit(in.Reg)
	case op == 0xc1:
		return in.RMBit() | Bit(in.Reg)
	case op == 0xc7: // cmpxchg8b, rdrand, rdseed, rdpid
		return in.RMBit() | Bit(AX) | Bit(DX)
	case op >= 0xc8 && op < 0xd0: // bswap
		return Bit(in.Low())
	}
	return 0
}

func (in *Insn) vectorWrites() uint16 {
	op := in.Op
	switch in.Map {
	case 1:
		switch op {
		case 0x2c, 0x2d, 0x50, 0xc5, 0xd7, 0x93:
			return Bit(in.Reg)
		case 0x78, 0x79:
			if in.Encoding == EVEX {
				return Bit(in.Reg)
			}
		case 0x7e:
			if in.Prefix == 0x66 {
				return in.RMBit()
			}
		}
	case 2:
		if op >= 0xf0 { // BMI: andn, blsr, bzhi, pdep, mulx, shlx, …
			return Bit(in.Reg) | Bit(in.VVVV)
		}
	case 3:
		switch {
		case op >= 0x14 && op <= 0x17:
			return in.RMBit()
		case op >= 0x60 && op <= 0x63:
			return Bit(CX)
		case op == 0xf0: // rorx
			return Bit(in.Reg)
		}
	case 5: // AVX512-FP16
		switch op {
		case 0x2c, 0x2d, 0x78, 0x79:
			return Bit(in.Reg)
		case 0x7e:
			return in.RMBit()
		}
	}
	return 0
}
