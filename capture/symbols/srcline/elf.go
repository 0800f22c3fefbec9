package srcline

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

const (
	maxSections = 1 << 16
	maxNames    = 4 << 20 // bytes of section names
)

// object is a file with debugging information, or the part of a .dwp that belongs to one unit.
type object struct {
	name string
	elf  elf.Type
	dwo  bool // its sections are those that end in .dwo

	info, abbrev, line, str, lineStr, strOffsets, addr, ranges, rnglists section

	cuIndex      section // .debug_cu_index, of a .dwp
	altLink, sup section // .gnu_debugaltlink, .debug_sup

	alt    *object // the file that those name, nil before it is needed
	altErr error   // why it could not be opened
	starts []uint64
	units  map[uint64]*unit
	tables map[tableKey]*abbrevs
	names  map[uint64]string // of functions, by the offset of their DIE
	closer File              // to be closed with the object
}

// wanted returns where the section of the name goes, nil for one that is not needed.
func (o *object) wanted(name string) *section {
	if strings.HasSuffix(name, ".dwo") != o.dwo {
		if name == ".debug_cu_index" {
			return &o.cuIndex
		}
		return nil
	}
	switch strings.TrimSuffix(name, ".dwo") {
	case ".debug_info":
		return &o.info
	case ".debug_abbrev":
		return &o.abbrev
	case ".debug_line":
		return &o.line
	case ".debug_str":
		return &o.str
	case ".debug_line_str":
		return &o.lineStr
	case ".debug_str_offsets":
		return &o.strOffsets
	case ".debug_addr":
		return &o.addr
	case ".debug_ranges":
		return &o.ranges
	case ".debug_rnglists":
		return &o.rnglists
	case ".gnu_debugaltlink":
		return &o.altLink
	case ".debug_sup":
		return &o.sup
	}
	return nil
}

// openObject reads the section headers of an ELF file; dwo says that it is a .dwo or .dwp.
func openObject(f File, dwo bool) (*object, error) {
	o := &object{name: f.Name, dwo: dwo}
	fail := func(section string, off uint64, what string, err error) (*object, error) {
		if err == nil {
			err = ErrBadELF
		}
		return nil, &Error{f.Name, section, off, what, err}
	}
	if f.ReaderAt == nil {
		return fail("ELF header", 0, "reading", fs.ErrNotExist)
	}
	var head [64]byte
	n, err := f.ReadAt(head[:], 0)
	if n < 52 {
		if err != nil && !errors.Is(err, io.EOF) {
			return fail("ELF header", 0, "reading", err)
		}
		return fail("ELF header", uint64(n), "file is too short", nil)
	}
	if string(head[:4]) != elf.ELFMAG {
		return fail("ELF header", 0, "no ELF magic", nil)
	}
	if elf.Data(head[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return fail("ELF header", elf.EI_DATA, "not little-endian", ErrUnsupported)
	}
	c := cursor{data: head[:n], pos: elf.EI_NIDENT}
	o.elf = elf.Type(c.u16())
	class, wide := elf.Class(head[elf.EI_CLASS]), uint8(8)
	entry := uint64(64)
	switch class {
	case elf.ELFCLASS64:
		c.pos = 40 // e_shoff
	case elf.ELFCLASS32:
		c.pos, wide, entry = 32, 4, 40
	default:
		return fail("ELF header", elf.EI_CLASS, "unknown class", nil)
	}
	shoff := c.uint(wide)
	c.skip(4 + 3*2) // e_flags, e_ehsize, e_phentsize, e_phnum
	shentsize, shnum, shstrndx := uint64(c.u16()), uint64(c.u16()), uint64(c.u16())
	if c.bad {
		return fail("ELF header", uint64(n), "file is too short", nil)
	}
	if shoff == 0 {
		return o, nil
	}
	if shentsize != entry {
		return fail("ELF header", 0, fmt.Sprintf("section header size %d, not %d", shentsize, entry), nil)
	}
	file := section{file: f.Name, name: "section headers", r: f, size: uint64(max(f.Size, 0))}
	if shnum == 0 || shstrndx == uint64(elf.SHN_XINDEX) {
		// More sections than e_shnum can say: the counts are in the first section header (gABI, "Sections").
		b, err := file.at(shoff, entry)
		if err != nil {
			return fail("section headers", shoff, "first header", errors.Join(ErrBadELF, err))
		}
		first := parseSectionHeader(b, wide)
		if shnum == 0 {
			shnum = first.size
		}
		if shstrndx == uint64(elf.SHN_XINDEX) {
			shstrndx = uint64(first.link)
		}
	}
	if shnum > maxSections || shstrndx >= shnum {
		return fail("section headers", shoff, fmt.Sprintf("%d sections, names in %d", shnum, shstrndx), nil)
	}
	headers, err := file.keep(shoff, shnum*entry)
	if err != nil {
		return fail("section headers", shoff, "reading", errors.Join(ErrBadELF, err))
	}
	names := parseSectionHeader(headers[shstrndx*entry:], wide)
	strtab, err := file.at(names.off, min(names.size, maxNames))
	if err != nil {
		return fail("section headers", names.off, "section names", errors.Join(ErrBadELF, err))
	}
	for i := range shnum {
		h := parseSectionHeader(headers[i*entry:], wide)
		if h.typ == elf.SHT_NOBITS || h.typ == elf.SHT_NULL || uint64(h.name) >= uint64(len(strtab)) {
			continue
		}
		name, _, _ := bytes.Cut(strtab[h.name:][:min(32, len(strtab)-int(h.name))], []byte{0})
		kind := stored
		title := string(name)
		switch {
		case h.flags&elf.SHF_COMPRESSED != 0:
			kind = compressed
		case strings.HasPrefix(title, ".zdebug_"):
			kind, title = zdebug, ".debug_"+title[len(".zdebug_"):]
		}
		s := o.wanted(title)
		if s == nil || s.size != 0 {
			continue
		}
		if h.off > file.size || h.size > file.size-h.off {
			return fail(title, h.off, fmt.Sprintf("%d bytes reach beyond the end of the file (%#x)", h.size, file.size), nil)
		}
		*s = section{file: f.Name, name: string(name), r: f, off: int64(h.off), size: h.size, compression: kind, class: class}
	}
	return o, nil
}

// sectionHeader is what is needed of an Elf32_Shdr or Elf64_Shdr.
type sectionHeader struct {
	name      uint32
	typ       elf.SectionType
	flags     elf.SectionFlag
	off, size uint64
	link      uint32
}

func parseSectionHeader(b []byte, wide uint8) sectionHeader {
	c := cursor{data: b}
	var h sectionHeader
	h.name, h.typ = c.u32(), elf.SectionType(c.u32())
	h.flags = elf.SectionFlag(c.uint(wide))
	c.uint(wide) // sh_addr
	h.off, h.size = c.uint(wide), c.uint(wide)
	h.link = c.u32()
	return h
}

// size is how many bytes of debugging information the file stores.
func (o *object) size() uint64 {
	var n uint64
	for _, s := range []*section{&o.info, &o.abbrev, &o.line, &o.str, &o.lineStr, &o.strOffsets, &o.addr, &o.ranges, &o.rnglists} {
		n += s.size
	}
	return n
}
