package elf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
)

// Limits on what the headers may ask for; the largest real files have a few hundred
// sections.
const (
	maxSegments = 1 << 10
	maxSections = 1 << 16
	maxNames    = 1 << 20 // bytes of section names
	maxNotes    = 1 << 16 // bytes of notes in one segment or section
	maxNoteRuns = 64      // segments and sections with notes
	maxBuildID  = 64
)

// header is the ELF file header, of either class.
type header struct {
	class                elf.Class
	typ                  elf.Type
	machine              elf.Machine
	entry, phoff, shoff  uint64
	phnum, shnum, shstrx int
}

func badELF(what string, offset uint64) error {
	return &Error{Section: "ELF header", Offset: offset, What: what, Err: ErrBadELF}
}

// readHeader reads the file header. Header tables of a size other than the class's own
// are taken for absent.
func readHeader(r io.ReaderAt) (*header, error) {
	var buf [64]byte
	n, err := r.ReadAt(buf[:], 0)
	if n < 52 {
		if err == nil || err == io.EOF {
			return nil, badELF("file is too short", uint64(n))
		}
		return nil, fmt.Errorf("ELF header: %w", err)
	}
	h := &header{class: elf.Class(buf[elf.EI_CLASS])}
	switch {
	case string(buf[:4]) != elf.ELFMAG:
		return nil, badELF("no ELF magic", 0)
	case elf.Data(buf[elf.EI_DATA]) == elf.ELFDATA2MSB:
		return nil, badELF("big-endian files are not supported", elf.EI_DATA)
	case elf.Data(buf[elf.EI_DATA]) != elf.ELFDATA2LSB:
		return nil, badELF("unknown byte order", elf.EI_DATA)
	}
	c := Cursor{Data: buf[:n], Pos: elf.EI_NIDENT}
	h.typ, h.machine = elf.Type(c.U16()), elf.Machine(c.U16())
	c.U32() // e_version
	phsize, shsize := uint16(56), uint16(64)
	switch h.class {
	case elf.ELFCLASS64:
		h.entry, h.phoff, h.shoff = c.U64(), c.U64(), c.U64()
	case elf.ELFCLASS32:
		h.entry, h.phoff, h.shoff = uint64(c.U32()), uint64(c.U32()), uint64(c.U32())
		phsize, shsize = 32, 40
	default:
		return nil, badELF("unknown class", elf.EI_CLASS)
	}
	c.U32() // e_flags
	c.U16() // e_ehsize
	if c.U16() == phsize {
		h.phnum = int(c.U16())
	} else {
		c.U16()
	}
	if c.U16() == shsize {
		h.shnum = int(c.U16())
		h.shstrx = int(c.U16())
	} else {
		h.shoff = 0
	}
	if c.Bad {
		return nil, badELF("file is too short", uint64(n))
	}
	if h.shoff == 0 {
		h.shnum, h.shstrx = 0, 0
	}
	return h, nil
}

// segment is a program header, of either class.
type segment struct {
	typ                                 elf.ProgType
	flags                               elf.ProgFlag
	offset, vaddr, filesz, memsz, align uint64
}

// segments reads the program headers.
func (h *header) segments(r io.ReaderAt) ([]segment, error) {
	if h.phoff == 0 || h.phnum == 0 {
		return nil, nil
	}
	if h.phnum > maxSegments {
		return nil, badELF("too many program headers", 0)
	}
	size := 56
	if h.class == elf.ELFCLASS32 {
		size = 32
	}
	buf, err := readRange(r, h.phoff, uint64(size*h.phnum))
	if err != nil {
		return nil, fmt.Errorf("program headers: %w", err)
	}
	list := make([]segment, h.phnum)
	c := Cursor{Data: buf}
	for i := range list {
		s := &list[i]
		s.typ = elf.ProgType(c.U32())
		if h.class == elf.ELFCLASS64 {
			s.flags = elf.ProgFlag(c.U32())
			s.offset, s.vaddr, _ = c.U64(), c.U64(), c.U64()
			s.filesz, s.memsz, s.align = c.U64(), c.U64(), c.U64()
		} else {
			s.offset, s.vaddr, _ = uint64(c.U32()), uint64(c.U32()), c.U32()
			s.filesz, s.memsz = uint64(c.U32()), uint64(c.U32())
			s.flags, s.align = elf.ProgFlag(c.U32()), uint64(c.U32())
		}
	}
	return list, nil
}

// section is a section header, of either class.
type section struct {
	name                             string
	typ                              elf.SectionType
	flags                            elf.SectionFlag
	addr, offset, size, align, nameX uint64
}

// sections reads the section headers and their names.
func (h *header) sections(r io.ReaderAt) ([]section, error) {
	if h.shoff == 0 {
		return nil, nil
	}
	size := 64
	if h.class == elf.ELFCLASS32 {
		size = 40
	}
	parse := func(c *Cursor) (s section, link uint32) {
		s.nameX, s.typ = uint64(c.U32()), elf.SectionType(c.U32())
		if h.class == elf.ELFCLASS64 {
			s.flags, s.addr = elf.SectionFlag(c.U64()), c.U64()
			s.offset, s.size, link, _ = c.U64(), c.U64(), c.U32(), c.U32()
			s.align, _ = c.U64(), c.U64()
		} else {
			s.flags, s.addr = elf.SectionFlag(c.U32()), uint64(c.U32())
			s.offset, s.size, link, _ = uint64(c.U32()), uint64(c.U32()), c.U32(), c.U32()
			s.align, _ = uint64(c.U32()), c.U32()
		}
		return s, link
	}
	num, names := h.shnum, h.shstrx
	if num == 0 || names == int(elf.SHN_XINDEX) {
		// Numbers that do not fit are in the first section header (gABI, e_shnum).
		buf, err := readRange(r, h.shoff, uint64(size))
		if err != nil {
			return nil, fmt.Errorf("section headers: %w", err)
		}
		first, link := parse(&Cursor{Data: buf})
		if num == 0 {
			num = int(min(first.size, maxSections+1))
		}
		if names == int(elf.SHN_XINDEX) {
			names = int(link)
		}
	}
	if num == 0 {
		return nil, nil
	}
	if num > maxSections {
		return nil, badELF("too many section headers", 0)
	}
	buf, err := readRange(r, h.shoff, uint64(size)*uint64(num))
	if err != nil {
		return nil, fmt.Errorf("section headers: %w", err)
	}
	list := make([]section, num)
	c := Cursor{Data: buf}
	for i := range list {
		list[i], _ = parse(&c)
	}
	if names >= num {
		return nil, badELF("section names are in no section", 0)
	}
	table, err := readRange(r, list[names].offset, min(list[names].size, maxNames))
	if err != nil {
		return nil, fmt.Errorf("section names: %w", err)
	}
	for i := range list {
		if x := list[i].nameX; x < uint64(len(table)) {
			name := table[x:]
			if n := bytes.IndexByte(name[:min(len(name), 64)], 0); n >= 0 {
				list[i].name = string(name[:n])
			}
		}
	}
	return list, nil
}

// readRange reads size bytes at offset. Memory grows with what is really read, so that a
// size that lies costs nothing.
func readRange(r io.ReaderAt, offset, size uint64) ([]byte, error) {
	const step = 1 << 20
	if int64(offset) < 0 || int64(offset+size) < int64(offset) {
		return nil, fmt.Errorf("%d bytes at offset %#x: %w", size, offset, ErrBadELF)
	}
	buf := make([]byte, min(size, step))
	for done := uint64(0); ; {
		n, err := r.ReadAt(buf[done:], int64(offset+done))
		done += uint64(n)
		if done == size {
			return buf, nil
		}
		if done < uint64(len(buf)) {
			if err == nil || err == io.EOF {
				err = fmt.Errorf("file ends at %#x: %w", offset+done, ErrBadELF)
			}
			return nil, err
		}
		grown := make([]byte, min(size, 2*done))
		copy(grown, buf)
		buf = grown
	}
}

// buildIDIn finds the build ID in a note segment or section with the given alignment: a note
// of type NT_GNU_BUILD_ID from "GNU".
func buildIDIn(notes []byte, align uint64) []byte {
	if align != 8 {
		align = 4
	}
	for len(notes) >= 12 {
		namesz := uint64(binary.LittleEndian.Uint32(notes))
		descsz := uint64(binary.LittleEndian.Uint32(notes[4:]))
		typ := binary.LittleEndian.Uint32(notes[8:])
		desc := (12 + namesz + align - 1) &^ (align - 1)
		end := desc + descsz
		if end > uint64(len(notes)) {
			return nil
		}
		if typ == 3 && string(notes[12:12+namesz]) == "GNU\x00" && descsz > 0 && descsz <= maxBuildID {
			return bytes.Clone(notes[desc:end])
		}
		notes = notes[min((end+align-1)&^(align-1), uint64(len(notes))):]
	}
	return nil
}

// buildID looks through the note segments, then the note sections.
func buildID(r io.ReaderAt, segments []segment, sections []section) []byte {
	looked := 0
	look := func(offset, size, align uint64) []byte {
		if looked++; looked > maxNoteRuns {
			return nil
		}
		notes, err := readRange(r, offset, min(size, maxNotes))
		if err != nil {
			return nil
		}
		return buildIDIn(notes, align)
	}
	for _, s := range segments {
		if s.typ == elf.PT_NOTE {
			if id := look(s.offset, s.filesz, s.align); id != nil {
				return id
			}
		}
	}
	for _, s := range sections {
		if s.typ == elf.SHT_NOTE {
			if id := look(s.offset, s.size, s.align); id != nil {
				return id
			}
		}
	}
	return nil
}

// ReadBuildID returns the build ID of an ELF file, nil if it has none, reading no more
// than headers and notes. The error wraps [ErrBadELF] or the reader's.
func ReadBuildID(r io.ReaderAt) ([]byte, error) {
	h, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	segments, err := h.segments(r)
	if id := buildID(r, segments, nil); id != nil || err != nil {
		return id, err
	}
	sections, err := h.sections(r)
	if err != nil {
		return nil, err
	}
	return buildID(r, nil, sections), nil
}
