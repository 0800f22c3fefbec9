package symbols

import (
	"bytes"
	"cmp"
	std "debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"unspool/dwarfcfi/elf"
)

// Func is one function of an image.
type Func struct {
	Name string // as the symbol table has it, mangled; without a symbol version
	Addr uint64 // first address: a virtual address of the ELF image, for the kernel an address in memory
	Size uint64 // bytes; for a symbol that gives no size, up to the next one

	// Entry is where the function begins: Addr, unless these are the addresses of a part of it that lies elsewhere.
	Entry uint64
}

// Table holds the functions of one ELF image, sorted by address: 16 bytes a function and its name.
type Table struct {
	funcs []entry
	names []byte // NUL-terminated strings
	loads elf.Loads

	entries map[uint64]uint64 // by the address of a part of a function that lies elsewhere
}

// entry is one function: addresses [addr, addr+size), name an offset into the table's names.
type entry struct {
	addr uint64
	size uint32
	name uint32
}

// ErrNoSymbols means that an ELF file names no function.
var ErrNoSymbols = errors.New("no symbols")

// table reads the functions of f: those of .symtab; else those of its separate debug file; else those in a
// stripped file: MiniDebugInfo, .dynsym and Go's function table. Debug files are looked for by im, unless it
// is nil.
func (f *elfFile) table(im *Image) (*Table, error) {
	t := &Table{loads: f.loads}
	b := builder{code: f.codeRanges()}
	if im != nil {
		b.left = im.s.budget()
	}
	failed := b.readTable(f, elf.SHT_SYMTAB)
	if len(b.syms) == 0 && im != nil {
		if file, d := im.debugFile(f); d != nil {
			failed = cmp.Or(failed, b.readTable(d, elf.SHT_SYMTAB))
			file.Close()
		}
	}
	if len(b.syms) == 0 {
		mini, err := f.miniDebugInfo(b.left)
		if mini != nil {
			err = b.readTable(mini, elf.SHT_SYMTAB)
		}
		failed = cmp.Or(failed, err, b.readTable(f, elf.SHT_DYNSYM), b.readGo(f))
	}
	b.finish(t, func(addr uint64) uint64 { return codeEnd(b.code, addr) })
	f.addPLT(t)
	if len(t.funcs) == 0 {
		if failed == nil {
			failed = ErrNoSymbols
		}
		return t, failed
	}
	if errors.Is(failed, errOver) {
		return t, failed // there are few beside those that were left out
	}
	return t, nil
}

// Len is the number of functions.
func (t *Table) Len() int { return len(t.funcs) }

// At returns the i-th function in the order of addresses.
func (t *Table) At(i int) Func {
	e := t.funcs[i]
	f := Func{Name: t.name(e.name), Addr: e.addr, Size: uint64(e.size), Entry: e.addr}
	if entry, ok := t.entries[e.addr]; ok {
		f.Entry = entry
	}
	return f
}

// maxNested bounds how far back Lookup searches for a function that contains shorter ones.
const maxNested = 32

// Lookup returns the function that contains the virtual address.
func (t *Table) Lookup(vaddr uint64) (Func, bool) {
	i, ok := t.index(vaddr)
	if !ok {
		return Func{}, false
	}
	return t.At(i), true
}

func (t *Table) index(addr uint64) (int, bool) {
	// The first function that starts beyond addr, then back.
	lo, hi := 0, len(t.funcs)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if t.funcs[mid].addr <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for i := lo - 1; i >= 0 && i >= lo-maxNested; i-- {
		if addr-t.funcs[i].addr < uint64(t.funcs[i].size) {
			return i, true
		}
	}
	return 0, false
}

// Vaddr turns an offset in the file into a virtual address; see [elf.Loads.Vaddr].
func (t *Table) Vaddr(off uint64) (uint64, bool) { return t.loads.Vaddr(off) }

// maxName bounds a symbol's name; the longest C++ names of real programs are a few times 10 KiB.
const maxName = 64 << 10

func (t *Table) name(off uint32) string { return string(cString(t.names, off)) }

// cString returns the bytes from off up to the next NUL, at most maxName.
func cString(b []byte, off uint32) []byte {
	if uint64(off) >= uint64(len(b)) {
		return nil
	}
	b = b[off:min(uint64(len(b)), uint64(off)+maxName)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// builder collects function symbols in the order of a symbol table.
type builder struct {
	syms    []symbol
	strings []byte
	code    []addrRange
	left    *budget // nil for no bound
	files   uint32  // names of source files among the symbols so far
}

// symbol is a candidate for an entry; rank orders the candidates at one address, the best has the lowest.
type symbol struct {
	addr  uint64
	size  uint32
	name  uint32
	file  uint32 // local symbols of the same source file have the same
	owner uint16 // for symbols of the kernel: the index of the image
	rank  uint8
	part  bool // see partOf
}

// localRank is the bit of a rank that local symbols have.
const localRank = 2

// rank prefers, among the symbols at one address, functions to labels, then symbols with a size, and then
// orders by binding.
func rank(typ std.SymType, bind std.SymBind, size uint64) uint8 {
	var r uint8
	if typ == std.STT_NOTYPE {
		r |= 1 << 3
	}
	if size == 0 {
		r |= 1 << 2
	}
	switch bind {
	case std.STB_GLOBAL, std.STB_LOOS: // STB_GNU_UNIQUE is STB_LOOS
	case std.STB_WEAK:
		r |= 1
	default:
		r |= localRank
	}
	return r
}

// readTable adds the symbols of f's symbol table of a kind.
func (b *builder) readTable(f *elfFile, kind elf.SectionType) error {
	s, link, ok, err := f.symbolTable(kind)
	if ok && err == nil {
		err = b.read(f, &s, &link)
	}
	if err != nil {
		return fmt.Errorf("symbol table at offset 0x%x: %w", s.Offset, err)
	}
	return nil
}

// read adds the symbols of a table, whose strings are in link.
func (b *builder) read(f *elfFile, s, link *elf.Section) error {
	if link.Size > maxStrings {
		return fmt.Errorf("string table of %d bytes, more than %d: %w", link.Size, maxStrings, errOver)
	}
	size, entries := s.Size, f.Read
	if s.Packing(nil) != elf.Plain { // it is inflated as a whole
		whole, err := f.Contents(s, b.left.allow)
		if err != nil {
			return err
		}
		size = uint64(len(whole))
		entries = func(at, n uint64) ([]byte, error) { return whole[at-s.Offset:][:n], nil }
	} else if err := f.Holds(s.Offset, s.Size); err != nil {
		return err
	}
	entrySize := uint64(f.Pick(std.Sym64Size, std.Sym32Size))
	n := size / entrySize
	if n > maxSymbols {
		return fmt.Errorf("%d symbols, more than %d: %w", n, maxSymbols, errOver)
	}
	const inMemory = 24 // bytes of a symbol
	if err := b.left.allow(n * inMemory); err != nil {
		return err
	}
	strings, err := f.Contents(link, b.left.allow)
	if err != nil {
		return fmt.Errorf("string table: %w", err)
	}
	base := b.addStrings(strings)
	b.files++
	const chunk = 2048
	for i := uint64(0); i < n; i += chunk {
		raw, err := entries(s.Offset+i*entrySize, min(chunk, n-i)*entrySize)
		if err != nil {
			return err
		}
		for ; len(raw) > 0; raw = raw[entrySize:] {
			b.add(f, raw, strings, base)
		}
	}
	return nil
}

// addStrings adds a string table, and returns its position among the builder's strings.
func (b *builder) addStrings(table []byte) uint32 {
	if len(b.strings) == 0 {
		b.strings = table
		return 0
	}
	b.strings = append(b.strings, 0) // the last string may not be terminated
	base := len(b.strings)
	b.strings = append(b.strings, table...)
	return uint32(base)
}

// add keeps the Elf64_Sym or Elf32_Sym if it is a function, or a label in executable code. Its string table
// is at base among the builder's strings.
func (b *builder) add(f *elfFile, raw, strings []byte, base uint32) {
	name := f.Order.Uint32(raw)
	info, other, index := raw[f.Pick(4, 12)], raw[f.Pick(5, 13)],
		std.SectionIndex(f.Order.Uint16(raw[f.Pick(6, 14):]))
	addr, size := f.Word(raw, 8, 4), f.Word(raw, 16, 8)
	if index == std.SHN_UNDEF {
		return
	}
	typ := std.ST_TYPE(info)
	switch typ {
	case std.STT_FILE:
		b.files++
		return
	case std.STT_FUNC, std.STT_GNU_IFUNC:
	case std.STT_NOTYPE:
		if index >= std.SHN_LORESERVE || codeEnd(b.code, addr) == addr ||
			std.ST_VISIBILITY(other) == std.STV_HIDDEN && size == 0 {
			return
		}
	default:
		return
	}
	text := cString(strings, name)
	if len(text) == 0 || isMarker(text, typ) {
		return
	}
	function, _ := partOf(text)
	b.syms = append(b.syms, symbol{addr: addr, size: uint32(min(size, 1<<32-1)), name: base + name, file: b.files,
		rank: rank(typ, std.ST_BIND(info), size), part: function != nil})
}

// isMarker recognizes symbols that name no function: the mapping symbols of ARM and RISC-V ($a, $d, $t,
// $x, also with a suffix), assembler labels, and the linker's ends of sections.
func isMarker(name []byte, typ std.SymType) bool {
	if name[0] == '$' && len(name) >= 2 && strings.IndexByte("adtx", name[1]) >= 0 &&
		(len(name) == 2 || name[2] == '.') {
		return true
	}
	if typ != std.STT_NOTYPE {
		return false
	}
	switch string(name) {
	case "_end", "end", "_edata", "edata", "_etext", "etext", "__etext", "__bss_start", "_fp_hw", "__ehdr_start":
		return true
	}
	return bytes.HasPrefix(name, []byte(".L"))
}

// addrRange is the virtual addresses from start up to end.
type addrRange struct{ start, end uint64 }

// codeRanges returns where code is, sorted: the executable sections, or the executable segments of a
// file without them.
func (f *elfFile) codeRanges() []addrRange {
	var code []addrRange
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type == elf.SHT_PROGBITS &&
			s.Flags&(elf.SHF_ALLOC|elf.SHF_EXECINSTR) == elf.SHF_ALLOC|elf.SHF_EXECINSTR && s.Addr+s.Size > s.Addr {
			code = append(code, addrRange{s.Addr, s.Addr + s.Size})
		}
	}
	if code == nil {
		for _, s := range f.loads {
			if s.Exec() && s.Vaddr+s.Memsz > s.Vaddr {
				code = append(code, addrRange{s.Vaddr, s.Vaddr + s.Memsz})
			}
		}
	}
	slices.SortFunc(code, func(x, y addrRange) int { return cmp.Compare(x.start, y.start) })
	return code
}

// codeEnd is the end of the code range that contains addr, or addr when none does.
func codeEnd(code []addrRange, addr uint64) uint64 {
	i, exact := slices.BinarySearchFunc(code, addr, func(r addrRange, a uint64) int {
		return cmp.Compare(r.start, a)
	})
	if !exact {
		i--
	}
	if i < 0 || addr >= code[i].end {
		return addr
	}
	return code[i].end
}

// finish sorts the symbols, keeps the best one at each address and drops labels inside functions. Symbols
// without a size reach up to the next one, but not beyond limit(their address). Then it copies the names of
// the symbols that are left, and gives the parts of functions the names of these.
func (b *builder) finish(t *Table, limit func(addr uint64) uint64) {
	slices.SortFunc(b.syms, func(x, y symbol) int {
		if c := cmp.Compare(x.addr, y.addr); c != 0 {
			return c
		}
		if c := cmp.Compare(x.rank, y.rank); c != 0 {
			return c
		}
		return compareNames(cString(b.strings, x.name), cString(b.strings, y.name))
	})
	of := b.parts()
	var parts []part
	kept := b.syms[:0]
	var covered uint64 // end of the functions with a size so far
	last := ^uint64(0)
	for i, s := range b.syms {
		if i > 0 && s.addr == last {
			continue
		}
		last = s.addr
		if s.size == 0 && s.addr < covered {
			continue
		}
		covered = max(covered, s.addr+uint64(s.size))
		if function, ok := of[i]; ok {
			parts = append(parts, part{len(kept), function})
		}
		kept = append(kept, s)
	}
	t.funcs = make([]entry, len(kept))
	total := 0
	for i, s := range kept {
		if s.size == 0 {
			end := limit(s.addr)
			if i+1 < len(kept) {
				end = min(end, kept[i+1].addr)
			}
			s.size = uint32(min(max(end, s.addr)-s.addr, 1<<32-1))
		}
		t.funcs[i] = entry{s.addr, s.size, s.name}
		if total <= len(b.strings) {
			total += len(cString(b.strings, s.name)) + 1
		}
	}
	if total > len(b.strings) {
		t.names = b.strings // names share their bytes, so a copy would be larger than the table
	} else {
		t.names = make([]byte, 0, total)
		for i := range t.funcs {
			name := withoutVersion(cString(b.strings, t.funcs[i].name))
			t.funcs[i].name = uint32(len(t.names))
			t.names = append(append(t.names, name...), 0)
		}
	}
	t.join(parts)
	b.syms, b.strings = nil, nil
}

// compareNames orders the names of one address: first the one with fewer leading underscores, then the longer
// one, as it says more, then in alphabetical order.
func compareNames(x, y []byte) int {
	x, y = x[:min(len(x), 256)], y[:min(len(y), 256)]
	underscores := func(s []byte) int { return len(s) - len(bytes.TrimLeft(s, "_")) }
	if c := cmp.Compare(underscores(x), underscores(y)); c != 0 {
		return c
	}
	if c := cmp.Compare(len(y), len(x)); c != 0 {
		return c
	}
	return bytes.Compare(x, y)
}

// withoutVersion cuts the symbol version off a name of .symtab: "stat@@GLIBC_2.33" is stat.
func withoutVersion(name []byte) []byte {
	if i := bytes.IndexByte(name, '@'); i > 0 {
		return name[:i]
	}
	return name
}
