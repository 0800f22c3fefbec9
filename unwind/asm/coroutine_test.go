package asm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/dwarfcfi/elf"

	"unspool/testdata/programs"
)

// TestContextEndOfGlibc looks for ends of coroutines in all code of static programs:
// there is one.
func TestContextEndOfGlibc(t *testing.T) {
	for _, width := range []string{"-m64", "-m32"} {
		t.Run(width, func(t *testing.T) {
			empty := filepath.Join(t.TempDir(), "empty.c")
			if err := os.WriteFile(empty, []byte("int main(void) { return 0; }"), 0o666); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("gcc", width, "-static", "-o", empty+".out",
				empty).CombinedOutput(); err != nil {
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
			c := New(f, layout, Covered{})
			var ends []uint64
			for _, text := range layout.Text {
				for addr := text.Start; addr < text.End; addr++ {
					if c.IsContextEnd(addr) {
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
