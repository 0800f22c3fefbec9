package dwarfcfi

import (
	"debug/elf"
	"fmt"
	"io"
	"strings"
)

// ReadLayout reads the headers of an ELF file of size bytes. Files without section
// headers, or with bad ones, are described by their program headers alone; where these do
// not lead to .eh_frame, it is looked for. The error wraps [ErrBadELF] or the reader's.
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
	l := &Layout{Class: h.class, Type: h.typ, Machine: h.machine, Entry: h.entry}
	for _, s := range segments {
		if s.typ == elf.PT_LOAD {
			l.Loads = append(l.Loads, Load{s.offset, s.vaddr, s.filesz, s.memsz, s.flags})
		}
	}
	l.BuildID = buildID(r, segments, sections)
	for i := range sections {
		l.addSection(&sections[i])
	}
	for _, s := range segments {
		if s.typ == elf.PT_GNU_EH_FRAME && !l.split && (l.EhFrameHdr.Size == 0 || l.EhFrameHdr.Addr != s.vaddr || l.EhFrame.Size == 0) {
			l.addEhFrameHdr(r, &s)
		}
	}
	for _, e := range []*Extent{&l.EhFrame, &l.EhFrameHdr, &l.DebugFrame, &l.DebugLink, &l.Pclntab} {
		if e.Offset > uint64(size) || e.Size > uint64(size)-e.Offset {
			*e = Extent{}
		}
	}
	if l.EhFrame.Size == 0 && l.DebugFrame.Size == 0 && len(l.Text) == 0 && !l.split {
		l.EhFrame = l.scanEhFrame(r)
	}
	return l, nil
}

// addSection notes a section that matters. One that claims to be mapped where no segment
// is comes from a bad section header and is left to the program headers.
func (l *Layout) addSection(s *section) {
	if s.typ == elf.SHT_NOBITS && s.name == ".eh_frame" {
		l.split = true
	}
	if s.typ == elf.SHT_NOBITS || s.typ == elf.SHT_NULL || s.size == 0 {
		return
	}
	if s.flags&elf.SHF_ALLOC != 0 && len(l.Loads) > 0 {
		load := l.loadAt(s.addr)
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
		l.text = s.addr
	case ".got.plt":
		l.got = s.addr
	case ".got":
		if l.got == 0 {
			l.got = s.addr
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

// loadAt returns the segment whose file contents are mapped at addr.
func (l *Layout) loadAt(addr uint64) *Load {
	for i := range l.Loads {
		if s := &l.Loads[i]; addr-s.Vaddr < s.Filesz {
			return s
		}
	}
	return nil
}

// addEhFrameHdr finds .eh_frame_hdr and .eh_frame through PT_GNU_EH_FRAME: the header
// points to the start of .eh_frame, and the segment's end bounds it.
func (l *Layout) addEhFrameHdr(r io.ReaderAt, s *segment) {
	load := l.loadAt(s.vaddr)
	if load == nil {
		return
	}
	hdr := Extent{Addr: s.vaddr, Offset: s.vaddr - load.Vaddr + load.Offset}
	hdr.Size = min(s.filesz, load.Offset+load.Filesz-hdr.Offset)
	buf, err := readRange(r, hdr.Offset, min(hdr.Size, 16))
	if err != nil {
		return
	}
	c := cursor{data: buf}
	version, enc := c.u8(), c.u8()
	c.u16()
	b := bases{section: hdr.Addr, text: l.text, data: hdr.Addr, ptrSize: uint8(l.PtrSize())}
	addr := b.pointer(&c, enc)
	if c.bad || version != 1 {
		return
	}
	if load = l.loadAt(addr); load == nil {
		return
	}
	l.EhFrameHdr = hdr
	if l.EhFrame.Size == 0 || l.EhFrame.Addr != addr {
		skip := addr - load.Vaddr
		l.EhFrame = Extent{Addr: addr, Offset: load.Offset + skip, Size: load.Filesz - skip, Open: true}
	}
}

// maxSection is how large a section may be, also when decompressed.
const maxSection = 1 << 29

// Sections reads the CFI of the file that l describes into memory of its own. A part that
// cannot be read is left out if another one can. The error wraps [ErrBadELF] or the
// reader's; a file without CFI is no error.
func (l *Layout) Sections(r io.ReaderAt) (Sections, error) {
	return l.sections(func(e *Extent) ([]byte, error) { return readRange(r, e.Offset, e.Size) })
}

// SectionsIn is Sections for a file that is in memory. What is not compressed is not copied:
// it is read there as long as the sections are in use.
func (l *Layout) SectionsIn(file []byte) (Sections, error) {
	return l.sections(func(e *Extent) ([]byte, error) {
		if size := uint64(len(file)); e.Offset > size || e.Size > size-e.Offset {
			return nil, fmt.Errorf("%d bytes at offset %#x: %w", e.Size, e.Offset, ErrBadELF)
		}
		return file[e.Offset:][:e.Size:e.Size], nil
	})
}

func (l *Layout) sections(contents func(*Extent) ([]byte, error)) (Sections, error) {
	s := Sections{Text: l.text, Data: l.got, PtrSize: l.PtrSize()}
	var first error
	read := func(name string, e Extent) Section {
		if e.Size == 0 {
			return Section{}
		}
		data, err := e.read(contents, l.Class)
		if err != nil {
			if first == nil {
				first = fmt.Errorf("%s: %w", name, err)
			}
			return Section{}
		}
		return Section{Addr: e.Addr, Data: data, Open: e.Open}
	}
	s.EhFrame = read(".eh_frame", l.EhFrame)
	if s.EhFrame.Data != nil {
		s.EhFrameHdr = read(".eh_frame_hdr", l.EhFrameHdr)
	}
	s.DebugFrame = read(".debug_frame", l.DebugFrame)
	if s.EhFrame.Data == nil && s.DebugFrame.Data == nil {
		return s, first
	}
	return s, nil
}

// FindSections finds the CFI sections of an ELF file of size bytes and reads them into
// memory of its own: [ReadLayout] and [Layout.Sections] in one.
func FindSections(r io.ReaderAt, size int64) (Sections, error) {
	l, err := ReadLayout(r, size)
	if err != nil {
		return Sections{}, err
	}
	return l.Sections(r)
}

func (e *Extent) read(contents func(*Extent) ([]byte, error), class elf.Class) ([]byte, error) {
	if e.Size > maxSection {
		return nil, fmt.Errorf("%d bytes are too many: %w", e.Size, ErrBadELF)
	}
	data, err := contents(e)
	if err == nil && e.Compressed {
		data, err = decompress(data, class)
	}
	return data, err
}
