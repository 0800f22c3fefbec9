package asm

import (
	"debug/elf"
	"testing"

	"golang.org/x/arch/x86/x86asm"

	"unspool/testdata/programs"

	"unspool/unwind/x86"
)

// writtenRegs gives the general registers that x86asm's first operand names.
func writtenRegs(inst x86asm.Inst) uint16 {
	r, ok := inst.Args[0].(x86asm.Reg)
	if !ok {
		return 0
	}
	switch {
	case r >= x86asm.RAX && r <= x86asm.R15:
		return 1 << (r - x86asm.RAX)
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return 1 << (r - x86asm.EAX)
	}
	return 0
}

// TestWritesOfRegistersAreKnown compares with golang.org/x/arch which registers the
// instructions of libc write. It knows fewer instructions, but those are right.
func TestWritesOfRegistersAreKnown(t *testing.T) {
	f, err := elf.Open(programs.System(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	// Those that only read their first operand.
	reads := map[x86asm.Op]bool{
		x86asm.CMP: true, x86asm.TEST: true, x86asm.PUSH: true, x86asm.CALL: true, x86asm.JMP: true,
		x86asm.BT: true, x86asm.NOP: true, x86asm.MUL: true, x86asm.DIV: true, x86asm.IDIV: true,
		x86asm.PTEST: true, x86asm.WRFSBASE: true, x86asm.WRGSBASE: true, x86asm.UD1: true, x86asm.UD0: true,
	}
	var in insn
	n := 0
	for pos := 0; pos < len(text); pos += max(in.Len, 1) {
		if !in.Decode(text[pos:]) {
			in.Len = 0
			continue
		}
		inst, err := x86asm.Decode(text[pos:], 64)
		if err != nil || inst.Len != in.Len || reads[inst.Op] || in.Encoding != x86.Legacy {
			continue
		}
		want := writtenRegs(inst)
		if inst.Op == x86asm.IMUL && inst.Args[1] == nil {
			want = 0
		}
		var s state
		s.init(false)
		for i := range s.regs {
			s.regs[i] = value{kind: ofSP, off: int32(i) << 20}
		}
		before := s
		s.step(&in, 0)
		for r := range s.regs {
			if want>>r&1 != 0 && s.regs[r] == before.regs[r] && !keepsItself(inst) {
				t.Errorf("% x: %v: register %d keeps its value", text[pos:pos+in.Len], inst, r)
			}
		}
		if want != 0 {
			n++
		}
	}
	t.Logf("%d instructions with a register as destination", n)
}

// keepsItself reports whether an instruction writes back the value that was there.
func keepsItself(inst x86asm.Inst) bool {
	switch inst.Op {
	case x86asm.MOV, x86asm.XCHG:
		return inst.Args[0] == inst.Args[1]
	case x86asm.LEA: // also of another register, which may have the same value
		return true
	case x86asm.ADD, x86asm.SUB:
		imm, ok := inst.Args[1].(x86asm.Imm)
		return ok && imm == 0
	}
	return false
}
