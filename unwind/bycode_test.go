package unwind

import (
	"slices"
	"testing"

	"unspool/unwind/rule"
)

// TestSPThatIsSavedBelowSP stands in a function that a jump leads to, and whose CFA is by a word below SP.
func TestSPThatIsSavedBelowSP(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call chooses
in_start:
	nop
	call other
in_start_too:
	nop
	.cfi_endproc
	.p2align 4
chooses:
	.cfi_startproc
	test %rax, %rax
	jne hashes
	ret
	.cfi_endproc
	.p2align 4
other:
	.cfi_startproc
	ret
	.cfi_endproc
	.p2align 4
hashes:
	.cfi_startproc
	mov %rsp, %rax
	.cfi_def_cfa rax, 8
	push %rbp
	.cfi_offset rbp, -16
	sub $32, %rsp
	mov %rax, 8(%rsp)
	mov %rax, -8(%rsp)
	.cfi_escape 0x0f, 5, 0x77, 0x78, 6, 0x23, 8                     # CFA = *(rsp - 8) + 8
in_hashes:
	mov 8(%rsp), %rsp
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	inHashes, inStart, other := at["in_hashes"], at["in_start"], at["in_start_too"]
	for _, c := range []struct {
		name  string
		words []uint64
		want  []uint64
		end   Reason
	}{
		{"saved above", []uint64{1, madeSP + 40, 2, 3, 0xb, inStart, 1}, []uint64{inHashes, inStart}, Root},
		{"another word first", []uint64{madeSP + 16, madeSP + 40, 2, 3, 0xb, inStart, 1},
			[]uint64{inHashes, inStart}, Root},
		{"a call of another function", []uint64{1, madeSP + 40, 2, 3, 0xb, other, 1}, []uint64{inHashes},
			NotCopied},
		{"written over", []uint64{1, 2, 3, 4, 0xb, inStart, 1}, []uint64{inHashes}, NotCopied},
	} {
		u := NewUnwinder(images)
		var regs Regs
		regs.set(rule.IP, inHashes)
		regs.set(rule.SP, madeSP)
		if got := u.Unwind(space, &regs, madeCopy(true, c.words...)); !slices.Equal(got.IPs, c.want) ||
			got.End != c.end {
			t.Errorf("%s: %#x, %v; want %#x, %v", c.name, got.IPs, got.End, c.want, c.end)
		}
		u.Strict = true
		if got := u.Unwind(space, &regs, madeCopy(true, c.words...)); got.End != NotCopied {
			t.Errorf("%s, strict: %#x, %v", c.name, got.IPs, got.End)
		}
	}
}

// TestLeafWithAJumpTable samples code that goes on where a table says, and has no frame.
func TestLeafWithAJumpTable(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call outer
in_start:
	nop
	.cfi_endproc
	.skip 5 << 20, 0x90 # more than is read to find out where functions begin, as in Chromium
	ret
	.p2align 6
outer:
	push %rbp
	mov %rsp, %rbp
	call *%rax
in_outer:
	pop %rbp
	ret
	.p2align 6
middle:
	push %rbp
	mov %rsp, %rbp
	sub $16, %rsp
	call leaf
in_middle:
	call pushes
behind_pushes:
	leave
	ret
	.p2align 6
leaf:
	lea (%rsi,%rcx,8), %rcx
	movslq (%rcx,%rsi,4), %rdx
in_leaf:
	add %rcx, %rdx
	jmp *%rdx
	.p2align 6
pushes:
	push %rbx
in_pushes:
	jmp *%rdx
	.section .note.GNU-stack,"",@progbits
`)
	const bp = madeSP + 24 // where middle's frame is
	frames := []uint64{2, 3, bp + 16, at["in_outer"], 0, at["in_start"]}
	for _, c := range []struct {
		pc   string
		back string // what SP points to
		want []uint64
	}{
		{"in_leaf", "in_middle", []uint64{at["in_middle"], at["in_outer"], at["in_start"]}},
		{"leaf", "in_middle", []uint64{at["in_middle"], at["in_outer"], at["in_start"]}},
		{"in_pushes", "behind_pushes", []uint64{at["in_outer"], at["in_start"]}},
	} {
		var regs Regs
		regs.set(rule.IP, at[c.pc])
		regs.set(rule.SP, madeSP)
		regs.set(rule.BP, bp)
		got := NewUnwinder(images).Unwind(space, &regs, madeCopy(true, append([]uint64{at[c.back]}, frames...)...))
		if want := append([]uint64{at[c.pc]}, c.want...); !slices.Equal(got.IPs, want) || got.End != Root {
			t.Errorf("%s, %s: %#x, %v; want %#x", c.pc, c.back, got.IPs, got.End, want)
		}
	}
}

// TestCallerThatTheFramePointerPassesOver walks from code that makes no frame, and makes room on the stack
// that nobody can tell from the code, to the function that has called it. BP is that function's, not its own.
func TestCallerThatTheFramePointerPassesOver(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call outer
in_start:
	nop
	.cfi_endproc
	.p2align 6
outer:
	push %rbp
	mov %rsp, %rbp
	call tee
in_outer:
	call jumper
after_jumper:
	pop %rbp
	ret
	.p2align 6
tee:
	push %rbp
	mov %rsp, %rbp
	sub $16, %rsp
	call *%rax
in_tee:
	mov %rsp, %rbx
	.p2align 4
in_body:
	sub %r10, %rsp
	call *%rcx
also_in_tee:
	leave
	ret
	.p2align 6, 0xcc
varargs:
	mov %rsp, %r8
	sub %r10, %rsp
inside:
	mov (%r8), %r10
	mov %r10, (%rsp)
	jmp *%rbx
	.p2align 6, 0xcc
jumper:
	push %rbp
	mov %rsp, %rbp
	call *%rax
in_jumper:
	leave
	jmp framed
	.p2align 6, 0xcc
framed:
	push %rbp
	mov %rsp, %rbp
	sub $48, %rsp
	sub %r10, %rsp
in_framed:
	nop
	.section .note.GNU-stack,"",@progbits
`)
	inside, inBody, inTee, alsoInTee := at["inside"], at["in_body"], at["in_tee"], at["also_in_tee"]
	inOuter, inStart := at["in_outer"], at["in_start"]
	const bp = madeSP + 48
	for _, c := range []struct {
		name  string
		pc    uint64
		words []uint64 // up to BP
		want  []uint64
	}{
		{"its return address", inside, []uint64{1, 2, inTee, 4, 5, 6}, []uint64{inside, inTee, inOuter, inStart}},
		{"copied, too", inside, []uint64{inTee, 2, 3, inTee, 5, 6}, []uint64{inside, inTee, inOuter, inStart}},
		// Outer has called tee, which jumps nowhere: outer cannot be the caller of another function.
		{"none", inside, []uint64{1, 2, 3, 4, 5, 6}, []uint64{inside}},
		{"two of them", inside, []uint64{1, inTee, alsoInTee, 4, 5, 6}, []uint64{inside}},
		{"left in its frame", inside, []uint64{1, 2, 3, 4, inTee, 6}, []uint64{inside}},
		{"left in the frame of another function, to which it has jumped", at["in_framed"],
			[]uint64{1, 2, at["in_jumper"], 4, 5, 6}, []uint64{at["in_framed"], at["after_jumper"], inStart}},
		{"in the caller itself", inBody, []uint64{1, 2, inTee, 4, 5, 6}, []uint64{inBody, inOuter, inStart}},
	} {
		var regs Regs
		regs.set(rule.IP, c.pc)
		regs.set(rule.SP, madeSP)
		regs.set(rule.BP, bp)
		back := inOuter // of the frame at BP: the one of tee, or of jumper, which outer has called
		if slices.Contains(c.want, at["after_jumper"]) {
			back = at["after_jumper"]
		}
		words := append(c.words, bp+16, back, 0, inStart)
		got := NewUnwinder(images).Unwind(space, &regs, madeCopy(true, words...))
		end := Root
		if len(c.want) == 1 {
			end = NoCFI
		}
		if !slices.Equal(got.IPs, c.want) || got.End != end {
			t.Errorf("%s: %#x, %v; want %#x", c.name, got.IPs, got.End, c.want)
		}
	}
}

// TestPartsThatKeepSPInARegister walks through assembly without CFI that keeps its caller's SP in R10 and is entered by
// a jump through a register. Its caller has a frame pointer.
func TestPartsThatKeepSPInARegister(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call middle
in_start:
	nop
	.cfi_endproc
middle:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register rbp
	call *%rax
in_middle:
	leave
	.cfi_def_cfa rsp, 8
	ret
	.cfi_endproc
	.p2align 4
kernel:
	lea half(%rip), %r8
	mov %rsp, %r10
	and $-32, %rsp
	sub $0x60, %rsp
	call helper
	jmp *%r8
half:
	call helper
in_half:
	xor %eax, %eax
at_half:
	mov %r10, %rsp
	ret
	.p2align 4
helper:
	mov $7, %eax
in_helper:
	ret
	.section .note.GNU-stack,"",@progbits
`)
	const kept = madeSP + 24 // SP when kernel was entered
	callers := []uint64{at["in_middle"], at["in_start"]}
	for _, c := range []struct {
		pc   string
		sp   uint64
		r10  uint64
		want []uint64
	}{
		{"half", madeSP + 8, kept, callers}, // R10 is not changed by what is called
		{"in_half", madeSP + 8, kept, callers},
		{"at_half", madeSP + 8, kept, callers},
		{"in_helper", madeSP, kept, append([]uint64{at["in_half"]}, callers...)},
		// What is in R10 is no SP: the frame pointer leads to who called middle, and that did not call this.
		{"in_half", madeSP + 8, 42, nil},
	} {
		var regs Regs
		regs.set(rule.IP, at[c.pc])
		regs.set(rule.SP, c.sp)
		regs.set(rule.BP, kept+8)
		regs.set(10, c.r10)
		words := []uint64{at["in_half"], 0, 0, at["in_middle"], 0, at["in_start"], 1}
		stack := madeCopy(true, words[(c.sp-madeSP)/8:]...)
		stack.Base = c.sp
		u := NewUnwinder(images)
		for range 2 {
			got := u.Unwind(space, &regs, stack)
			want := append([]uint64{at[c.pc]}, c.want...)
			if !slices.Equal(got.IPs, want) || (got.End == Root) != (c.want != nil) {
				t.Errorf("%s, R10 = %#x: %#x, %v; want %#x", c.pc, c.r10, got.IPs, got.End, want)
			}
		}
	}
}
