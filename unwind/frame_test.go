package unwind

import (
	"slices"
	"testing"

	"unspool/unwind/rule"
)

// framesFarAway has functions with frame pointers behind more code than is searched for calls, in a hole that
// is too large to be decoded as a whole, so that their starts are not known.
const framesFarAway = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call caller
in_start:
	nop
	.cfi_endproc
	.skip 5 << 20, 0xcc

	.p2align 4, 0xcc
caller:
	push %rbp
	mov %rsp, %rbp
	call framed
in_caller:
	pop %rbp
	ret
	.p2align 4, 0xcc
framed:
	push %rbp
at_mov:
	mov %rsp, %rbp
	push %rbx
	call *(%rdi)
	pop %rbx
	pop %rbp
at_tail_call:
	jmp *%rax
	.p2align 4, 0xcc
adjusted:
	add $8, %rdi
	jmp framed
	.p2align 4, 0xcc
wrapped:
	test %rdi, %rdi
	je 1f
	push %rbp
	mov %rsp, %rbp
	call *(%rdi)
	pop %rbp
1:	ret
	.p2align 4, 0xcc
marked:
	endbr64
	push %rbp
	.byte 0x48, 0x8b, 0xec
	call *(%rdi)
	hlt
	.p2align 4, 0xcc
body:
	push %rbp
	mov %rsp, %rbp
	mov 0x5d(%rbx), %cl
no_pop:
	jmp *%rax
	.p2align 4, 0xcc
	lea 8(%rsp), %r10
	and $-32, %rsp
	push -8(%r10)
realigned:
	push %rbp
	mov %rsp, %rbp
	call *(%rdi)
	hlt
	.section .note.GNU-stack,"",@progbits
`

// TestFramePointerThatIsNotSetYet samples functions where BP is still, or is again, their caller's.
func TestFramePointerThatIsNotSetYet(t *testing.T) {
	space, images, at := labelledProgram(t, framesFarAway)
	inCaller, inStart := at["in_caller"], at["in_start"]
	if inCaller-inStart < 5<<20 {
		t.Fatalf("%d bytes between the functions", inCaller-inStart)
	}
	const callerBP = madeSP + 16
	for _, c := range []struct {
		label string
		words []uint64 // below the frame of caller
	}{
		{"framed", []uint64{0, inCaller}},
		{"at_mov", []uint64{callerBP, inCaller}},
		{"at_tail_call", []uint64{0, inCaller}},
		{"adjusted", []uint64{0, inCaller}},
		{"wrapped", []uint64{0, inCaller}},
		{"marked", []uint64{0, inCaller}},
	} {
		sp := uint64(madeSP)
		if c.words[0] == 0 {
			c.words, sp = c.words[1:], sp+8
		}
		stack := madeCopy(true, append(c.words, 0, inStart, 1)...)
		stack.Base = sp
		var regs Regs
		regs.set(rule.IP, at[c.label])
		regs.set(rule.SP, sp)
		regs.set(rule.BP, callerBP)
		got := NewUnwinder(images).Unwind(space, &regs, stack)
		if want := []uint64{at[c.label], inCaller, inStart}; !slices.Equal(got.IPs, want) || got.End != Root {
			t.Errorf("at %s: %#x, %v; want %#x", c.label, got.IPs, got.End, want)
		}
	}
	for _, label := range []string{"no_pop", "realigned"} {
		m := space.Find(at[label])
		p := placeIn(images.Lookup(1, m), m)
		if r := p.rule(at[label]); r.Kind() == rule.GuessSP {
			t.Errorf("at %s: %v", label, r)
		}
	}
}
