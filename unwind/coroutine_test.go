package unwind

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/dwarfcfi/elf"
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
	im := images.of(1, m)
	im.parse()
	for symbol, want := range map[string]bool{
		"behind_call": true, "behind_ret": false, "behind_padding": true, "older": true, "other": false, "returns": false,
	} {
		off, ok := offsetOf(im, addressOf(t, file, symbol))
		if !ok {
			t.Fatalf("no offset for %s", symbol)
		}
		if r := im.rule(m, m.Start+off-1); (r == rule.EndOfStack) != want {
			t.Errorf("%s is returned to: %#x", symbol, r)
		}
	}
}

// TestContextEndOfGlibc looks for the ends of coroutines everywhere in static
// programs: there is one.
func TestContextEndOfGlibc(t *testing.T) {
	for _, width := range []string{"-m64", "-m32"} {
		t.Run(width, func(t *testing.T) {
			empty := filepath.Join(t.TempDir(), "empty.c")
			if err := os.WriteFile(empty, []byte("int main(void) { return 0; }"), 0o666); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("gcc", width, "-static", "-o", empty+".out", empty).CombinedOutput(); err != nil {
				t.Skipf("gcc %s does not link (package gcc-multilib): %v\n%s", width, err, out)
			}
			f, err := os.Open(programs.Build(t, "coroutine", "-static", width))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			layout, err := elf.ReadLayout(f, info.Size())
			if err != nil {
				t.Fatal(err)
			}
			c := readCode(f, layout, nil)
			var ends []uint64
			for _, text := range layout.Text {
				for addr := text.Start; addr < text.End; addr++ {
					if c.isContextEnd(addr) {
						ends = append(ends, addr)
					}
				}
			}
			if len(ends) != 1 {
				t.Errorf("%#x", ends)
			}
		})
	}
}
