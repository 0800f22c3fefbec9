package unwind

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/testdata/programs"
	"unspool/unwind/rule"
)

// contexts has the ends of coroutines where they may lie: behind padding, right
// behind a function that ends in a call, and right behind one that ends in a ret.
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
	m := &space.Mappings()[0]
	im := images.Lookup(1, m)
	elf := contentsOf(t, file)
	for symbol, want := range map[string]bool{
		"behind_call": true, "behind_ret": false, "behind_padding": true, "older": true, "other": false, "returns": false,
	} {
		off, ok := elf.offset(programs.AddressOf(t, file, symbol))
		if !ok {
			t.Fatalf("no offset for %s", symbol)
		}
		if r := im.Rule(m, m.Start+off-1); (r == rule.EndOfStack) != want {
			t.Errorf("%s is returned to: %#x", symbol, r)
		}
	}
}
