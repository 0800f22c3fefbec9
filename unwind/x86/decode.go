// Package x86 decodes instructions of x86-64 and i386, as far as rules for code need them: their lengths, their
// operands, and the general registers that they may write.
//
// golang.org/x/arch/x86/x86asm cannot be used instead: it gives wrong lengths for vzeroupper, adcx and endbr64 and does
// not know XOP, which hand-written assembly often uses. Tests compare the two, and objdump.
package x86

import "encoding/binary"

// An Insn is one decoded instruction (Intel SDM, volume 2, chapter 2 and appendix A). Its fields are what the encoding
// has: which of them are operands depends on Map, Encoding and Op.
type Insn struct {
	Len      int      // length in bytes
	Map      uint8    // opcode map: 0 one byte, 1 0F, 2 0F38, 3 0F3A; others as VEX, EVEX and XOP number them
	Encoding Encoding // Legacy, or a prefix that carries the map
	Op       byte
	Prefix   byte // mandatory prefix: 0, 0x66, 0xf2, 0xf3
	REX      byte // 0 without a REX prefix; only its presence and W are used from here
	Segment  bool // fs or gs
	Narrow   bool // 0x66: 16-bit operands
	HasModRM bool

	Mod      uint8
	Reg, RM  uint8 // with the bits of REX, VEX, EVEX or XOP
	VVVV     uint8
	Base     uint8 // register of a memory operand, or None, or RIP
	HasIndex bool
	Scale    uint8 // of the index: 1, 2, 4 or 8
	Disp     int64
	Imm      int64
	Fixed    bool // 0x67: 32-bit addresses
	Is386    bool // an instruction of 32-bit code
}

// An Encoding is the kind of prefix that an instruction begins with.
type Encoding uint8

const (
	Legacy Encoding = iota
	VEX
	EVEX
	XOP
)

// Bases of memory operands that are no general register.
const (
	None = 0xff // an absolute address, or no memory operand
	RIP  = 0xfe // the address of the next instruction
)

const (
	Longest = 15 // bytes of an instruction at most
	RexW    = 8
)

// Numbers of general registers as instructions encode them, which is not DWARF's order.
const (
	AX = 0
	CX = 1
	DX = 2
	BX = 3
	SP = 4
	BP = 5
	SI = 6
	DI = 7
)

// immediate sizes of the one-byte map; z is 4, or 2 with 16-bit operands.
const (
	noImm = iota
	imm8
	immZ
	imm16
	imm16x8
	immV    // of mov: 8 with REX.W
	immMoff // an address
	immRel  // 4, whatever the size of the operands
	immF6   // of f6 and f7: there for /0 and /1 only
	immBad
)

var (
	oneByteModRM [256]bool
	oneByteImm   [256]uint8
	twoByteModRM [256]bool
	twoByteImm   [256]bool // imm8; without the jumps
	twoByteBad   [256]bool
)

func init() {
	fill := func(t []uint8, v uint8, ops ...int) {
		for _, op := range ops {
			t[op] = v
		}
	}
	for op := 0; op < 0x40; op++ {
		switch op & 7 {
		case 0, 1, 2, 3:
			oneByteModRM[op] = true
		case 4:
			oneByteImm[op] = imm8
		case 5:
			oneByteImm[op] = immZ
		}
	}
	for _, op := range []int{
		0x63, 0x69, 0x6b, 0xc0, 0xc1, 0xc6, 0xc7, 0xd0, 0xd1, 0xd2, 0xd3, 0xf6, 0xf7, 0xfe, 0xff,
	} {
		oneByteModRM[op] = true
	}
	for op := 0x80; op < 0x90; op++ {
		oneByteModRM[op] = true
	}
	for op := 0xd8; op < 0xe0; op++ {
		oneByteModRM[op] = true
	}
	fill(oneByteImm[:], imm8, 0x6a, 0x6b, 0x80, 0x83, 0xa8, 0xc0, 0xc1, 0xc6, 0xcd, 0xeb,
		0xe0, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7)
	fill(oneByteImm[:], immZ, 0x68, 0x69, 0x81, 0xa9, 0xc7)
	fill(oneByteImm[:], immRel, 0xe8, 0xe9)
	fill(oneByteImm[:], immF6, 0xf6, 0xf7)
	fill(oneByteImm[:], imm16, 0xc2, 0xca)
	fill(oneByteImm[:], imm16x8, 0xc8)
	fill(oneByteImm[:], immMoff, 0xa0, 0xa1, 0xa2, 0xa3)
	for op := 0x70; op < 0x80; op++ {
		oneByteImm[op] = imm8
	}
	for op := 0xb0; op < 0xb8; op++ {
		oneByteImm[op] = imm8
		oneByteImm[op+8] = immV
	}
	fill(oneByteImm[:], immBad, 0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f,
		0x60, 0x61, 0x82, 0x9a, 0xce, 0xd4, 0xd5, 0xd6, 0xea,
		0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3) // prefixes after REX
	for op := 0x40; op < 0x50; op++ {
		oneByteImm[op] = immBad
	}

	for op := range twoByteModRM {
		twoByteModRM[op] = true
	}
	for _, op := range []int{
		0x05, 0x06, 0x07, 0x08, 0x09, 0x0b, 0x0e, 0x77, 0xa0, 0xa1, 0xa2, 0xa8, 0xa9, 0xaa,
	} {
		twoByteModRM[op] = false
	}
	for op := 0x30; op < 0x38; op++ {
		twoByteModRM[op] = false
	}
	for op := 0x80; op < 0x90; op++ {
		twoByteModRM[op] = false
	}
	for op := 0xc8; op < 0xd0; op++ {
		twoByteModRM[op] = false
	}
	for _, op := range []int{0x0f, 0x70, 0x71, 0x72, 0x73, 0xa4, 0xac, 0xba, 0xc2, 0xc4, 0xc5, 0xc6} {
		twoByteImm[op] = true
	}
	for _, op := range []int{
		0x04, 0x0a, 0x0c, 0x24, 0x25, 0x26, 0x27, 0x36, 0x39, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f, 0xa6, 0xa7,
	} {
		twoByteBad[op] = true
	}
}

// Decode decodes the instruction at the start of b into in. It reports false if
// there is none, or it is not known, or is cut short.
func (in *Insn) Decode(b []byte) bool {
	*in = Insn{Base: None}
	return in.prefixes(b)
}

// Decode386 does the same for 32-bit code, where no register has a number above 7, and no address is
// relative to the PC.
func (in *Insn) Decode386(b []byte) bool {
	*in = Insn{Base: None, Is386: true}
	return in.prefixes(b) && !in.Fixed
}

// prefixes decodes an instruction from its prefixes onwards.
func (in *Insn) prefixes(b []byte) bool {
	if len(b) > Longest {
		b = b[:Longest]
	}
	i := 0
prefixes:
	for ; i < len(b); i++ {
		switch b[i] {
		case 0x66:
			in.Narrow = true
			if in.Prefix == 0 {
				in.Prefix = 0x66
			}
		case 0xf2, 0xf3:
			in.Prefix = b[i]
		case 0x64, 0x65:
			in.Segment = true
		case 0x67:
			in.Fixed = true
		case 0xf0, 0x2e, 0x36, 0x3e, 0x26:
		default:
			break prefixes
		}
	}
	if i < len(b) && b[i]&0xf0 == 0x40 && !in.Is386 {
		in.REX = b[i]
		i++
	}
	if i+3 >= len(b) { // make room for the longest run of opcode bytes
		var padded [Longest + 4]byte
		n := copy(padded[:], b)
		return in.opcode(padded[:], i) && in.Len <= n
	}
	return in.opcode(b, i)
}

// opcode decodes an instruction from its opcode at b[i] onwards; the caller made sure of b[i+3].
//
//nolint:funlen // a table: one case for each group of opcodes
func (in *Insn) opcode(b []byte, i int) bool {
	var r, x, m uint8 = in.REX & 4 << 1, in.REX & 2 << 2, in.REX & 1 << 3
	op := b[i]
	i++
	imm := uint8(noImm)
	switch {
	case op == 0x0f:
		op = b[i]
		i++
		in.Map = 1
		switch op {
		case 0x38, 0x3a:
			in.Map = 2 + op>>1&1
			in.HasModRM = true
			if op == 0x3a {
				imm = imm8
			}
			op = b[i]
			i++
		default:
			if twoByteBad[op] {
				return false
			}
			in.HasModRM = twoByteModRM[op]
			if twoByteImm[op] {
				imm = imm8
			} else if op&0xf0 == 0x80 {
				imm = immRel
			}
		}
	case (op == 0xc5 || op == 0xc4 || op == 0x62) && (!in.Is386 || b[i]>>6 == 3) || op == 0x8f && b[i]&0x1f >= 8:
		if in.REX != 0 {
			return false
		}
		p := b[i]
		i++
		r = ^p >> 4 & 8
		in.Map = 1
		var second byte
		switch op {
		case 0xc5:
			in.Encoding = VEX
			second = p
		case 0xc4, 0x8f:
			in.Encoding = VEX
			if op == 0x8f {
				in.Encoding = XOP
			}
			in.Map = p & 0x1f
			x, m = ^p>>3&8, ^p>>2&8
			second = b[i]
			i++
			in.REX = second >> 4 & RexW
		default:
			in.Encoding = EVEX
			in.Map = p & 7
			x, m = ^p>>3&8, ^p>>2&8
			second = b[i]
			in.REX = second >> 4 & RexW
			i += 2 // and the mask and rounding
		}
		in.VVVV = ^second >> 3 & 15
		in.Prefix = [4]byte{0, 0x66, 0xf3, 0xf2}[second&3]
		in.Narrow = false
		if i >= len(b) {
			return false
		}
		op = b[i]
		i++
		in.HasModRM = !(in.Encoding == VEX && in.Map == 1 && op == 0x77)
		switch {
		case in.Encoding == XOP:
			switch in.Map {
			case 8:
				imm = imm8
			case 9:
			case 10:
				imm = immRel
			default:
				return false
			}
		case in.Map == 1:
			if twoByteImm[op] && op != 0x0f && op != 0xa4 && op != 0xac && op != 0xba {
				imm = imm8
			}
		case in.Map == 3:
			imm = imm8
		case in.Map == 2 || in.Encoding == EVEX && (in.Map == 5 || in.Map == 6):
		default:
			return false
		}
	default:
		in.HasModRM = oneByteModRM[op]
		imm = oneByteImm[op]
		if in.Is386 {
			in.HasModRM, imm = oneByte386(op, in.HasModRM, imm)
		}
	}
	in.Op = op
	if in.HasModRM {
		if i >= len(b) {
			return false
		}
		c := b[i]
		i++
		in.Mod, in.Reg, in.RM = c>>6, c>>3&7|r, c&7|m
		if in.Mod != 3 {
			if i = in.memory(b, i, x, m); i < 0 {
				return false
			}
		}
	}
	if i = in.immediate(b, i, imm); i < 0 {
		return false
	}
	in.Len = i
	return i <= Longest
}

// oneByte386 returns what follows the one-byte opcodes that only 32-bit code has.
func oneByte386(op byte, modrm bool, imm uint8) (bool, uint8) {
	switch {
	case op&0xf0 == 0x40, op < 0x40 && imm == immBad && op&7 >= 6,
		op == 0x60, op == 0x61, op == 0xce, op == 0xd6:
		return false, noImm // inc, dec, segments, decimals, pusha, popa, into
	case op == 0x62, op == 0xc4, op == 0xc5: // bound, les, lds
		return true, noImm
	case op == 0x82, op == 0xd4, op == 0xd5:
		return modrm, imm8
	}
	return modrm, imm
}

// memory decodes SIB byte and displacement at b[i] and returns the index behind
// them, -1 if they are cut short.
func (in *Insn) memory(b []byte, i int, x, m uint8) int {
	in.Base = in.RM
	size := [3]int{0, 1, 4}[in.Mod]
	switch {
	case in.RM&7 == 4:
		if i >= len(b) {
			return -1
		}
		sib := b[i]
		i++
		in.HasIndex = sib>>3&7|x != 4
		in.Scale = 1 << (sib >> 6)
		in.Base = sib&7 | m
		if sib&7 == 5 && in.Mod == 0 {
			in.Base, size = None, 4
		}
	case in.RM&7 == 5 && in.Mod == 0:
		in.Base, size = RIP, 4
		if in.Is386 {
			in.Base = None
		}
	}
	var ok bool
	if in.Disp, ok = signed(b, i, size); !ok {
		return -1
	}
	return i + size
}

func (in *Insn) immediate(b []byte, i int, kind uint8) int {
	size := 0
	z := 4
	if in.Narrow && in.REX&RexW == 0 {
		z = 2
	}
	switch kind {
	case imm8:
		size = 1
	case immZ:
		size = z
	case imm16:
		size = 2
	case imm16x8:
		size = 3
	case immRel:
		size = 4
	case immV:
		if size = z; in.REX&RexW != 0 {
			size = 8
		}
	case immMoff:
		if size = 8; in.Fixed || in.Is386 {
			size = 4
		}
	case immF6:
		if in.Reg&7 < 2 {
			if size = z; in.Op == 0xf6 {
				size = 1
			}
		}
	case immBad:
		return -1
	}
	var ok bool
	if in.Imm, ok = signed(b, i, size); !ok {
		return -1
	}
	return i + size
}

// signed reads a little-endian signed integer of size bytes at b[i].
func signed(b []byte, i, size int) (int64, bool) {
	if i+size > len(b) {
		return 0, false
	}
	switch b = b[i:]; size {
	case 0:
		return 0, true
	case 1:
		return int64(int8(b[0])), true
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b))), true
	case 3: // of enter: the level is not used
		return int64(binary.LittleEndian.Uint16(b)) | int64(b[2])<<16, true
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b))), true
	}
	return int64(binary.LittleEndian.Uint64(b)), true
}
