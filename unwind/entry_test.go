package unwind

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"unspool/unwind/rule"
)

// TestEntryWithCFIOfAFunction walks to a _start whose CFI says that it was called, as compilers write it for
// a _start in C, and Free Pascal's for its own. By that CFI, argc is the return address.
func TestEntryWithCFIOfAFunction(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.macro function
	.cfi_startproc
	sub $24, %rsp
	.cfi_adjust_cfa_offset 24
	call work
	.endm

	.text
	.globl _start
_start:
	function
in_start:
	hlt
	.cfi_endproc
other:
	function
in_other:
	hlt
	.cfi_endproc
	.p2align 4
work:
	.cfi_startproc
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	work, inStart, inOther := at["work"], at["in_start"], at["in_other"]
	for _, c := range []struct {
		name   string
		caller uint64
		words  []uint64
		end    Reason
	}{
		{"argc, argv", inStart, []uint64{0, 0, 0, 1, firstArg, 0}, Root},
		{"no argv", inStart, []uint64{0, 0, 0, 1, 0, 0}, Unmapped},
		{"another function", inOther, []uint64{0, 0, 0, 1, firstArg, 0}, Unmapped},
	} {
		for _, e := range evaluators {
			u := NewUnwinder(images)
			u.slow = e.slow
			var regs Regs
			regs.set(rule.IP, work)
			regs.set(rule.SP, madeSP)
			regs.set(rule.BP, 0)
			stack := madeCopy(e.aligned, append([]uint64{c.caller}, c.words...)...)
			stack.Thread = e.thread
			got := u.Unwind(space, &regs, stack)
			if want := []uint64{work, c.caller}; !slices.Equal(got.IPs, want) || got.End != c.end {
				t.Errorf("%s, %s: %#x, %v; want %#x, %v", c.name, e.name, got.IPs, got.End, want, c.end)
			}
		}
	}
}

// entries386 is a 32-bit program with start code as long as that of Free Pascal, with the code to which
// coroutines of Boost.Context return, and with a function that only looks like that.
const entries386 = `
	.text
	.globl _start
_start:
	pop %ecx
	.rept 20
	lea 4(%esp,%ecx,4), %eax
	.endr
	and $-16, %esp
	call work
in_start:
	ret
	.p2align 8
	jmp *%ebx
finish:
	endbr32
	call 1f
1:	pop %ebx
	add $0x1234, %ebx
	xor %eax, %eax
	mov %eax, (%esp)
	call _start
	hlt
	.p2align 4
	jmp *%ebx
returns:
	call 1f
1:	pop %ebx
	add $0x1234, %ebx
	xor %eax, %eax
	mov %eax, (%esp)
	call _start
	ret
	.p2align 4
work:
	.cfi_startproc
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`

// TestStacksOf32BitsEnd walks to the first frame of 32-bit programs and coroutines.
func TestStacksOf32BitsEnd(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.s")
	if err := os.WriteFile(empty, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	if out, err := exec.Command(gcc, "-m32", "-nostdlib", "-static", "-o", empty+".out",
		empty).CombinedOutput(); err != nil {
		t.Skipf("skipped for want of a gcc that assembles with -m32: %s", out)
	}
	space, images, at := labelledProgram(t, entries386, "-m32")
	const sp = 0xffc01000
	for _, c := range []struct {
		name, caller string
		words        []uint64
		end          Reason
	}{
		{"long start code", "in_start", []uint64{1, sp + 64, 0, 0}, Root},
		{"long start code, no argv", "in_start", []uint64{1, 0, 0, 0}, NoCFI},
		{"a coroutine", "finish", []uint64{1, 2, 3}, Root},
		{"another function", "returns", []uint64{1, 2, 3}, NoCFI},
	} {
		var regs Regs
		regs.set(rule.IP386, at["work"])
		regs.set(rule.SP386, sp)
		regs.set(rule.BP386, 0)
		data := words(append([]uint64{at[c.caller]}, c.words...)...)
		stack := &Stack{Base: sp, Data: data, Asked: uint64(len(data))}
		got := NewUnwinder(images).UnwindByRows(rule.I386, space, &regs, stack)
		if want := []uint64{at["work"], at[c.caller]}; !slices.Equal(got.IPs, want) || got.End != c.end {
			t.Errorf("%s: %#x, %v; want %#x, %v", c.name, got.IPs, got.End, want, c.end)
		}
	}
}
