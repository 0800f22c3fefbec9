package asm

import (
	"bytes"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/x86"
)

// This file has what is i386, as x86_64.go has it for x86-64.

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
		case in.IsOneByte() && in.Op == 0x50+x86.BP:
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

// finish386 is the same in make_i386_sysv_elf_gas.S, with 0xcc in the place of any byte: it finds the
// procedure linkage table, and calls _exit with 0.
var finish386 = []byte{
	0xe8, 0, 0, 0, 0, // call of the next instruction
	0x5b,                               // pop %ebx
	0x81, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, // add $offset, %ebx
	0x31, 0xc0, // xor %eax, %eax
	0x89, 0x04, 0x24, // mov %eax, (%esp)
	0xe8, 0xcc, 0xcc, 0xcc, 0xcc, // call _exit
	0xf4, // hlt
}

func (c *Code) isFinish386(addr uint64) bool {
	if mark := endbr[elf.EM_386]; bytes.HasPrefix(c.bytes(addr), mark) {
		addr += uint64(len(mark))
	}
	for i, want := range finish386 {
		at := addr + uint64(i)
		if i%pageOver == 0 && len(c.bytes(at)) < min(pageOver, len(finish386)-i) {
			return false
		}
		if want != 0xcc && c.bytes(at)[0] != want {
			return false
		}
	}
	return true
}

// lowers386 is by how many bytes the 32-bit instruction lowers ESP, if that is known.
func (in *insn) lowers386() (n int64, known bool) {
	const word = 4
	op := in.Op
	switch {
	case !in.IsOneByte():
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
