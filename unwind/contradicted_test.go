package unwind

import (
	"slices"
	"testing"

	"unspool/unwind/rule"
)

// contradicted has callers of functions with CFI, with wrong CFI and without, and callers of other functions.
const contradicted = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call other
by_other:
	call *%rax
by_pointer:
	call jumps
by_jumps:
	call by_table
by_by_table:
	call thunk
by_thunk:
	nop
	.cfi_endproc
other:
	.cfi_startproc
	ret
	.cfi_endproc
jumps:
	.cfi_startproc
	je right
	je wrong
	jmp bare
	.cfi_endproc
by_table:
	.cfi_startproc
	jmp *table(,%rax,8)
	.cfi_endproc
thunk:
	.cfi_startproc
	call 1f
2:	pause
	jmp 2b
1:	mov %rax, (%rsp)
	ret
	.cfi_endproc
right:
	.cfi_startproc
	sub $8, %rsp
	.cfi_def_cfa_offset 16
in_right:
	add $8, %rsp
	ret
	.cfi_endproc
wrong:
	.cfi_startproc
	.cfi_def_cfa rbp, 16
	pop %rbp
in_wrong:
	ret
	.cfi_endproc
leaves:
	.cfi_startproc
	.cfi_def_cfa rsp, 16
	.cfi_register rip, rdx
in_leaves:
	jmp *%rdx
	.cfi_endproc
	.p2align 4
bare:
	push %rbx
in_bare:
	pop %rbx
	ret
	.p2align 4
framed:
	push %rbp
	mov %rsp, %rbp
	sub %rax, %rsp
in_framed:
	jmp *%rax
table:
	.quad right
	.section .note.GNU-stack,"",@progbits
`

// TestCallersThatTheCodeContradicts samples functions whose callers have called them, or may have, and such that have
// called another one: the stack ends there, also where CFI gives the caller.
func TestCallersThatTheCodeContradicts(t *testing.T) {
	space, images, at := labelledProgram(t, contradicted)
	may := []string{"by_pointer", "by_jumps", "by_by_table", "by_thunk"}
	for _, c := range []struct {
		in   string
		end  Reason   // where the caller has called another function
		more []string // callers that are right
	}{
		{"in_right", BadCFI, may},
		{"in_wrong", BadCFI, may},
		{"in_leaves", Root, append([]string{"by_other"}, may...)}, // it has its return address from elsewhere
		{"in_bare", NoCFI, may},
		{"in_framed", NoCFI, []string{"by_pointer", "by_by_table", "by_thunk"}},
	} {
		for _, caller := range append([]string{"by_other"}, c.more...) {
			for n := range uint32(4) { // without a thread, each walk is the first one
				thread := n % 2
				u := NewUnwinder(images)
				u.Live = n < 2
				var regs Regs
				regs.set(rule.IP, at[c.in])
				regs.set(rule.SP, madeSP)
				regs.set(rule.BP, madeSP)
				regs.set(1, at[caller]) // DX
				stack := madeCopy(true, 0, at[caller], 1)
				stack.Thread = thread
				want, end := []uint64{at[c.in], at[caller]}, Root
				if !slices.Contains(c.more, caller) {
					want, end = want[:1], c.end
				}
				walk := func() Result { return u.Unwind(space, &regs, stack) }
				if u.Live { // of a sampled function, a call is asked about when it is seen again
					walk()
				}
				for range 3 {
					if got := walk(); !slices.Equal(got.IPs, want) || got.End != end {
						t.Errorf("%s, %s, live %v: %#x, %v; want %#x, %v", c.in, caller, u.Live, got.IPs, got.End, want, end)
					}
				}
				if n := testing.AllocsPerRun(10, func() { walk() }); n != 0 && c.end != Root {
					t.Errorf("%s, %s: %v allocations a sample", c.in, caller, n)
				}
				u.Strict = true // by CFI alone, whatever it says
				if got := walk(); c.end != NoCFI && !slices.Equal(got.IPs, []uint64{at[c.in], at[caller]}) {
					t.Errorf("%s, %s, strict: %#x, %v", c.in, caller, got.IPs, got.End)
				}
			}
		}
	}
}

// TestKernelChainThatTheCodeContradicts has a callchain that goes on beyond the copy with a caller that has called
// another function.
func TestKernelChainThatTheCodeContradicts(t *testing.T) {
	space, images, at := pointerProgram(t)
	const bp = madeSP + 16
	for _, c := range []struct {
		name  string
		chain []uint64 // beyond the copy
		want  []uint64
	}{
		{"it may have called", []uint64{at["in_recurse"], at["in_main"], at["in_start"]},
			[]uint64{at["in_recurse"], at["in_main"], at["in_start"]}},
		{"it calls another function", []uint64{at["in_recurse"], at["in_start"]}, []uint64{at["in_recurse"]}},
	} {
		var regs Regs
		regs.set(rule.IP, at["in_recurse"])
		regs.set(rule.SP, madeSP)
		regs.set(rule.BP, madeSP)
		stack := madeCopy(true, bp, at["in_recurse"])
		chain := slices.Concat([]uint64{contextUser, at["in_recurse"], at["in_recurse"]}, c.chain)
		u := NewUnwinder(images)
		got := u.Continue(space, &regs, stack, u.Unwind(space, &regs, stack), len(chain),
			func(i int) uint64 { return chain[i] })
		if want := slices.Concat(chain[1:3], c.want); !slices.Equal(got.IPs, want) {
			t.Errorf("%s: %#x, %v; want %#x", c.name, got.IPs, got.End, want)
		}
	}
}
