package unwind

import (
	"slices"
	"testing"

	"unspool/unwind/rule"
)

// TestThrowing samples a function that finds the frame that handles an exception, writes that frame's
// registers over its own saved ones, and leaves for the landing pad, the first instruction of a function.
func TestThrowing(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call handler
in_start:
	nop
	.cfi_endproc
handler:
	.cfi_startproc
	sub $24, %rsp
	.cfi_def_cfa_offset 32
	call thrower
in_handler:
	add $24, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
landing:
	.cfi_startproc
	.cfi_def_cfa_offset 32
	jmp in_handler
	.cfi_endproc
thrower:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register rbp
	call throw
in_thrower:
	pop %rbp
	.cfi_def_cfa rsp, 8
	ret
	.cfi_endproc
throw:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register rbp
	push %rdx
	.cfi_offset rdx, -24
	push %rax
	.cfi_offset rax, -32
	call install
in_throw:
	mov (%rbp), %rbp
	.cfi_restore rbp
	.cfi_def_cfa rcx, 8
at_mov:
	mov %rcx, %rsp
	.cfi_def_cfa rsp, 8
at_pop:
	pop %rcx
	.cfi_def_cfa_offset 0
	.cfi_register rip, rcx
at_jmp:
	jmp *%rcx
	.cfi_endproc
install:
	.cfi_startproc
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	word := func(i int) uint64 { return madeSP + 8*uint64(i) }
	const (
		context            = 1
		throwBP, throwRA   = 27, 28
		handlerBP, belowRA = 29, 30
		handlerSP          = 31
	)
	made := func() []uint64 {
		s := make([]uint64, 36)
		s[0] = at["in_throw"]
		s[context+rule.BP] = word(handlerBP)
		s[context+contextCFA/8] = word(handlerSP)
		s[context+contextLanding/8] = at["landing"]
		s[context+contextFunction/8] = at["handler"]
		s[throwBP], s[throwRA] = word(handlerBP), at["in_thrower"]
		s[handlerBP], s[belowRA] = word(33), at["in_handler"] // BP leads past the handler
		s[34], s[35] = at["in_start"], 1
		return s
	}
	type sampled struct {
		pc      string
		sp      int
		bp, rcx uint64
	}
	inCallee := sampled{"install", 0, word(throwBP), 0}
	for _, c := range []struct {
		name   string
		change func(s []uint64)
		at     sampled
		want   []string
		end    Reason
	}{
		{"searching", func([]uint64) {}, inCallee,
			[]string{"install", "in_throw", "in_thrower", "in_handler", "in_start"}, Root},
		{"searching, and the context has one function and the return address of the next", func(s []uint64) {
			s[context+contextFunction/8], s[context+contextLanding/8] = at["thrower"], at["in_handler"]
		}, inCallee, []string{"install", "in_throw", "in_thrower", "in_handler", "in_start"}, Root},
		{"BP written over", func(s []uint64) { s[throwBP] = s[handlerBP] }, inCallee,
			[]string{"install", "in_throw", "in_thrower", "in_handler", "in_start"}, Root},
		{"BP written over, and another frame between", func(s []uint64) {
			s[handlerBP], s[belowRA] = word(handlerBP+3), at["in_thrower"]
			s[handlerBP+3], s[belowRA+3] = word(35), at["in_handler"]
			s[throwBP], s[context+rule.BP] = s[handlerBP+3], word(handlerBP+3)
			s[context+contextCFA/8] = word(handlerSP + 3)
		}, inCallee, []string{"install", "in_throw", "in_thrower"}, UnknownRegister},
		{"BP written over, and the caller has no frame pointer", func(s []uint64) {
			s[throwBP], s[context+rule.BP], s[33] = 42, word(33), 42
		}, inCallee, []string{"install", "in_throw", "in_thrower"}, UnknownRegister},
		{"all written over", func(s []uint64) { s[throwBP], s[throwRA] = s[handlerBP], s[belowRA] }, inCallee,
			[]string{"install", "in_throw", "in_handler", "in_start"}, Root},
		{"the landing pad, too", func(s []uint64) {
			s[throwBP], s[throwRA], s[belowRA] = s[handlerBP], s[belowRA], at["landing"]
		}, inCallee, []string{"install", "in_throw", "in_handler", "in_start"}, Root},
		{"the handler is beyond the copy", func(s []uint64) {
			s[throwBP], s[throwRA] = s[handlerBP], s[belowRA]
			s[context+contextCFA/8] = word(100)
		}, inCallee, []string{"install", "in_throw"}, DumpTooShort},
		{"before SP changes", func(s []uint64) { s[belowRA] = at["landing"] },
			sampled{"at_mov", 25, word(33), word(belowRA)}, []string{"at_mov", "landing", "in_start"}, Root},
		{"before the pop", func(s []uint64) { s[belowRA] = at["landing"] },
			sampled{"at_pop", belowRA, word(33), word(belowRA)}, []string{"at_pop", "landing", "in_start"}, Root},
		{"before the jump", func([]uint64) {},
			sampled{"at_jmp", handlerSP, word(33), at["landing"]}, []string{"at_jmp", "landing", "in_start"}, Root},
	} {
		words := made()
		c.change(words)
		var regs Regs
		regs.set(rule.IP, at[c.at.pc])
		regs.set(rule.BP, c.at.bp)
		regs.set(2, c.at.rcx)
		regs.set(rule.SP, word(c.at.sp))
		stack := madeCopy(true, words[c.at.sp:]...)
		stack.Base = word(c.at.sp)
		var want []uint64
		for i, label := range c.want {
			if want = append(want, at[label]); i > 0 && label == "landing" {
				want[i]++ // so that the byte before is in its function
			}
		}
		u := NewUnwinder(images)
		for range 2 { // with the rules that the first walk has left
			got := u.Unwind(space, &regs, stack)
			if !slices.Equal(got.IPs, want) || got.End != c.end {
				t.Errorf("%s: %#x, %v; want %#x, %v", c.name, got.IPs, got.End, want, c.end)
			}
		}
	}
}
