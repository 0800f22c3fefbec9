package elf

import (
	"debug/elf"
	"fmt"
	"io"
	"strings"
)

// Layout is what the headers of an ELF file say about its image: where it is loaded, and
// which parts of the file matter to an unwinder. Addresses are virtual addresses before
// any load bias.
type Layout struct {
	Class   elf.Class
	Type    elf.Type
	Machine elf.Machine
	Entry   uint64
	Size    uint64 // of the file, in bytes
	Loads   Loads  // PT_LOAD

	BuildID []byte  // nil when there is none
	Text    []Range // sections with code
	PLT     []Range // of these: .plt, .plt.sec, .plt.got, .iplt

	// Where the section headers say that the file holds the CFI; zero for what it lacks.
	EhFrame, EhFrameHdr, DebugFrame Extent
	// EhFrameHdrSegment is PT_GNU_EH_FRAME, which is there without section headers, too.
	EhFrameHdrSegment Load
	// DebugLink is .gnu_debuglink, which names a separate debug file.
	DebugLink Extent
	// Pclntab is .gopclntab, the function table of a Go binary.
	Pclntab Extent
	// Symbols are .symtab and .dynsym. In a file that was cut short they may reach beyond
	// its end.
	Symbols []Extent

	// PLTRelocations is .rela.plt, whose symbols are in DynSym, and their names in DynStr.
	PLTRelocations, DynSym, DynStr Extent

	TextAddr, GOTAddr uint64 // of .text, and of .got.plt or .got
	// Split means that this is a separate debug file: its headers say where .eh_frame was, but
	// it does not hold the bytes.
	Split bool
}

// Range is a named section in the image; End is exclusive.
type Range struct {
	Name       string
	Start, End uint64
}

// Extent is where the file holds the bytes of a section.
type Extent struct {
	Addr   uint64 // virtual address; 0 for a section that is not mapped
	Offset uint64 // in the file
	Size   uint64 // in the file, in bytes
	Packed Packing
}

func (s *Section) extent(name []byte) Extent {
	return Extent{Addr: s.Addr, Offset: s.Offset, Size: s.Size, Packed: s.Packing(name)}
}

// PtrSize is the size of an address in bytes: 4 or 8.
func (l *Layout) PtrSize() int {
	if l.Class == elf.ELFCLASS32 {
		return 4
	}
	return 8
}

// ReadLayout reads the headers of a little-endian ELF file of size bytes. Files without section
// headers, or with bad ones, are described by their program headers alone. The error wraps
// [ErrBadELF] or the reader's error.
func ReadLayout(r io.ReaderAt, size int64) (*Layout, error) {
	f, err := readHeader(r, uint64(max(size, 0)))
	if err != nil {
		return nil, err
	}
	if err := f.littleEndian(); err != nil {
		return nil, err
	}
	if err := f.readSegments(); err != nil {
		return nil, err
	}
	names, err := f.namedSections()
	if err != nil {
		f.Sections = nil
	}
	l := &Layout{
		Class: f.Class, Type: f.Type, Machine: f.Machine, Entry: f.Entry,
		Size: f.Size, Loads: f.Loads(), BuildID: f.BuildID(),
	}
	for i := range f.Segments {
		if s := &f.Segments[i]; s.Type == elf.PT_GNU_EH_FRAME {
			l.EhFrameHdrSegment = s.Load
		}
	}
	for i := range f.Sections {
		s := &f.Sections[i]
		l.addSection(s, names.Of(s))
	}
	for _, e := range []*Extent{&l.EhFrame, &l.EhFrameHdr, &l.DebugFrame, &l.DebugLink, &l.Pclntab} {
		if !l.Holds(*e) {
			*e = Extent{}
		}
	}
	return l, nil
}

// namedSections reads the section headers and their names. A Layout cannot use sections without
// names.
func (f *File) namedSections() (SectionNames, error) {
	if err := f.readSections(); err != nil {
		return nil, err
	}
	return f.Names()
}

// addSection notes a section that matters. A section header that claims an address where no
// segment is mapped is bad: that section is left out, and the program headers may lead to it. The files that
// perf inject makes of generated code have a segment for the code only.
func (l *Layout) addSection(s *Section, name []byte) {
	if s.Type == elf.SHT_NOBITS && string(name) == ".eh_frame" {
		l.Split = true
	}
	if s.Type == elf.SHT_NOBITS || s.Type == elf.SHT_NULL || s.Size == 0 {
		return
	}
	if s.Flags&elf.SHF_ALLOC != 0 && len(l.Loads) > 0 {
		load := l.Loads.At(s.Addr)
		if load == nil && len(l.Loads) == 1 {
			load = &l.Loads[0]
		}
		if load == nil || s.Addr-load.Vaddr+load.Offset != s.Offset {
			return
		}
	}
	e := s.extent(name)
	switch string(name) {
	case ".eh_frame":
		l.EhFrame = e
	case ".eh_frame_hdr":
		l.EhFrameHdr = e
	case ".debug_frame", ".zdebug_frame":
		l.DebugFrame = e
	case ".gnu_debuglink":
		l.DebugLink = e
	case ".gopclntab", ".data.rel.ro.gopclntab":
		l.Pclntab = e
	case ".rela.plt":
		l.PLTRelocations = e
	case ".dynsym":
		l.DynSym = e
	case ".dynstr":
		l.DynStr = e
	case ".text":
		l.TextAddr = s.Addr
	case ".got.plt":
		l.GOTAddr = s.Addr
	case ".got":
		if l.GOTAddr == 0 {
			l.GOTAddr = s.Addr
		}
	}
	if s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM {
		l.Symbols = append(l.Symbols, e)
	}
	if s.Flags&elf.SHF_ALLOC != 0 && s.Flags&elf.SHF_EXECINSTR != 0 && s.Addr+s.Size > s.Addr {
		code := Range{string(name), s.Addr, s.Addr + s.Size}
		l.Text = append(l.Text, code)
		if strings.HasPrefix(code.Name, ".plt") || code.Name == ".iplt" {
			l.PLT = append(l.PLT, code)
		}
	}
}

// Holds reports whether all of e lies in the file.
func (l *Layout) Holds(e Extent) bool { return e.Offset <= l.Size && e.Size <= l.Size-e.Offset }

// maxContents is how large a section may be, also when decompressed.
const maxContents = 1 << 29

// Contents reads a section of the file that l describes into newly allocated memory, and
// decompresses it. The error wraps [ErrBadELF] or the reader's error.
func (l *Layout) Contents(r io.ReaderAt, e Extent) ([]byte, error) {
	return l.ContentsWithin(r, e, func(uint64) error { return nil })
}

// ContentsWithin does what Contents does, within the caller's bound: allow is called with a number
// of bytes before these are read or inflated. Its error is returned as it is.
func (l *Layout) ContentsWithin(r io.ReaderAt, e Extent, allow func(size uint64) error) ([]byte, error) {
	switch {
	case e.Size > maxContents:
		return nil, fmt.Errorf("section of %d bytes is too large: %w", e.Size, ErrBadELF)
	case !l.Holds(e):
		return nil, fmt.Errorf("%d bytes at offset %#x: %w", e.Size, e.Offset, ErrBadELF)
	}
	if err := allow(e.Size); err != nil {
		return nil, err
	}
	data, err := readRange(r, e.Offset, e.Size, e.Size)
	if err != nil || e.Packed == Plain {
		return data, err
	}
	return decompress(data, e.Packed, l.Class, allow)
}
