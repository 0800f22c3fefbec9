package unwind

import (
	"slices"
	"testing"

	"unspool/unwind/rule"
)

// TestPushesThatCFILeavesOut samples a function like glibc's memcpy for i386, which pushes a register without
// CFI for it.
func TestPushesThatCFILeavesOut(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined eip
	call copy
in_start:
	nop
	.cfi_endproc
copy:
	.cfi_startproc
	mov 4(%esp), %esi
	dec %ecx
	jz elsewhere
	push %eax
pushed:
	inc %ebx
	sub $8, %esp
room:
	add $8, %esp
	pop %eax
popped:
	ret
elsewhere:
	nop
	ret
	mov %ebx, %esp
lost:
	nop
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`, "-m32")
	const sp, eax = 0xffc0_1000, 7
	inStart := at["in_start"]
	for _, c := range []struct {
		label  string
		words  []uint64
		end    Reason
		source Source
	}{
		{"copy", []uint64{inStart, 1}, Root, ByCFI},
		{"pushed", []uint64{eax, inStart, 1}, Root, ByHeuristic},
		{"room", []uint64{0, 0, eax, inStart, 1}, Root, ByHeuristic},
		{"popped", []uint64{inStart, 1}, Root, ByCFI},
		{"elsewhere", []uint64{inStart, 1}, Root, ByCFI},
		{"pushed", []uint64{eax, eax, inStart}, Unmapped, BySample},
		{"pushed", []uint64{eax, inStart + 1}, Unmapped, BySample}, // follows no call
		{"pushed", []uint64{eax}, Unmapped, BySample},
		{"elsewhere", []uint64{eax, inStart, 1}, Unmapped, BySample},
		{"lost", []uint64{eax, inStart, 1}, Unmapped, BySample},
	} {
		var regs Regs
		regs.set(rule.IP386, at[c.label])
		regs.set(rule.SP386, sp)
		regs.set(rule.BP386, 0)
		stack := Stack{Base: sp, Data: words(c.words...), Asked: 64}
		want := []uint64{at[c.label]}
		if c.source != BySample {
			want = append(want, inStart)
		}
		u := NewUnwinder(images)
		got := u.UnwindByRows(rule.I386, space, &regs, &stack)
		if !slices.Equal(got.IPs, want) || got.End != c.end || got.Frames[len(want)-1].Source != c.source {
			t.Errorf("%s, %#x: %#x by %v, %v; want %#x by %v, %v", c.label, c.words, got.IPs,
				got.Frames[len(got.Frames)-1].Source, got.End, want, c.source, c.end)
		}
		u.Strict = true
		got = u.UnwindByRows(rule.I386, space, &regs, &stack)
		if c.source == ByHeuristic && (len(got.IPs) != 1 || got.End != Unmapped) {
			t.Errorf("%s, %#x, strict: %#x, %v", c.label, c.words, got.IPs, got.End)
		}
	}
}

// TestFrameThatIsNotMadeYet386 samples functions without CFI where EBP is their caller's, as those of the
// 32-bit vDSO.
func TestFrameThatIsNotMadeYet386(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined eip
	call framed
in_start:
	nop
	.cfi_endproc
	.p2align 8
thunk:
	mov (%esp), %eax
at_ret:
	ret
framed:
	call thunk
in_framed:
	add $1, %eax
	push %ebp
pushed:
	mov $5, %ecx
	mov %esp, %ebp
	push %ebx
	call *%eax
	pop %ebx
	pop %ebp
popped:
	xor %eax, %eax
	ret
	.p2align 4
branches:
	jz thunk
	ret
	.section .note.GNU-stack,"",@progbits
`, "-m32")
	const sp = 0xffc0_1000
	inStart, inFramed := at["in_start"], at["in_framed"]
	for _, c := range []struct {
		label string
		words []uint64
		want  []uint64 // callers
	}{
		{"framed", []uint64{inStart, 1}, []uint64{inStart}},
		{"thunk", []uint64{inFramed, inStart, 1}, []uint64{inFramed, inStart}},
		{"at_ret", []uint64{inFramed, inStart, 1}, []uint64{inFramed, inStart}},
		{"in_framed", []uint64{inStart, 1}, []uint64{inStart}},
		{"pushed", []uint64{sp + 12, inStart, 1}, []uint64{inStart}},
		{"popped", []uint64{inStart, 1}, []uint64{inStart}},
		{"popped", []uint64{inStart + 1, 1}, nil},
		{"branches", []uint64{inStart, 1}, nil},
	} {
		var regs Regs
		regs.set(rule.IP386, at[c.label])
		regs.set(rule.SP386, sp)
		regs.set(rule.BP386, 0)
		stack := Stack{Base: sp, Data: words(c.words...), Asked: 64}
		u := NewUnwinder(images)
		got := u.UnwindByRows(rule.I386, space, &regs, &stack)
		if want := append([]uint64{at[c.label]}, c.want...); !slices.Equal(got.IPs, want) {
			t.Errorf("%s, %#x: %#x, %v; want %#x", c.label, c.words, got.IPs, got.End, want)
		}
	}
}

// TestCFIOfAnEpilogueBehindThePrologue samples a function whose CFI has the row of its end right behind its
// prologue, and that of its middle at its end, as mono's compiler writes it.
func TestCFIOfAnEpilogueBehindThePrologue(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call function
in_start:
	nop
	.cfi_endproc
function:
	.cfi_startproc
	sub $24, %rsp
	.cfi_def_cfa_offset 32
	mov %rdi, (%rsp)
	.cfi_def_cfa_offset 8
misplaced:
	mov %rsi, 8(%rsp)
	.cfi_def_cfa_offset 32
middle:
	call *%rax
	test %rax, %rax
	jz 1f
	call *%rax
1:	add $24, %rsp
at_ret:
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	words := []uint64{1, 2, 3, at["in_start"], 1, 4, 5, 6}
	for label, skip := range map[string]int{"misplaced": 0, "middle": 0, "at_ret": 3} {
		for _, strict := range []bool{false, true} {
			u := NewUnwinder(images)
			u.Strict = strict
			var regs Regs
			regs.set(rule.IP, at[label])
			regs.set(rule.SP, madeSP)
			regs.set(rule.BP, 0xb)
			got := u.Unwind(space, &regs, madeCopy(true, words[skip:]...))
			want, end := []uint64{at[label], at["in_start"]}, Root
			if strict && label != "middle" {
				want, end = want[:1], Unmapped
			}
			if !slices.Equal(got.IPs, want) || got.End != end {
				t.Errorf("%s, strict: %v: %#x, %v; want %#x", label, strict, got.IPs, got.End, want)
			}
		}
	}
}
