package symbols

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
)

// The procedure linkage table has no symbols of its own. A stub jumps through a slot of the global offset table, and a dynamic
// relocation says which symbol the linker puts in that slot: the stub is that symbol's "name@plt". Reading the stubs' own
// instructions covers the lazy .plt, the .plt.sec of binaries built for indirect branch tracking, and .plt.got alike.

// maxPLT bounds the stubs and the relocations that are read for them.
const maxPLT = 1 << 18

// addPLT adds the stubs of an x86-64 image to t. What is malformed is left out.
func (f *elfFile) addPLT(t *Table) {
	if !f.is64 || f.machine != elf.EM_X86_64 || f.names.Size == 0 {
		return
	}
	var stubs []entry
	var slots map[uint64]uint32 // GOT slot → offset of the name in names
	var names []byte
	for _, s := range f.sects {
		if s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_EXECINSTR == 0 || s.Size > maxPLT*16 || len(stubs) > maxPLT {
			continue
		}
		size := uint64(16)
		switch {
		case f.named(s, ".plt"), f.named(s, ".plt.sec"):
		case f.named(s, ".plt.got"):
			if s.EntrySize == 8 {
				size = 8
			}
		default:
			continue
		}
		if slots == nil {
			if slots, names = f.slots(); len(slots) == 0 {
				return
			}
		}
		code, err := f.read(s.Off, s.Size)
		if err != nil {
			continue
		}
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

// slots reads the dynamic relocations (R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT): which symbol goes in which GOT slot.
// The names are NUL-terminated strings that end in "@plt".
func (f *elfFile) slots() (map[uint64]uint32, []byte) {
	slots := make(map[uint64]uint32)
	var names []byte
	for _, s := range f.sects {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		symtab, ok := f.link(s)
		if !ok || symtab.Type != elf.SHT_DYNSYM {
			continue
		}
		strtab, ok := f.link(symtab)
		if !ok || strtab.Size > maxStrings {
			continue
		}
		relas, err := f.read(s.Off, min(s.Size, maxPLT*24))
		if err != nil {
			continue
		}
		var syms, strings []byte
		for ; len(relas) >= 24; relas = relas[24:] {
			info := f.order.Uint64(relas[8:])
			typ := elf.R_X86_64(elf.R_TYPE64(info))
			if typ != elf.R_X86_64_JMP_SLOT && typ != elf.R_X86_64_GLOB_DAT {
				continue
			}
			if syms == nil {
				if syms, err = f.read(symtab.Off, min(symtab.Size, maxSymbols*elf.Sym64Size)); err != nil {
					break
				}
				if strings, err = f.read(strtab.Off, strtab.Size); err != nil {
					break
				}
			}
			at := uint64(elf.R_SYM64(info)) * elf.Sym64Size
			if at+elf.Sym64Size > uint64(len(syms)) {
				continue
			}
			name := withoutVersion(cString(strings, f.order.Uint32(syms[at:])))
			if len(name) == 0 || len(names)+len(name) > 2*len(strings)+maxName {
				continue
			}
			slots[f.order.Uint64(relas)] = uint32(len(names))
			names = append(append(names, name...), "@plt\x00"...)
		}
	}
	return slots, names
}

// merge adds stubs at addresses that no function starts at. The names are the stubs'.
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
