package unwind

import (
	"slices"
	"testing"

	"unspool/unwind/rule"
)

// tables has functions whose CFI needs more than SP and BP of themselves.
const tables = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call from_rbx
in_start:
	nop
	.cfi_endproc
	.p2align 4
from_rbx:
	.cfi_startproc
	.cfi_def_cfa rbx, 16
	nop
	.cfi_endproc
	.p2align 4
by_expression:
	.cfi_startproc
	.cfi_escape 0x0f, 8, 0x73, 0, 0x23, 16, 0x31, 0x1e, 0x31, 0x1e  # CFA = rbx + 16, times 1, twice
	nop
	.cfi_endproc
	.p2align 4
derefs:
	.cfi_startproc
	.cfi_escape 0x0f, 5, 0x76, 0, 6, 0x40, 0x22                     # CFA = *rbp + 16, which is rbp + 16
	.cfi_offset rbp, -16
	push %rbp
	mov %rsp, %rbp
	call work
in_derefs:
	nop
	.cfi_endproc
	.p2align 4
work:
	.cfi_startproc
	ret
	.cfi_endproc
	.p2align 4
popped:
	.cfi_startproc
	pop %rax
	.cfi_def_cfa_offset 0
in_popped:
	jmp *%rax
	.cfi_endproc
	.p2align 4
from_rcx:
	.cfi_startproc
	.cfi_def_cfa rcx, 16
	call keeps_rcx
after_keeping:
	call writes_rcx
after_writing:
	call *%rax
after_any:
	nop
	.cfi_endproc
	.p2align 4
keeps_rcx:
	.cfi_startproc
	mov (%rcx), %rax
	ret
	.cfi_endproc
	.p2align 4
writes_rcx:
	.cfi_startproc
	nop
	pop %rcx
	jmp *%rcx
	.cfi_endproc
	.p2align 4
below_sp:
	.cfi_startproc
	mov %rsp, -8(%rsp)
	.cfi_escape 0x0f, 5, 0x77, 0x78, 6, 0x23, 8                     # CFA = *(rsp - 8) + 8
in_below_sp:
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`

// TestRegisterThatCallsChange386 walks to a function of 32 bits that has called, and whose CFA is in a
// register that what it has called may have changed.
func TestRegisterThatCallsChange386(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined eip
	call from_ecx
in_start:
	nop
	.cfi_endproc
	.p2align 4
from_ecx:
	.cfi_startproc
	.cfi_def_cfa ecx, 8
	call *%eax
in_from_ecx:
	nop
	.cfi_endproc
	.p2align 4
leaf:
	.cfi_startproc
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`, "-m32")
	const sp = 0xffc0_1000
	for _, c := range []struct {
		pc   string
		want []uint64
		end  Reason
	}{
		{"from_ecx", []uint64{at["from_ecx"], at["in_start"]}, Root},
		{"leaf", []uint64{at["leaf"], at["in_from_ecx"]}, UnknownRegister},
	} {
		var regs Regs
		regs.set(rule.IP386, at[c.pc])
		regs.set(rule.SP386, sp)
		regs.set(1, sp+4) // ECX
		stack := Stack{Base: sp, Data: words(at["in_from_ecx"], 0, at["in_start"], 1), Asked: 64}
		got := NewUnwinder(images).UnwindByRows(rule.I386, space, &regs, &stack)
		if !slices.Equal(got.IPs, c.want) || got.End != c.end {
			t.Errorf("%s: %#x, %v; want %#x, %v", c.pc, got.IPs, got.End, c.want, c.end)
		}
	}
}

// TestEachCauseHasItsReason walks to frames whose CFI cannot be evaluated, or leads astray.
func TestEachCauseHasItsReason(t *testing.T) {
	space, images, at := labelledProgram(t, tables)
	fromRBX, byExpr, work := at["from_rbx"], at["by_expression"], at["work"]
	inDerefs, inStart := at["in_derefs"], at["in_start"]
	const other = 0x7f00_0000_0000 // another stack
	frame := func(bp, ret uint64) []uint64 { return []uint64{inDerefs, 0, bp, ret, 1} }
	for _, c := range []struct {
		name        string
		pc, bx      uint64 // bx is CX, too
		words       []uint64
		want        []uint64
		end, strict Reason
	}{
		{"register", fromRBX, madeSP, []uint64{0, inStart, 1}, []uint64{fromRBX, inStart}, Root, Root},
		{"register not known", fromRBX, 0, []uint64{0, inStart, 1}, []uint64{fromRBX},
			UnknownRegister, UnknownRegister},
		{"in an expression", byExpr, 0, []uint64{0, inStart, 1}, []uint64{byExpr},
			UnknownRegister, UnknownRegister},
		{"another stack", fromRBX, other, []uint64{0, inStart, 1}, []uint64{fromRBX}, NotCopied, NotCopied},
		{"return address below SP", at["in_popped"], 0, []uint64{0, inStart, 1}, []uint64{at["in_popped"]},
			NotCopied, NotCopied},
		{"the CFA below SP", at["in_below_sp"], 0, []uint64{inStart, 1}, []uint64{at["in_below_sp"]},
			NotCopied, NotCopied},
		{"no address", fromRBX, 1 << 60, []uint64{0, inStart, 1}, []uint64{fromRBX}, BadCFI, BadCFI},
		{"register that the called function keeps", at["keeps_rcx"], madeSP + 8,
			[]uint64{at["after_keeping"], 0, inStart, 1}, []uint64{at["keeps_rcx"], at["after_keeping"], inStart},
			Root, Root},
		{"register that it may have changed", at["writes_rcx"], madeSP + 8,
			[]uint64{at["after_writing"], 0, inStart, 1}, []uint64{at["writes_rcx"], at["after_writing"]},
			UnknownRegister, UnknownRegister},
		{"register after a call of any function", at["keeps_rcx"], madeSP + 8,
			[]uint64{at["after_any"], 0, inStart, 1}, []uint64{at["keeps_rcx"], at["after_any"]},
			UnknownRegister, UnknownRegister},
		{"wrong CFI beside a frame pointer", work, 0, frame(16, inStart), []uint64{work, inDerefs, inStart},
			Root, BadCFI},
		{"the same, to what follows no call", work, 0, frame(16, work), []uint64{work, inDerefs}, BadCFI, BadCFI},
		{"the same, to another stack", work, 0, frame(other, inStart), []uint64{work, inDerefs},
			NotCopied, NotCopied},
	} {
		for _, e := range evaluators {
			u := NewUnwinder(images)
			u.slow = e.slow
			var regs Regs
			regs.set(rule.IP, c.pc)
			regs.set(rule.SP, madeSP)
			regs.set(rule.BP, madeSP+16)
			if c.bx != 0 {
				regs.set(rule.BX, c.bx)
				regs.set(2, c.bx) // CX
			}
			stack := madeCopy(e.aligned, c.words...)
			if got := u.Unwind(space, &regs, stack); !slices.Equal(got.IPs, c.want) || got.End != c.end {
				t.Errorf("%s, %s: %#x, %v; want %#x, %v", c.name, e.name, got.IPs, got.End, c.want, c.end)
			}
			u.Strict = true
			if got := u.Unwind(space, &regs, stack); got.End != c.strict {
				t.Errorf("%s, %s, strict: %#x, %v; want %v", c.name, e.name, got.IPs, got.End, c.strict)
			}
		}
	}
}
