package gotab

import (
	"bytes"
	"testing"

	"unspool/dwarfcfi/elf"
)

// TestFindTriesTheFirstFew has the code of the signal return several times, as programs that a C linker made of C and
// Go have it: libc's comes before Go's.
func TestFindTriesTheFirstFew(t *testing.T) {
	const (
		before = 8 // bytes of the file that are not code
		text   = 0x401000
		most   = 16
	)
	step := uint64(len(sigreturnCode) + 1)
	file := append(make([]byte, before), bytes.Repeat(append(bytes.Clone(sigreturnCode), 0xc3), most+1)...)
	code := goCode{r: bytes.NewReader(file), loads: []elf.Load{
		{Filesz: before, Vaddr: text - before, Flags: elf.PF_R},
		{Offset: before, Filesz: uint64(len(file)) - before, Vaddr: text, Flags: elf.PF_R | elf.PF_X},
	}}
	for wanted := range uint64(most + 1) { // which of them it is
		tried := uint64(0)
		found := code.find(sigreturnCode, func(addr uint64) bool {
			if addr != text+tried*step {
				t.Fatalf("try %d at %#x", tried, addr)
			}
			tried++
			return tried > wanted
		})
		if found != (wanted < most) || tried != min(wanted+1, most) {
			t.Errorf("number %d: found: %v, after %d tries", wanted, found, tried)
		}
	}
}
