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
	// Symbols are .symtab and .dynsym. Of a file that was cut short they may reach beyond
	// its end.
	Symbols []Extent

	TextAddr, GOTAddr uint64 // of .text, and of .got.plt or .got
	// Split says that it is a separate debug file: it says where .eh_frame was, without
	// its bytes.
	Split bool
}

// Range is a named section in the image; End is exclusive.
type Range struct {
	Name       string
	Start, End uint64
}

// Extent is where the file holds the bytes of a section.
type Extent struct {
	Addr       uint64 // virtual address; 0 for a section that is not mapped
	Offset     uint64 // in the file
	Size       uint64 // in the file, in bytes
	Compressed bool   // SHF_COMPRESSED
}

// PtrSize is the size of an address in bytes: 4 or 8.
func (l *Layout) PtrSize() int {
	if l.Class == elf.ELFCLASS32 {
		return 4
	}
	return 8
}

// ReadLayout reads the headers of a little-endian ELF file of size bytes. Files without
// section headers, or with bad ones, are described by their program headers alone. The error
// wraps [ErrBadELF] or the reader's.
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

// namedSections reads the section headers and their names, without which a Layout has no use
// for them.
func (f *File) namedSections() (SectionNames, error) {
	if err := f.readSections(); err != nil {
		return nil, err
	}
	return f.Names()
}

// addSection notes a section that matters. One that claims to be mapped where no segment
// is comes from a bad section header and is left to the program headers.
func (l *Layout) addSection(s *Section, name []byte) {
	if s.Type == elf.SHT_NOBITS && string(name) == ".eh_frame" {
		l.Split = true
	}
	if s.Type == elf.SHT_NOBITS || s.Type == elf.SHT_NULL || s.Size == 0 {
		return
	}
	if s.Flags&elf.SHF_ALLOC != 0 && len(l.Loads) > 0 {
		load := l.Loads.At(s.Addr)
		if load == nil || s.Addr-load.Vaddr+load.Offset != s.Offset {
			return
		}
	}
	e := Extent{Addr: s.Addr, Offset: s.Offset, Size: s.Size, Compressed: s.Flags&elf.SHF_COMPRESSED != 0}
	switch string(name) {
	case ".eh_frame":
		l.EhFrame = e
	case ".eh_frame_hdr":
		l.EhFrameHdr = e
	case ".debug_frame":
		l.DebugFrame = e
	case ".gnu_debuglink":
		l.DebugLink = e
	case ".gopclntab", ".data.rel.ro.gopclntab":
		l.Pclntab = e
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

// Holds says whether all of e lies in the file.
func (l *Layout) Holds(e Extent) bool { return e.Offset <= l.Size && e.Size <= l.Size-e.Offset }

// maxContents is how large a section may be, also when decompressed.
const maxContents = 1 << 29

// Contents reads a section of the file that l describes into memory of its own,
// decompressed. The error wraps [ErrBadELF] or the reader's.
func (l *Layout) Contents(r io.ReaderAt, e Extent) ([]byte, error) {
	if err := e.check(l.Size); err != nil {
		return nil, err
	}
	data, err := readRange(r, e.Offset, e.Size, e.Size)
	if err != nil {
		return nil, err
	}
	return l.inflated(data, e)
}

// ContentsIn is Contents for a file that is in memory. What is not compressed is not copied:
// it is read there as long as the section is in use.
func (l *Layout) ContentsIn(file []byte, e Extent) ([]byte, error) {
	if err := e.check(uint64(len(file))); err != nil {
		return nil, err
	}
	return l.inflated(file[e.Offset:][:e.Size:e.Size], e)
}

// check says what is wrong with a section of a file of size bytes.
func (e *Extent) check(size uint64) error {
	switch {
	case e.Size > maxContents:
		return fmt.Errorf("%d bytes are too many: %w", e.Size, ErrBadELF)
	case e.Offset > size || e.Size > size-e.Offset:
		return fmt.Errorf("%d bytes at offset %#x: %w", e.Size, e.Offset, ErrBadELF)
	}
	return nil
}

func (l *Layout) inflated(data []byte, e Extent) ([]byte, error) {
	if e.Compressed {
		return decompress(data, l.Class)
	}
	return data, nil
}
