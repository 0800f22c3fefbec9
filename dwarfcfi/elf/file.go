package elf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// File is an ELF file of either class and byte order whose headers were read. Its methods read
// the rest from its reader.
type File struct {
	Class    Class
	Order    binary.ByteOrder
	Type     Type
	Machine  Machine
	Entry    uint64
	Size     uint64    // of the file, in bytes
	Segments []Segment // none in relocatable files
	Sections []Section // none in files whose section headers were cut off

	r     io.ReaderAt
	names Section // section header string table; Size 0 when there is none

	segmentTable, sectionTable table
	namesIndex                 int // of the section that names is
}

// sizeUnknown is the Size of a file whose size is not known: reading finds its end.
const sizeUnknown = math.MaxInt64

// table is where the file holds its program headers or section headers.
type table struct {
	offset uint64
	entry  int // bytes of one
	count  int
}

// Segment is a program header.
type Segment struct {
	Type ProgType
	Load
	Align uint64
}

// Section is a section header.
type Section struct {
	Name               uint32 // offset in the section header string table; see File.Named
	Type               SectionType
	Flags              SectionFlag
	Addr, Offset, Size uint64
	Link               uint32
	Align              uint64
}

// Limits on what the headers may ask for; the largest real files have a few hundred
// sections.
const (
	maxSegments = 1 << 10
	maxSections = 1 << 16
	maxNames    = 4 << 20 // bytes of section names
)

// NewFile reads the headers of an ELF file of size bytes, which must stay readable as long
// as the File is used. The error wraps [ErrBadELF] or the reader's error.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	f, err := readHeader(r, uint64(max(size, 0)))
	if err != nil {
		return nil, err
	}
	if err := f.readSegments(); err != nil {
		return nil, err
	}
	if err := f.readSections(); err != nil {
		return nil, err
	}
	return f, nil
}

func badELF(what string, offset uint64) error {
	return &Error{Section: "ELF header", Offset: offset, What: what, Err: ErrBadELF}
}

// readHeader reads the file header.
func readHeader(r io.ReaderAt, size uint64) (*File, error) {
	var buf [64]byte
	n, err := r.ReadAt(buf[:], 0)
	if n < 52 && err != nil && err != io.EOF {
		return nil, fmt.Errorf("ELF header: %w", err)
	}
	f := &File{Class: elf.Class(buf[elf.EI_CLASS]), r: r, Size: size}
	switch {
	case n < 52 || f.Class == elf.ELFCLASS64 && n < len(buf):
		return nil, badELF("file is too short", uint64(n))
	case string(buf[:4]) != elf.ELFMAG:
		return nil, badELF("no ELF magic", 0)
	case f.Class != elf.ELFCLASS64 && f.Class != elf.ELFCLASS32:
		return nil, badELF("unknown class", elf.EI_CLASS)
	}
	switch elf.Data(buf[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
		f.Order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		f.Order = binary.BigEndian
	default:
		return nil, badELF("unknown byte order", elf.EI_DATA)
	}
	half := func(off64, off32 int) int { return int(f.Order.Uint16(buf[f.Pick(off64, off32):])) }
	f.Type, f.Machine = elf.Type(half(16, 16)), elf.Machine(half(18, 18))
	f.Entry = f.Word(buf[:], 24, 24)
	f.segmentTable = table{offset: f.Word(buf[:], 32, 28), entry: half(54, 42), count: half(56, 44)}
	f.sectionTable = table{offset: f.Word(buf[:], 40, 32), entry: half(58, 46), count: half(60, 48)}
	f.namesIndex = half(62, 50)
	return f, nil
}

// Pick returns the first number for 64-bit files, and the second for 32-bit files: an offset or size
// in a structure that the two classes lay out differently.
func (f *File) Pick(in64, in32 int) int {
	if f.Class == elf.ELFCLASS64 {
		return in64
	}
	return in32
}

// Word reads an address-sized field: 8 bytes at off64 of a structure of 64-bit files, 4 at
// off32 of one of 32-bit files.
func (f *File) Word(b []byte, off64, off32 int) uint64 {
	if f.Class == elf.ELFCLASS64 {
		return f.Order.Uint64(b[off64:])
	}
	return uint64(f.Order.Uint32(b[off32:]))
}

// Holds returns nil when the file is long enough for size bytes at an offset.
func (f *File) Holds(offset, size uint64) error {
	if offset > f.Size || size > f.Size-offset {
		return fmt.Errorf("%d bytes at offset %#x reach beyond the end of the file (%#x): %w",
			size, offset, f.Size, ErrBadELF)
	}
	return nil
}

// Read returns the size bytes at an offset of the file, in newly allocated memory. The error
// wraps [ErrBadELF] or the reader's error.
func (f *File) Read(offset, size uint64) ([]byte, error) {
	if err := f.Holds(offset, size); err != nil {
		return nil, err
	}
	if f.Size == sizeUnknown {
		return readRange(f.r, offset, size, 1<<20)
	}
	return readRange(f.r, offset, size, size)
}

// Contents does for a section what [Layout.ContentsWithin] does. Its name does not matter: see [Zdebug].
func (f *File) Contents(s *Section, allow func(size uint64) error) ([]byte, error) {
	l := Layout{Class: f.Class, Size: f.Size}
	return l.ContentsWithin(f.r, s.extent(nil), allow)
}

// readRange reads size bytes at offset. It allocates first bytes, and more only after these were
// read: if the size of the file is not known, a wrong number costs nothing.
func readRange(r io.ReaderAt, offset, size, first uint64) ([]byte, error) {
	if int64(offset) < 0 || int64(offset+size) < int64(offset) {
		return nil, fmt.Errorf("%d bytes at offset %#x: %w", size, offset, ErrBadELF)
	}
	buf := make([]byte, min(size, first))
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

// readTable reads the program headers or section headers.
func (f *File) readTable(t table, what string) ([]byte, error) {
	b, err := f.Read(t.offset, uint64(t.entry)*uint64(t.count))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return b, nil
}

// readSegments reads the program headers.
func (f *File) readSegments() error {
	t := f.segmentTable
	switch {
	case t.offset == 0 || t.count == 0:
		return nil
	case t.entry != f.Pick(56, 32):
		return badELF(fmt.Sprintf("program headers of %d bytes each", t.entry), uint64(f.Pick(54, 42)))
	case t.count > maxSegments:
		return badELF("too many program headers", uint64(f.Pick(56, 44)))
	}
	b, err := f.readTable(t, "program headers")
	if err != nil {
		return err
	}
	f.Segments = make([]Segment, 0, t.count)
	for ; len(b) > 0; b = b[t.entry:] {
		f.Segments = append(f.Segments, Segment{
			Type: elf.ProgType(f.Order.Uint32(b)),
			Load: Load{
				Offset: f.Word(b, 8, 4), Vaddr: f.Word(b, 16, 8),
				Filesz: f.Word(b, 32, 16), Memsz: f.Word(b, 40, 20),
				Flags: elf.ProgFlag(f.Order.Uint32(b[f.Pick(4, 24):])),
			},
			Align: f.Word(b, 48, 28),
		})
	}
	return nil
}

// readSections reads the section headers.
func (f *File) readSections() error {
	t := f.sectionTable
	switch {
	case t.offset == 0:
		return nil
	case t.entry != f.Pick(64, 40):
		return badELF(fmt.Sprintf("section headers of %d bytes each", t.entry), uint64(f.Pick(58, 46)))
	}
	if t.count == 0 || f.namesIndex == int(elf.SHN_XINDEX) {
		// Numbers that do not fit are in the first section header (gABI, e_shnum).
		b, err := f.readTable(table{t.offset, t.entry, 1}, "section headers")
		if err != nil {
			return err
		}
		first := f.section(b)
		if t.count == 0 {
			t.count = int(min(first.Size, maxSections+1))
		}
		if f.namesIndex == int(elf.SHN_XINDEX) {
			f.namesIndex = int(first.Link)
		}
	}
	if t.count > maxSections {
		return badELF("too many section headers", uint64(f.Pick(60, 48)))
	}
	b, err := f.readTable(t, "section headers")
	if err != nil {
		return err
	}
	f.Sections = make([]Section, 0, t.count)
	for ; len(b) > 0; b = b[t.entry:] {
		f.Sections = append(f.Sections, f.section(b))
	}
	if f.namesIndex < len(f.Sections) {
		f.names = f.Sections[f.namesIndex]
	}
	return nil
}

// section decodes a section header.
func (f *File) section(b []byte) Section {
	return Section{
		Name:   f.Order.Uint32(b),
		Type:   elf.SectionType(f.Order.Uint32(b[4:])),
		Flags:  elf.SectionFlag(f.Word(b, 8, 8)),
		Addr:   f.Word(b, 16, 12),
		Offset: f.Word(b, 24, 16),
		Size:   f.Word(b, 32, 20),
		Link:   f.Order.Uint32(b[f.Pick(40, 24):]),
		Align:  f.Word(b, 48, 32),
	}
}

// Linked returns the section that s refers to by sh_link.
func (f *File) Linked(s *Section) (Section, bool) {
	if int64(s.Link) >= int64(len(f.Sections)) || s.Link == 0 {
		return Section{}, false
	}
	return f.Sections[s.Link], true
}

// HasNames reports whether sections have names.
func (f *File) HasNames() bool { return f.names.Size > 0 }

// Named reports whether the section is called name. It reads no more bytes than the name has.
func (f *File) Named(s *Section, name string) bool {
	if uint64(s.Name)+uint64(len(name))+1 > f.names.Size {
		return false
	}
	b, err := f.Read(f.names.Offset+uint64(s.Name), uint64(len(name)+1))
	return err == nil && string(b[:len(name)]) == name && b[len(name)] == 0
}

// Names reads the names of all sections, for callers that need many of them. If sections have no
// names, it returns an error.
func (f *File) Names() (SectionNames, error) {
	if len(f.Sections) > 0 && f.namesIndex >= len(f.Sections) {
		return nil, badELF("section names are in no section", 0)
	}
	b, err := f.Read(f.names.Offset, min(f.names.Size, maxNames))
	if err != nil {
		return nil, fmt.Errorf("section names: %w", err)
	}
	return b, nil
}

// SectionNames is a section header string table.
type SectionNames []byte

// Of returns the name of a section. It is empty if there is none, and if it is longer than any name
// that is looked for.
func (t SectionNames) Of(s *Section) []byte {
	const longest = 64
	if uint64(s.Name) >= uint64(len(t)) {
		return nil
	}
	name := t[s.Name:]
	n := bytes.IndexByte(name[:min(len(name), longest)], 0)
	return name[:max(n, 0)]
}
