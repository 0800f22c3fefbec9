package symbols

import (
	std "debug/elf"

	"unspool/dwarfcfi/elf"
)

// An Export is a function of an image that other images can call by name.
type Export struct {
	Addr uint64 // a virtual address of the image
	// Chosen means that the function at Addr returns at run time the one to call (STT_GNU_IFUNC).
	Chosen bool
}

// maxExports bounds the names of one image.
const maxExports = 1 << 20

// Exports returns the functions that the image's dynamic symbol table defines, by name. A name has several if
// its versions differ. Symbols that cannot be read are left out. The first call reads them.
func (im *Image) Exports() map[string][]Export {
	if im.exports == nil {
		im.exports = make(map[string][]Export)
		if im.isFile() {
			im.s.Contain(im.Path, "names of calls", func() { im.readExports(im.exports) })
		}
	}
	return im.exports
}

// readExports is Exports for the file of an image.
func (im *Image) readExports(exports map[string][]Export) {
	file, f, err := im.open()
	if err != nil {
		return
	}
	defer file.Close()
	s, strtab, ok, err := f.symbolTable(elf.SHT_DYNSYM)
	if !ok || err != nil || strtab.Size > maxStrings || f.Class != elf.ELFCLASS64 {
		return
	}
	symtab, _ := f.Read(s.Offset, min(s.Size, maxExports*std.Sym64Size))
	names, _ := f.Read(strtab.Offset, strtab.Size)
	f.addExports(exports, symtab, names)
}

// addExports adds the functions of a symbol table of Elf64_Sym.
func (f *elfFile) addExports(exports map[string][]Export, symtab, names []byte) {
	room := len(names) + maxName // names may share their bytes
	for ; len(symtab) >= std.Sym64Size; symtab = symtab[std.Sym64Size:] {
		typ, index := std.ST_TYPE(symtab[4]), std.SectionIndex(f.Order.Uint16(symtab[6:]))
		function := typ == std.STT_FUNC || typ == std.STT_GNU_IFUNC || typ == std.STT_NOTYPE
		if index == std.SHN_UNDEF || !function {
			continue
		}
		name := withoutVersion(cString(names, f.Order.Uint32(symtab)))
		if len(name) == 0 || len(name) > room {
			continue
		}
		if room -= len(name); len(exports) >= maxExports {
			return
		}
		e := Export{Addr: f.Order.Uint64(symtab[8:]), Chosen: typ == std.STT_GNU_IFUNC}
		exports[string(name)] = append(exports[string(name)], e)
	}
}
