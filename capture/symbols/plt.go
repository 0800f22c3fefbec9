package symbols

import (
	"cmp"
	std "debug/elf"
	"encoding/binary"
	"slices"

	"unspool/dwarfcfi/elf"
)

// The procedure linkage table has no symbols of its own. A stub jumps through a slot of the global offset
// table, and a dynamic relocation says which symbol's address the dynamic linker stores in that slot: the
// stub is called "name@plt" after this symbol. Reading the instructions of stubs works for the lazy .plt,
// the .plt.sec of binaries built for indirect branch tracking, .plt.got, and the stubs of functions that
// choose their code at run time (STT_GNU_IFUNC), which static programs have as well.

// maxPLT bounds the stubs and the relocations that are read for them.
const maxPLT = 1 << 18

// addPLT adds the stubs of an x86-64 image to t. Malformed ones are left out.
func (f *elfFile) addPLT(t *Table) {
	if f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 || !f.HasNames() {
		return
	}
	var stubs []entry
	var slots map[uint64]uint32 // GOT slot → offset of the name in names
	var names []byte
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_EXECINSTR == 0 || s.Size > maxPLT*16 ||
			len(stubs) > maxPLT {
			continue
		}
		if !f.Named(s, ".plt") && !f.Named(s, ".plt.sec") && !f.Named(s, ".plt.got") && !f.Named(s, ".iplt") {
			continue
		}
		if slots == nil {
			if slots, names = f.slots(t); len(slots) == 0 {
				return
			}
		}
		code, err := f.Read(s.Offset, s.Size)
		if err != nil {
			continue
		}
		size := stubSize(code)
		for off := uint64(0); off+size <= uint64(len(code)); off += size {
			addr := s.Addr + off
			slot, ok := stubSlot(code[off:off+size], addr)
			if !ok {
				continue
			}
			if name, ok := slots[slot]; ok {
				stubs = append(stubs, entry{addr, uint32(size), name})
			}
		}
	}
	t.merge(stubs, names)
}

// stubSize is the size of the stubs in a section: 16 bytes, or 8 if they are only a jump.
func stubSize(code []byte) uint64 {
	if len(code) < 16 {
		return 8
	}
	_, first := stubSlot(code[:8], 0)
	_, second := stubSlot(code[8:16], 0)
	if first && second {
		return 8
	}
	return 16
}

// stubSlot decodes a stub at addr: [endbr64] [bnd] jmp *slot(%rip).
func stubSlot(code []byte, addr uint64) (uint64, bool) {
	i := 0
	if len(code) >= 4 && code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e && code[3] == 0xfa {
		i = 4
	}
	if i < len(code) && code[i] == 0xf2 {
		i++
	}
	if i+6 > len(code) || code[i] != 0xff || code[i+1] != 0x25 {
		return 0, false
	}
	disp := int32(binary.LittleEndian.Uint32(code[i+2:]))
	return addr + uint64(i+6) + uint64(int64(disp)), true
}

// slots reads the dynamic relocations: which symbol's address is stored in which GOT slot
// (R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT), or which function of t returns that address
// (R_X86_64_IRELATIVE). The names are NUL-terminated strings that end in "@plt".
func (f *elfFile) slots(t *Table) (map[uint64]uint32, []byte) {
	slots := make(map[uint64]uint32)
	var names []byte
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		relas, err := f.Read(s.Offset, min(s.Size, maxPLT*24))
		if err != nil {
			continue
		}
		var symbols *dynamicSymbols
		for ; len(relas) >= 24; relas = relas[24:] {
			info := f.Order.Uint64(relas[8:])
			var name []byte
			room := maxName
			switch std.R_X86_64(std.R_TYPE64(info)) {
			case std.R_X86_64_JMP_SLOT, std.R_X86_64_GLOB_DAT:
				if symbols == nil {
					symbols = f.dynamicSymbols(s)
				}
				name = symbols.name(f, std.R_SYM64(info))
				room += 2 * len(symbols.strings)
			case std.R_X86_64_IRELATIVE:
				resolver := f.Order.Uint64(relas[16:])
				if i, ok := t.index(resolver); ok && t.funcs[i].addr == resolver {
					name = cString(t.names, t.funcs[i].name)
				}
				room += 2 * len(t.names)
			}
			if len(name) == 0 || len(names)+len(name) > room {
				continue
			}
			slots[f.Order.Uint64(relas)] = uint32(len(names))
			names = append(append(names, name...), "@plt\x00"...)
		}
	}
	return slots, names
}

// dynamicSymbols are the entries of .dynsym and its strings.
type dynamicSymbols struct{ entries, strings []byte }

// dynamicSymbols reads the symbols that relocations refer to; what cannot be read is empty.
func (f *elfFile) dynamicSymbols(relocations *elf.Section) *dynamicSymbols {
	symtab, ok := f.Linked(relocations)
	if !ok || symtab.Type != elf.SHT_DYNSYM {
		return &dynamicSymbols{}
	}
	strtab, ok := f.Linked(&symtab)
	if !ok || strtab.Size > maxStrings {
		return &dynamicSymbols{}
	}
	var d dynamicSymbols
	d.entries, _ = f.Read(symtab.Offset, min(symtab.Size, maxSymbols*std.Sym64Size))
	d.strings, _ = f.Read(strtab.Offset, strtab.Size)
	return &d
}

// name returns the name of a symbol, nil for none.
func (d *dynamicSymbols) name(f *elfFile, index uint32) []byte {
	at := uint64(index) * std.Sym64Size
	if at+std.Sym64Size > uint64(len(d.entries)) {
		return nil
	}
	return withoutVersion(cString(d.strings, f.Order.Uint32(d.entries[at:])))
}

// merge adds stubs at addresses at which no function starts. names has their names.
func (t *Table) merge(stubs []entry, names []byte) {
	if len(stubs) == 0 || uint64(len(t.names))+uint64(len(names)) > 1<<32-1 {
		return
	}
	base := uint32(len(t.names))
	t.names = append(slices.Clip(t.names), names...)
	funcs := t.funcs
	for _, s := range stubs {
		s.name += base
		if _, ok := t.index(s.addr); !ok {
			funcs = append(funcs, s)
		}
	}
	slices.SortStableFunc(funcs, func(x, y entry) int { return cmp.Compare(x.addr, y.addr) })
	t.funcs = slices.Clip(slices.CompactFunc(funcs, func(x, y entry) bool { return x.addr == y.addr }))
}
