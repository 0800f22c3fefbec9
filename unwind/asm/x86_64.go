package asm

import "unspool/unwind/x86"

// This file says what instructions do to the stack, and where they lead.

// An insn is an instruction, with the questions that paths ask about it.
type insn struct{ x86.Insn }

// isSubSP reports whether the instruction lowers SP by a constant.
func (in *insn) isSubSP() bool {
	return in.Map == 0 && in.Encoding == x86.Legacy && (in.Op == 0x83 || in.Op == 0x81) &&
		in.Mod == 3 && in.Reg == 5 && in.RM == x86.SP
}

// movesStack reports whether the instruction pushes or pops.
func (in *insn) movesStack() bool {
	if in.Map != 0 || in.Encoding != x86.Legacy {
		return false
	}
	switch in.Op {
	case 0x8f, 0x9c, 0x9d, 0xc8, 0xc9: // pop to memory, pushf, popf, enter, leave
		return true
	}
	return in.pushes() != 0
}

// pushes is how many words the instruction pushes, negative for a pop.
func (in *insn) pushes() int {
	switch op := in.Op; {
	case in.Map != 0 || in.Encoding != x86.Legacy:
		return 0
	case op >= 0x50 && op < 0x58, op == 0x68, op == 0x6a, op == 0xff && in.Reg&7 == 6:
		return 1
	case op >= 0x58 && op < 0x60:
		return -1
	}
	return 0
}

// setsReturn reports whether the instruction pushes a word, or replaces the one that SP points to.
func (in *insn) setsReturn() bool {
	return in.pushes() > 0 || in.Map == 0 && in.Encoding == x86.Legacy && (in.Op == 0x87 || in.Op == 0x89) &&
		in.Mod == 0 && in.Base == x86.SP && !in.HasIndex
}

// turn classifies an instruction; target is the image address that it names.
func (in *insn) turn(addr uint64) (t turn, target uint64) {
	if in.Encoding != x86.Legacy {
		return onwards, 0
	}
	target = addr + uint64(in.Len) + uint64(in.Imm)
	switch in.Map {
	case 0:
		switch op := in.Op; {
		case op >= 0x70 && op < 0x80, op >= 0xe0 && op < 0xe4:
			return branches, target
		case op == 0xe9, op == 0xeb:
			return jumps, target
		case op == 0xe8:
			return calls, target
		case op == 0xc2, op == 0xc3:
			return returns, 0
		case op == 0xf4, op == 0xcc, op == 0xca, op == 0xcb, op == 0xcf, op == 0xf1:
			return stops, 0
		case op == 0xc7 && in.Mod == 3 && in.Reg&7 == 7: // xbegin
			return branches, target
		case op == 0xff:
			switch in.Reg & 7 {
			case 2:
				return callsFar, 0
			case 4:
				return jumpsFar, 0
			case 3, 5, 7:
				return stops, 0
			}
		}
	case 1:
		switch op := in.Op; {
		case op >= 0x80 && op < 0x90:
			return branches, target
		case op == 0x0b, op == 0xb9 || op == 0xff, op == 0x07, op == 0x35: // ud0 to ud2, sysret, sysexit
			return stops, 0
		}
	}
	return onwards, 0
}

// beginsFunction reports whether the instruction is endbr64, a push, or one that
// makes room on the stack.
func (in *insn) beginsFunction() bool {
	endbr := in.Map == 1 && in.Op == 0x1e && in.Prefix == 0xf3
	push := in.Map == 0 && in.Op >= 0x50 && in.Op < 0x58
	sub := in.Map == 0 && (in.Op == 0x83 || in.Op == 0x81) && in.Mod == 3 && in.Reg == 5 && in.RM == x86.SP
	return in.Encoding == x86.Legacy && (endbr || push || sub)
}

// setsConstant reports whether the instruction puts a 32-bit constant, which may
// be an address of a program that is not relocated, into a register, an
// argument or a variable.
func (in *insn) setsConstant() bool {
	return in.Map == 0 && in.Encoding == x86.Legacy && !in.Narrow &&
		(in.Op >= 0xb8 && in.Op < 0xc0 || in.Op == 0xc7 && in.Reg&7 == 0 || in.Op == 0x68)
}

// isPadding reports whether the instruction does nothing, or is never reached.
func (in *insn) isPadding() bool {
	return in.Encoding == x86.Legacy &&
		(in.Map == 0 && (in.Op == 0x90 || in.Op == 0xcc) || in.Map == 1 && in.Op == 0x1f)
}

// givesBack reports whether the instruction adds so much to SP.
func (in *insn) givesBack(room uint32) bool {
	return in.Map == 0 && in.Encoding == x86.Legacy && (in.Op == 0x81 || in.Op == 0x83) && in.Mod == 3 && in.Reg&7 == 0 &&
		in.RM == x86.SP && in.Imm == int64(room)
}

// leaves reports whether the instruction at addr never goes on to the next one.
func (in *insn) leaves(addr uint64) bool {
	t, _ := in.turn(addr)
	return !t.goesOn()
}

// lowers386 is by how many bytes the 32-bit instruction lowers ESP, if that is known.
func (in *insn) lowers386() (n int64, known bool) {
	const word = 4
	op := in.Op
	switch {
	case in.Encoding != x86.Legacy || in.Map != 0:
		return 0, in.Map != 1 || op&^9 != 0xa0 // push and pop of fs and gs
	case op >= 0x50 && op < 0x58, op == 0x68, op == 0x6a, op == 0x9c, op == 0xff && in.Reg == 6:
		return word, !in.Narrow
	case op >= 0x58 && op < 0x60, op == 0x8f, op == 0x9d:
		return -word, !in.Narrow && op != 0x58+x86.SP
	case (op == 0x81 || op == 0x83) && in.Mod == 3 && in.RM == x86.SP && in.Reg == 5: // sub
		return in.Imm, true
	case (op == 0x81 || op == 0x83) && in.Mod == 3 && in.RM == x86.SP && in.Reg == 0: // add
		return -in.Imm, true
	case op == 0x8d && in.Reg == x86.SP && in.Base == x86.SP && !in.HasIndex && in.Mod != 3:
		return -in.Disp, true
	case op < 0x40 && op&6 == 6, op == 0x60, op == 0x61, op == 0xc8, op == 0xc9, op == 0x44, op == 0x4c:
		return 0, false // segments, pusha, popa, enter, leave, inc and dec of ESP
	case op == 0xe8 && in.Imm == 0: // call of the next instruction, which pushes its address
		return word, true
	}
	return 0, in.Writes()&x86.Bit(x86.SP) == 0
}

func (in *insn) popsBP() bool {
	return in.Encoding == x86.Legacy && in.Map == 0 && in.Op == 0x58+x86.BP
}

// isNop reports whether an instruction is one that is used as padding.
func (in *insn) isNop() bool {
	switch {
	case in.Encoding != x86.Legacy:
		return false
	case in.Map == 0:
		return in.Op == 0x90 && in.REX == 0 && in.Prefix != 0xf3 // not xchg, nor pause
	}
	return in.Map == 1 && in.Op == 0x1f
}

// restores reports whether an instruction pops a register that calls leave alone.
func (in *insn) restores() bool {
	switch {
	case in.Map != 0 || in.Encoding != x86.Legacy:
		return false
	case in.Op == 0xc9: // leave
		return true
	}
	return in.Op >= 0x58 && in.Op < 0x60 && x86.CallerSaved>>in.Low()&1 == 0
}
