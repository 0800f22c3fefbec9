package unwind

import (
	"slices"
	"testing"

	"unspool/unwind/rule"
)

// The kernel puts this on the stack of a new program: argc, argv and a zero, with the arguments above.
const firstArg = madeSP + 400

func TestIsProcessStart(t *testing.T) {
	const mostArgs = 1 << 16
	many := func(argc uint64) []uint64 { // one argument and zeros
		return append([]uint64{argc, firstArg}, make([]uint64, argc)...)
	}
	for _, c := range []struct {
		name  string
		words []uint64
		want  bool
	}{
		{"as the kernel left it", []uint64{2, firstArg, firstArg + 4, 0}, true},
		{"one argument", []uint64{1, firstArg, 0}, true},
		{"aligned down by a word", []uint64{0, 1, firstArg, 0}, true},
		{"aligned down by a word, which is small", []uint64{5, 1, firstArg, 0, 9, 9, 9}, true},
		{"aligned down by two", []uint64{0, 0, 1, firstArg, 0}, false},
		{"no arguments", []uint64{0, 0, 0, 0}, false},
		{"a small word", []uint64{1, 0, 0, 0}, false},
		{"a small word below others", []uint64{1, 2, 0, 0}, false},
		{"a small word below a frame pointer and a return address",
			[]uint64{3, firstArg, 0x401234, 7, 7, 7}, false},
		{"argument below the stack", []uint64{1, madeSP - 8, 0}, false},
		{"argument where argc is", []uint64{1, madeSP, 0}, false},
		{"not closed by a zero", []uint64{1, firstArg, firstArg}, false},
		{"closed too early", []uint64{3, firstArg, 0, 0, 1}, false},
		{"as many arguments as there can be", many(mostArgs), true},
		{"one argument more", many(mostArgs + 1), false},
		{"an address", []uint64{firstArg, firstArg, 0, 0}, false},
		{"cut behind argc", []uint64{1}, false},
		{"cut in front of the zero", []uint64{2, firstArg, firstArg + 4}, false},
		{"nothing", nil, false},
	} {
		w := walk{stack: madeCopy(true, c.words...)}
		if got := w.isProcessStart(rule.AMD64, madeSP); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestWalkEndsAtTheEntryPoint samples start code without CFI, and what it has called. A stack is
// complete where the kernel began it, and nowhere else.
func TestWalkEndsAtTheEntryPoint(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	xor %ebp, %ebp
	mov (%rsp), %rdi
	call work
in_start:
	nop
	.p2align 8
work:
	.cfi_startproc
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	start, inStart, work := at["_start"], at["in_start"], at["work"]
	for _, c := range []struct {
		name  string
		pc    uint64
		words []uint64
		want  []uint64
		end   Reason
	}{
		{"at the entry point", start, []uint64{1, firstArg, 0}, []uint64{start}, Root},
		{"in what it calls", work, []uint64{inStart, 1, firstArg, 0}, []uint64{work, inStart}, Root},
		{"a small word on the stack", work, []uint64{inStart, 1, 0, 0}, []uint64{work, inStart}, NoCFI},
		{"small words on the stack", work, []uint64{inStart, 2, 3, 4, 5}, []uint64{work, inStart}, NoCFI},
		{"return address on the stack", work, []uint64{inStart, inStart, 0, 0}, []uint64{work, inStart}, NoCFI},
	} {
		for _, e := range evaluators {
			u := NewUnwinder(images)
			u.slow = e.slow
			var regs Regs
			regs.set(rule.IP, c.pc)
			regs.set(rule.SP, madeSP)
			regs.set(rule.BP, 0)
			stack := madeCopy(e.aligned, c.words...)
			stack.Thread = e.thread
			if got := u.Unwind(space, &regs, stack); !slices.Equal(got.IPs, c.want) || got.End != c.end {
				t.Errorf("%s, %s: %#x, %v; want %#x, %v", c.name, e.name, got.IPs, got.End, c.want, c.end)
			}
		}
	}
}

// TestWalkEndsInLongStartCode samples what Free Pascal's start code has called: it is longer than that of
// the C libraries, has taken argc off the stack and pushed what __libc_start_main is to find there. Its
// main begins by having a look at its return address.
func TestWalkEndsInLongStartCode(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	xor %ebp, %ebp
	pop %rsi
	.rept 16
	lea _start(%rip), %rcx
	.endr
	and $-16, %rsp
	push %rax
	push %rsp
	call main
in_start:
	hlt
	.p2align 4
	.type main, @function
main:
	pop %rax
	push %rax
	push %rax
	call work
in_main:
	hlt
	.p2align 8
work:
	.cfi_startproc
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	work, inMain, inStart := at["work"], at["in_main"], at["in_start"]
	for _, c := range []struct {
		name  string
		words []uint64
		end   Reason
	}{
		{"as the kernel left it", []uint64{inMain, 0, inStart, madeSP, 0, 1, firstArg, 0}, Root},
		{"too far down", []uint64{inMain, 0, inStart, madeSP, 0, 0, 0, 1, firstArg, 0}, NoCFI},
	} {
		var regs Regs
		regs.set(rule.IP, work)
		regs.set(rule.SP, madeSP)
		regs.set(rule.BP, 0)
		got := NewUnwinder(images).Unwind(space, &regs, madeCopy(true, c.words...))
		if want := []uint64{work, inMain, inStart}; !slices.Equal(got.IPs, want) || got.End != c.end {
			t.Errorf("%s: %#x, %v; want %#x, %v", c.name, got.IPs, got.End, want, c.end)
		}
	}
}
