package dwarfcfi

import (
	"bytes"
	"fmt"
	"io"

	"unspool/dwarfcfi/elf"
)

// FindSections finds the CFI sections of an ELF file of size bytes and reads them into
// memory of its own: [elf.ReadLayout] and [ReadSections] in one.
func FindSections(r io.ReaderAt, size int64) (Sections, error) {
	l, err := elf.ReadLayout(r, size)
	if err != nil {
		return Sections{}, err
	}
	return ReadSections(r, l)
}

// ReadSections reads the CFI of the file that l describes into memory of its own. What
// section headers do not lead to is found by the program headers, or else looked for. A part
// that cannot be read is left out if another one can. The error wraps [elf.ErrBadELF] or the
// reader's; a file without CFI is no error.
func ReadSections(r io.ReaderAt, l *elf.Layout) (Sections, error) {
	return readSections(l, locate(r, l), func(e elf.Extent) ([]byte, error) { return l.Contents(r, e) })
}

// SectionsIn is ReadSections for a file that is in memory. What is not compressed is not
// copied: it is read there as long as the sections are in use.
func SectionsIn(file []byte, l *elf.Layout) (Sections, error) {
	return readSections(l, locate(bytes.NewReader(file), l), func(e elf.Extent) ([]byte, error) { return l.ContentsIn(file, e) })
}

// ReadDebugFrame is ReadSections for .debug_frame alone.
func ReadDebugFrame(r io.ReaderAt, l *elf.Layout) (Sections, error) {
	return readSections(l, place{}, func(e elf.Extent) ([]byte, error) { return l.Contents(r, e) })
}

// place is where a file holds its .eh_frame.
type place struct {
	frame, hdr elf.Extent
	open       bool // the end is not known; see Section.Open
}

func readSections(l *elf.Layout, eh place, contents func(elf.Extent) ([]byte, error)) (Sections, error) {
	s := Sections{Text: l.TextAddr, Data: l.GOTAddr, PtrSize: l.PtrSize()}
	var first error
	read := func(name string, e elf.Extent) Section {
		if e.Size == 0 {
			return Section{}
		}
		data, err := contents(e)
		if err != nil {
			if first == nil {
				first = fmt.Errorf("%s: %w", name, err)
			}
			return Section{}
		}
		return Section{Addr: e.Addr, Data: data}
	}
	s.EhFrame = read(".eh_frame", eh.frame)
	if s.EhFrame.Data != nil {
		s.EhFrame.Open = eh.open
		s.EhFrameHdr = read(".eh_frame_hdr", eh.hdr)
	}
	s.DebugFrame = read(".debug_frame", l.DebugFrame)
	if s.EhFrame.Data == nil && s.DebugFrame.Data == nil {
		return s, first
	}
	return s, nil
}

// locate says where .eh_frame is: by the section headers, by the program headers where these
// say something else, or where its entries are.
func locate(r io.ReaderAt, l *elf.Layout) place {
	p := place{frame: l.EhFrame, hdr: l.EhFrameHdr}
	if l.Split {
		return p
	}
	if s := &l.EhFrameHdrSegment; p.hdr.Size == 0 || p.hdr.Addr != s.Vaddr || p.frame.Size == 0 {
		p.follow(r, l)
	}
	for _, e := range []*elf.Extent{&p.frame, &p.hdr} {
		if !l.Holds(*e) {
			*e = elf.Extent{}
		}
	}
	if p.frame.Size == 0 && l.DebugFrame.Size == 0 && len(l.Text) == 0 {
		p.frame = scanEhFrame(r, l)
	}
	return p
}

// follow finds .eh_frame_hdr and .eh_frame through PT_GNU_EH_FRAME: the header points to the
// start of .eh_frame, and the segment's end bounds it.
func (p *place) follow(r io.ReaderAt, l *elf.Layout) {
	s := &l.EhFrameHdrSegment
	load := l.LoadAt(s.Vaddr)
	if load == nil {
		return
	}
	hdr := elf.Extent{Addr: s.Vaddr, Offset: s.Vaddr - load.Vaddr + load.Offset}
	hdr.Size = min(s.Filesz, load.Offset+load.Filesz-hdr.Offset)
	buf, err := l.Contents(r, elf.Extent{Offset: hdr.Offset, Size: min(hdr.Size, 16)})
	if err != nil {
		return
	}
	c := elf.Cursor{Data: buf}
	version, enc := c.U8(), c.U8()
	c.U16()
	b := bases{section: hdr.Addr, text: l.TextAddr, data: hdr.Addr, ptrSize: uint8(l.PtrSize())}
	addr := b.pointer(&c, enc)
	if c.Bad || version != 1 {
		return
	}
	if load = l.LoadAt(addr); load == nil {
		return
	}
	p.hdr = hdr
	if p.frame.Size == 0 || p.frame.Addr != addr {
		skip := addr - load.Vaddr
		p.frame = elf.Extent{Addr: addr, Offset: load.Offset + skip, Size: load.Filesz - skip}
		p.open = true
	}
}
