package unwind

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"unspool/testdata/programs"
	"unspool/unwind/rule"
)

// contexts has the ends of coroutines where they may lie: behind padding, right
// behind a function that ends in a call, right behind one that ends in a ret, and behind
// a jump; and what looks like one and is not, as it is behind a call.
const contexts = `
	.macro end
	mov %rbx, %rsp
	mov (%rsp), %rdi
	test %rdi, %rdi
	hlt
	.endm

	.text
	.globl _start
_start:
	.cfi_startproc
	sub $8, %rsp
	.cfi_def_cfa_offset 16
	call _start
	.cfi_endproc
behind_call:
	end
returns:
	.cfi_startproc
	ret
	.cfi_endproc
behind_ret:
	end
	.p2align 4
behind_padding:
	endbr64
	end
	nop
older:
	mov %rbx, %rsp
	pop %rdi
	test %rdi, %rdi
other:
	mov %rbx, %rsp
	mov 8(%rsp), %rdi
	test %rdi, %rdi
	jmp *%rbx
boost:
	xor %rdi, %rdi
	call _start
	hlt
	jmp *%rbx
boost_short:
	endbr64
	xor %edi, %edi
	call _start
	hlt
	call _start
exits:
	xor %edi, %edi
	call _start
	hlt
	.section .note.GNU-stack,"",@progbits
`

func TestCoroutinesEnd(t *testing.T) {
	dir := t.TempDir()
	asm, file := filepath.Join(dir, "contexts.s"), filepath.Join(dir, "contexts")
	if err := os.WriteFile(asm, []byte(contexts), 0o666); err != nil {
		t.Fatal(err)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	if out, err := exec.Command(gcc, "-nostdlib", "-static", "-o", file, asm).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	space, images := asImage(t, file, 0x7f00_0000_0000)
	m := firstMapping(space)
	p := placeIn(images.Lookup(1, m), m)
	elf := contentsOf(t, file)
	for symbol, want := range map[string]bool{
		"behind_call": true, "behind_ret": false, "behind_padding": true, "older": true, "other": false,
		"returns": false,
		"boost":   true, "boost_short": true, "exits": false,
	} {
		off, ok := elf.offset(programs.AddressOf(t, file, symbol))
		if !ok {
			t.Fatalf("no offset for %s", symbol)
		}
		if r := p.rule(m.Start + off - 1); (r == rule.EndOfStack) != want {
			t.Errorf("%s is returned to: %#x", symbol, r)
		}
	}
}

// TestReturnAddressOfZero walks to the first frame of stacks as runtimes make them for their coroutines.
func TestReturnAddressOfZero(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
entry:
	.cfi_startproc
	sub $8, %rsp
	.cfi_def_cfa_offset 16
	call work
in_entry:
	nop
	.cfi_endproc
	.p2align 4
work:
	.cfi_startproc
	ret
	.cfi_endproc
	.p2align 8
	push %rbp
	mov %rsp, %rbp
	call work
in_bare:
	nop
	hlt
	.section .note.GNU-stack,"",@progbits
`)
	work, inEntry, inBare := at["work"], at["in_entry"], at["in_bare"]
	const nowhere = 0x1000
	for _, c := range []struct {
		name  string
		pc    uint64
		words []uint64
		want  []uint64
		end   Reason
	}{
		{"a coroutine", work, []uint64{inEntry, 1, 0, 1}, []uint64{work, inEntry}, Root},
		{"at the end of the copy", work, []uint64{inEntry, 1, 0}, []uint64{work, inEntry}, Root},
		{"behind it", work, []uint64{inEntry, 1}, []uint64{work, inEntry}, DumpTooShort},
		{"in the sampled function", work, []uint64{0, 1}, []uint64{work}, Unmapped},
		{"another address", work, []uint64{inEntry, 1, nowhere}, []uint64{work, inEntry}, Unmapped},
		{"by the frame pointer", work, []uint64{inBare, 0, 0, 0}, []uint64{work, inBare}, NoCFI},
	} {
		for _, e := range evaluators {
			u := NewUnwinder(images)
			u.slow = e.slow
			var regs Regs
			regs.set(rule.IP, c.pc)
			regs.set(rule.SP, madeSP)
			regs.set(rule.BP, madeSP+8)
			stack := madeCopy(e.aligned, c.words...)
			stack.Thread = e.thread
			for range 1 + 2*e.thread {
				got := u.Unwind(space, &regs, stack)
				if !slices.Equal(got.IPs, c.want) || got.End != c.end {
					t.Errorf("%s, %s: %#x, %v; want %#x, %v", c.name, e.name, got.IPs, got.End, c.want, c.end)
				}
			}
		}
	}
}
