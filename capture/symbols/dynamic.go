package symbols

import (
	std "debug/elf"
	"errors"
	"fmt"
	"slices"

	"unspool/dwarfcfi/elf"
)

// Files without section headers, as llvm-objcopy --strip-sections and packers leave them, have dynamic symbols
// all the same: the dynamic linker finds them by PT_DYNAMIC. How many there are, only the hash table tells.

// maxDynamic bounds the entries of a dynamic section.
const maxDynamic = 1 << 12

// symbolTable finds the symbol table of a kind and its strings; a file has at most one of each kind. ok is false
// if there is none.
func (f *elfFile) symbolTable(kind elf.SectionType) (symbols, strings elf.Section, ok bool, err error) {
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Type == kind {
			link, ok := f.Linked(s)
			if !ok || link.Type != elf.SHT_STRTAB {
				err = fmt.Errorf("sh_link %d is no string table", s.Link)
			}
			return *s, link, true, err
		}
	}
	if kind == elf.SHT_DYNSYM {
		return f.dynamicTable()
	}
	return symbols, strings, false, nil
}

// dynamicTable is symbolTable for the dynamic symbols of a file without a section for them.
func (f *elfFile) dynamicTable() (symbols, strings elf.Section, ok bool, err error) {
	tags := f.dynamicTags()
	symbols, inSymbols := f.loaded(tags[std.DT_SYMTAB])
	strings, inStrings := f.loaded(tags[std.DT_STRTAB])
	if !inSymbols || !inStrings {
		return symbols, strings, false, nil
	}
	entrySize := uint64(f.Pick(std.Sym64Size, std.Sym32Size))
	if n := tags[std.DT_SYMENT]; n != entrySize {
		return symbols, strings, true, fmt.Errorf("dynamic symbols of %d bytes each", n)
	}
	n, err := f.countDynamic(tags)
	symbols.Size = min(n*entrySize, symbols.Size/entrySize*entrySize)
	strings.Size = min(tags[std.DT_STRSZ], strings.Size)
	return symbols, strings, true, err
}

// dynamicTags returns the values in the dynamic section by their tags; 0 for those that it lacks.
func (f *elfFile) dynamicTags() map[std.DynTag]uint64 {
	tags := make(map[std.DynTag]uint64)
	i := slices.IndexFunc(f.Segments, func(s elf.Segment) bool { return s.Type == std.PT_DYNAMIC })
	if i < 0 {
		return tags
	}
	s, size := &f.Segments[i], uint64(f.Pick(16, 8))
	b, _ := f.memory(s.Vaddr, min(s.Filesz, maxDynamic*size))
	for ; uint64(len(b)) >= size; b = b[size:] {
		tag := std.DynTag(f.Word(b, 0, 0))
		if tag == std.DT_NULL {
			break
		}
		tags[tag] = f.Word(b, 8, 4)
	}
	return tags
}

// loaded is what the file has of its segment from a virtual address on.
func (f *elfFile) loaded(addr uint64) (elf.Section, bool) {
	s := f.loads.At(addr)
	if s == nil || addr == 0 {
		return elf.Section{}, false
	}
	return elf.Section{Flags: elf.SHF_ALLOC, Addr: addr, Offset: s.Offset + (addr - s.Vaddr),
		Size: s.Filesz - (addr - s.Vaddr)}, true
}

// countDynamic returns the number of dynamic symbols: that of the chains of DT_HASH, or the end of the last chain
// of DT_GNU_HASH.
func (f *elfFile) countDynamic(tags map[std.DynTag]uint64) (uint64, error) {
	if table := tags[std.DT_HASH]; table != 0 {
		head, ok := f.memory(table, 8) // nbucket, nchain
		if !ok {
			return 0, errNoHash
		}
		return uint64(f.Order.Uint32(head[4:])), nil
	}
	table := tags[std.DT_GNU_HASH]
	head, ok := f.memory(table, 16) // nbuckets, symoffset, bloom_size, bloom_shift
	if !ok || table == 0 {
		return 0, errNoHash
	}
	buckets, first, bloom := f.Order.Uint32(head), uint64(f.Order.Uint32(head[4:])), uint64(f.Order.Uint32(head[8:]))
	if buckets > maxSymbols {
		return 0, fmt.Errorf("hash table of %d buckets, more than %d: %w", buckets, maxSymbols, errOver)
	}
	at := table + 16 + bloom*uint64(f.Pick(8, 4))
	last := uint64(0)
	err := f.words(at, uint64(buckets), func(symbol uint32) bool {
		last = max(last, uint64(symbol))
		return true
	})
	if err != nil || last < first {
		return first, err // those before are not defined here
	}
	// The last word of a chain is odd.
	at += 4 * (uint64(buckets) + last - first)
	err = f.words(at, maxSymbols, func(hash uint32) bool {
		last++
		return hash&1 == 0
	})
	return last, err
}

// errNoHash means that the end of the dynamic symbols is not known.
var errNoHash = errors.New("dynamic symbols without a hash table")

// words yields up to n words at a virtual address, until yield returns false. That the segment ends before is an
// error.
func (f *elfFile) words(addr, n uint64, yield func(uint32) bool) error {
	const chunk = 4 << 10
	for n > 0 {
		s, ok := f.loaded(addr)
		if !ok || s.Size < 4 {
			return fmt.Errorf("hash table reaches beyond the segment at %#x: %w", addr, elf.ErrBadELF)
		}
		b, ok := f.memory(addr, 4*min(n, chunk, s.Size/4))
		if !ok {
			return fmt.Errorf("hash table at %#x: %w", addr, elf.ErrBadELF)
		}
		addr += uint64(len(b))
		n -= uint64(len(b)) / 4
		for ; len(b) > 0; b = b[4:] {
			if !yield(f.Order.Uint32(b)) {
				return nil
			}
		}
	}
	return nil
}
