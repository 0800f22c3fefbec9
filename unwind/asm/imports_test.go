package asm

import (
	std "debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"unspool/dwarfcfi/elf"
)

// TestImportsThatDoNotReturn has a procedure linkage table with an entry for each of some functions, of which those
// that do not return are known by their names.
func TestImportsThatDoNotReturn(t *testing.T) {
	const base, got, entry = 0x1000, 0x3000, 16
	le := binary.LittleEndian
	imports := []struct {
		name  string
		stops bool
	}{
		{"puts", false}, {"__assert_fail", true}, {"_ZSt20__throw_length_errorPKc", true}, {"_ZSt7__throwsv", false},
		{"abort_" + strings.Repeat("x", 100), false}, {"abort", true},
	}
	var text, relocations, names []byte
	symbols := make([]byte, std.Sym64Size)
	names = append(names, 0)
	for i, f := range imports {
		slot := uint64(got + 8*i)
		text = append(text, "\xf3\x0f\x1e\xfa\xff\x25"...) // endbr64, jmp *slot(%rip)
		text = le.AppendUint32(text, uint32(slot-base-uint64(len(text))-4))
		text = append(text, strings.Repeat("\xcc", entry-10)...)
		info := std.R_INFO(uint32(i+1), uint32(std.R_X86_64_JMP_SLOT))
		relocations = le.AppendUint64(le.AppendUint64(le.AppendUint64(relocations, slot), info), 0)
		symbols = append(le.AppendUint32(symbols, uint32(len(names))), make([]byte, std.Sym64Size-4)...)
		names = append(append(names, f.name...), 0)
	}
	file := string(text)
	place := func(section []byte) elf.Extent {
		at := len(file)
		file += string(section)
		return elf.Extent{Offset: uint64(at), Size: uint64(len(section))}
	}
	end := base + uint64(len(text))
	layout := elf.Layout{
		Class: elf.ELFCLASS64, Machine: elf.EM_X86_64,
		Text: []elf.Range{{Name: ".plt.sec", Start: base, End: end}}, PLT: []elf.Range{{Start: base, End: end}},
		Loads: []elf.Load{{Vaddr: base, Filesz: uint64(len(text)), Memsz: uint64(len(text)),
			Flags: elf.PF_R | elf.PF_X}},
		PLTRelocations: place(relocations), DynSym: place(symbols), DynStr: place(names),
	}
	layout.Size = uint64(len(file))
	ask := func(l elf.Layout, i int) bool {
		c := New(strings.NewReader(file), &l, Covered{})
		c.left = mostWork
		c.chart()
		return c.noReturn(base+uint64(i)*entry, 1)
	}
	for i, f := range imports {
		if ask(layout, i) != f.stops {
			t.Errorf("%s does not return: %v", f.name, !f.stops)
		}
	}
	for _, bad := range []*elf.Extent{&layout.PLTRelocations, &layout.DynSym, &layout.DynStr} {
		was := *bad
		for _, e := range []elf.Extent{{}, {Offset: ^uint64(0) - 8, Size: 1 << 40}, {Offset: was.Offset, Size: 3}} {
			*bad = e
			for i := range imports {
				ask(layout, i)
			}
		}
		*bad = was
	}
}
