package unwind

import (
	"slices"
	"testing"

	"unspool/unwind/rule"
)

// TestDataThatCanBeExecuted walks stacks of a process with READ_IMPLIES_EXEC: its data can be
// executed, in one mapping with its code, and looks like a call here, but nothing returns to it.
func TestDataThatCanBeExecuted(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call *%rax
in_start:
	nop
	.cfi_endproc
	.p2align 8
bare:
	mov %rax, %rsp
in_bare:
	jmp *%rax
	.p2align 4
work:
	.cfi_startproc
	ret
	.cfi_endproc
	.data
	.balign 4096
begin:
	.byte 0xff, 0xd0  # call *%rax
table:
	.byte 0x90
	.section .note.GNU-stack,"",@progbits
`)
	for _, c := range []struct {
		name string
		pc   uint64
		ret  uint64
		want []uint64
	}{
		{"CFI to data", at["work"], at["table"], []uint64{at["work"]}},
		{"CFI", at["work"], at["in_start"], []uint64{at["work"], at["in_start"]}},
		{"frame pointer", at["in_bare"], at["in_start"],
			[]uint64{at["in_bare"], at["in_start"]}},
		{"frame pointer to data", at["in_bare"], at["table"], []uint64{at["in_bare"]}},
	} {
		for _, e := range evaluators {
			u := NewUnwinder(images)
			u.slow = e.slow
			var regs Regs
			regs.set(rule.IP, c.pc)
			regs.set(rule.SP, madeSP)
			regs.set(rule.BP, madeSP-8)
			words := []uint64{c.ret, 1}
			if c.pc == at["in_bare"] {
				words = []uint64{0, c.ret, 1}
				regs.set(rule.BP, madeSP)
			}
			got := u.Unwind(space, &regs, madeCopy(e.aligned, words...))
			if !slices.Equal(got.IPs, c.want) || (got.End == Root) != (len(c.want) == 2) {
				t.Errorf("%s, %s: %#x, %v; want %#x", c.name, e.name, got.IPs, got.End, c.want)
			}
		}
	}
}
