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
	Loads   []Load // PT_LOAD, in the order of the file

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

	TextAddr, GOTAddr uint64 // of .text, and of .got.plt or .got
	// Split says that it is a separate debug file: it says where .eh_frame was, without
	// its bytes.
	Split bool
}

// Load is a segment, a PT_LOAD unless it is said otherwise.
type Load struct {
	Offset, Vaddr, Filesz, Memsz uint64
	Flags                        elf.ProgFlag
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

// ReadLayout reads the headers of an ELF file of size bytes. Files without section
// headers, or with bad ones, are described by their program headers alone. The error wraps
// [ErrBadELF] or the reader's.
func ReadLayout(r io.ReaderAt, size int64) (*Layout, error) {
	h, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	segments, err := h.segments(r)
	if err != nil {
		return nil, err
	}
	sections, err := h.sections(r)
	if err != nil {
		sections = nil
	}
	l := &Layout{Class: h.class, Type: h.typ, Machine: h.machine, Entry: h.entry, Size: uint64(max(size, 0))}
	for _, s := range segments {
		load := Load{s.offset, s.vaddr, s.filesz, s.memsz, s.flags}
		switch s.typ {
		case elf.PT_LOAD:
			l.Loads = append(l.Loads, load)
		case elf.PT_GNU_EH_FRAME:
			l.EhFrameHdrSegment = load
		}
	}
	l.BuildID = buildID(r, segments, sections)
	for i := range sections {
		l.addSection(&sections[i])
	}
	for _, e := range []*Extent{&l.EhFrame, &l.EhFrameHdr, &l.DebugFrame, &l.DebugLink, &l.Pclntab} {
		if !l.Holds(*e) {
			*e = Extent{}
		}
	}
	return l, nil
}

// addSection notes a section that matters. One that claims to be mapped where no segment
// is comes from a bad section header and is left to the program headers.
func (l *Layout) addSection(s *section) {
	if s.typ == elf.SHT_NOBITS && s.name == ".eh_frame" {
		l.Split = true
	}
	if s.typ == elf.SHT_NOBITS || s.typ == elf.SHT_NULL || s.size == 0 {
		return
	}
	if s.flags&elf.SHF_ALLOC != 0 && len(l.Loads) > 0 {
		load := l.LoadAt(s.addr)
		if load == nil || s.addr-load.Vaddr+load.Offset != s.offset {
			return
		}
	}
	e := Extent{Addr: s.addr, Offset: s.offset, Size: s.size, Compressed: s.flags&elf.SHF_COMPRESSED != 0}
	switch s.name {
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
		l.TextAddr = s.addr
	case ".got.plt":
		l.GOTAddr = s.addr
	case ".got":
		if l.GOTAddr == 0 {
			l.GOTAddr = s.addr
		}
	}
	if s.flags&elf.SHF_ALLOC != 0 && s.flags&elf.SHF_EXECINSTR != 0 && s.addr+s.size > s.addr {
		code := Range{s.name, s.addr, s.addr + s.size}
		l.Text = append(l.Text, code)
		if strings.HasPrefix(s.name, ".plt") || s.name == ".iplt" {
			l.PLT = append(l.PLT, code)
		}
	}
}

// LoadAt returns the segment whose file contents are mapped at addr.
func (l *Layout) LoadAt(addr uint64) *Load {
	for i := range l.Loads {
		if s := &l.Loads[i]; addr-s.Vaddr < s.Filesz {
			return s
		}
	}
	return nil
}

// Holds says whether all of e lies in the file.
func (l *Layout) Holds(e Extent) bool { return e.Offset <= l.Size && e.Size <= l.Size-e.Offset }

// maxContents is how large a section may be, also when decompressed.
const maxContents = 1 << 29

// Contents reads a section of the file that l describes into memory of its own,
// decompressed. The error wraps [ErrBadELF] or the reader's.
func (l *Layout) Contents(r io.ReaderAt, e Extent) ([]byte, error) {
	if e.Size > maxContents {
		return nil, tooLarge(e)
	}
	data, err := readRange(r, e.Offset, e.Size)
	return l.inflated(data, e, err)
}

// ContentsIn is Contents for a file that is in memory. What is not compressed is not copied:
// it is read there as long as the section is in use.
func (l *Layout) ContentsIn(file []byte, e Extent) ([]byte, error) {
	if e.Size > maxContents {
		return nil, tooLarge(e)
	}
	if size := uint64(len(file)); e.Offset > size || e.Size > size-e.Offset {
		return nil, fmt.Errorf("%d bytes at offset %#x: %w", e.Size, e.Offset, ErrBadELF)
	}
	return l.inflated(file[e.Offset:][:e.Size:e.Size], e, nil)
}

func (l *Layout) inflated(data []byte, e Extent, err error) ([]byte, error) {
	if err == nil && e.Compressed {
		return decompress(data, l.Class)
	}
	return data, err
}

func tooLarge(e Extent) error { return fmt.Errorf("%d bytes are too many: %w", e.Size, ErrBadELF) }
