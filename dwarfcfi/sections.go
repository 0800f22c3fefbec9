package dwarfcfi

import (
	"fmt"
	"io"

	"unspool/dwarfcfi/elf"
)

// FindSections finds the CFI sections of an ELF file of size bytes and reads them into
// newly allocated memory: it does what [elf.ReadLayout] and [ReadSections] do.
func FindSections(r io.ReaderAt, size int64) (Sections, error) {
	l, err := elf.ReadLayout(r, size)
	if err != nil {
		return Sections{}, err
	}
	return ReadSections(r, l)
}

// ReadSections reads the CFI of the file that l describes into newly allocated memory. Sections
// that the section headers do not name are found by the program headers, or by a search for
// .eh_frame. A section that cannot be read is left out if another one can be read. The error wraps
// [elf.ErrBadELF] or the reader's error; a file without CFI is not an error.
func ReadSections(r io.ReaderAt, l *elf.Layout) (Sections, error) {
	return ReadSectionsBy(r, l, func(e elf.Extent, _ bool) (Section, error) {
		data, err := l.Contents(r, e)
		return Section{Data: data}, err
	})
}

// ReadSectionsBy does what ReadSections does, with the caller's function to bring a part of the
// file into memory. If load returns an error, that part counts as one that cannot be read.
func ReadSectionsBy(r io.ReaderAt, l *elf.Layout, load Loader) (Sections, error) {
	return readSections(l, locate(r, l), load)
}

// A Loader brings a part of a file into memory. If whole is false, the bytes need not be there when it
// returns: see [Section]. Only Data and Fetch of the section that it returns are used.
type Loader func(e elf.Extent, whole bool) (Section, error)

// ReadDebugFrame does what ReadSections does, for .debug_frame alone. allow is called with the
// number of bytes before they are read, so that the caller can set a bound.
func ReadDebugFrame(r io.ReaderAt, l *elf.Layout, allow func(size uint64) error) (Sections, error) {
	return readSections(l, place{}, func(e elf.Extent, _ bool) (Section, error) {
		data, err := l.ContentsWithin(r, e, allow)
		return Section{Data: data}, err
	})
}

// place is where a file holds its .eh_frame.
type place struct {
	frame, hdr elf.Extent
	open       bool // the end is not known: see Section.Open
}

func readSections(l *elf.Layout, eh place, load Loader) (Sections, error) {
	s := Sections{Text: l.TextAddr, Data: l.GOTAddr, PtrSize: l.PtrSize()}
	var first error
	read := func(name string, e elf.Extent, whole bool) Section {
		if e.Size == 0 {
			return Section{}
		}
		section, err := load(e, whole)
		if err != nil {
			if first == nil {
				first = fmt.Errorf("%s: %w", name, err)
			}
			return Section{}
		}
		section.Addr = e.Addr
		return section
	}
	s.EhFrame = read(".eh_frame", eh.frame, false)
	if s.EhFrame.Data != nil {
		s.EhFrame.Open = eh.open
		s.EhFrameHdr = read(".eh_frame_hdr", eh.hdr, true)
	}
	s.DebugFrame = read(".debug_frame", l.DebugFrame, false)
	if s.EhFrame.Data == nil && s.DebugFrame.Data == nil {
		return s, first
	}
	return s, nil
}

// locate returns where .eh_frame is: by the section headers; by the program headers, if these say
// something else; or where a search finds its entries.
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
	load := l.Loads.At(s.Vaddr)
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
	if load = l.Loads.At(addr); load == nil {
		return
	}
	p.hdr = hdr
	if p.frame.Size == 0 || p.frame.Addr != addr {
		skip := addr - load.Vaddr
		p.frame = elf.Extent{Addr: addr, Offset: load.Offset + skip, Size: load.Filesz - skip}
		p.open = true
	}
}
