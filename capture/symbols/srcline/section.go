package srcline

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"unspool/dwarfcfi/elf"
)

const (
	// A compressed section may hold maxSmall bytes, and maxRatio more for each compressed byte. Debugging
	// information shrinks to about a tenth; a section that shrinks much more was made to fill the memory.
	maxSmall = 64 << 20
	maxRatio = 32
	// maxInflated bounds what the compressed sections of a file hold together, in memory; so does
	// maxRatioOfAll, for each byte that the file has on a disk: sections may lie across one another.
	maxInflated   = 2 << 30
	maxRatioOfAll = 12
	// pageSize is how much is read around a byte that is not at hand.
	pageSize = 8 << 10
)

// mostInflated is what the compressed sections of a file may hold together.
func (f *File) mostInflated() uint64 {
	stored := uint64(max(f.Size, 0))
	if f.Stored > 0 {
		stored = min(stored, uint64(f.Stored))
	}
	return min(maxInflated, maxSmall+maxRatioOfAll*stored)
}

// section is the contents of a section, read in pieces or, where the file has it compressed, as a whole at
// first use. The zero section is empty.
type section struct {
	file string
	name string
	r    io.ReaderAt
	off  int64  // in the file
	size uint64 // in the file; after inflating it, the size of the contents

	packed elf.Packing
	class  elf.Class // says how a SHF_COMPRESSED section's header looks
	left   *uint64   // of maxInflated, for all sections of the file

	data []byte // the whole, once inflated
	kept window // the unit that is being read
	page window // the bytes that were read last
}

// window is some bytes of a section.
type window struct {
	off  uint64
	data []byte
}

func (w *window) get(off, n uint64) ([]byte, bool) {
	if off < w.off || off-w.off > uint64(len(w.data)) || n > uint64(len(w.data))-(off-w.off) {
		return nil, false
	}
	return w.data[off-w.off:][:n], true
}

func (s *section) bad(off uint64, what string) error {
	return &Error{s.file, s.name, off, what, ErrBadDWARF}
}

func (s *section) unsupported(off uint64, what string) error {
	return &Error{s.file, s.name, off, what, ErrUnsupported}
}

// open makes the size known and, where the section is compressed, the contents.
func (s *section) open() error {
	if s.packed == elf.Plain {
		return nil
	}
	data, err := inflate(io.NewSectionReader(s.r, s.off, int64(s.size)), s.packed, s.class, *s.left)
	if err != nil {
		return &Error{s.file, s.name, 0, "compressed section", err}
	}
	*s.left -= uint64(len(data))
	s.data, s.size, s.packed = data, uint64(len(data)), elf.Plain
	return nil
}

func (s *section) read(b []byte, off uint64) error {
	if n, err := s.r.ReadAt(b, s.off+int64(off)); n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return &Error{s.file, s.name, off, fmt.Sprintf("reading %d bytes", len(b)), err}
	}
	return nil
}

// view returns the bytes at off: most of them, or all that there are, but at least least. They are valid
// until the next call.
func (s *section) view(off, least, most uint64) ([]byte, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	if off > s.size || least > s.size-off {
		return nil, s.bad(off, fmt.Sprintf("%d bytes reach beyond the end (%#x)", least, s.size))
	}
	if most > s.size-off {
		most = s.size - off
	}
	if s.data != nil {
		return s.data[off:][:most], nil
	}
	if b, ok := s.kept.get(off, most); ok {
		return b, nil
	}
	if b, ok := s.page.get(off, most); ok {
		return b, nil
	}
	n := most
	if n < pageSize {
		n = pageSize
	}
	if n > s.size-off {
		n = s.size - off
	}
	if err := s.page.fill(s, off, n); err != nil {
		return nil, err
	}
	return s.page.data[:most], nil
}

func (w *window) fill(s *section, off, n uint64) error {
	if uint64(cap(w.data)) < n {
		w.data = make([]byte, n)
	}
	w.off, w.data = off, w.data[:n]
	if err := s.read(w.data, off); err != nil {
		w.data = w.data[:0]
		return err
	}
	return nil
}

// at returns the n bytes at off, valid until the next call.
func (s *section) at(off, n uint64) ([]byte, error) { return s.view(off, n, n) }

// keep returns the n bytes at off, valid until the next keep.
func (s *section) keep(off, n uint64) ([]byte, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	if off > s.size || n > s.size-off {
		return nil, s.bad(off, fmt.Sprintf("%d bytes reach beyond the end (%#x)", n, s.size))
	}
	if s.data != nil {
		return s.data[off:][:n], nil
	}
	if b, ok := s.kept.get(off, n); ok {
		return b, nil
	}
	if cap(s.kept.data) > 4<<20 && n < uint64(cap(s.kept.data))/4 {
		s.kept.data = nil // it was for a unit that was much larger than most
	}
	if err := s.kept.fill(s, off, n); err != nil {
		return nil, err
	}
	return s.kept.data, nil
}

// uint reads an unsigned value of size bytes at off.
func (s *section) uint(off uint64, size uint8) (uint64, error) {
	b, err := s.at(off, uint64(size))
	if err != nil {
		return 0, err
	}
	c := elf.Cursor{Data: b}
	return c.Uint(size), nil
}

// maxString bounds a name; the longest of real C++ and Rust programs are a few times 10 KiB.
const maxString = 64 << 10

// string reads the NUL-terminated string at off.
func (s *section) string(off uint64) (string, error) {
	for n := uint64(256); ; n *= 4 {
		b, err := s.view(off, 1, n)
		if err != nil {
			return "", err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(b[:i]), nil
		}
		if uint64(len(b)) < n {
			return "", s.bad(off, "string without an end")
		}
		if n >= maxString {
			return string(b[:maxString]), nil
		}
	}
}

// part returns n bytes of the section from off on as a section of its own.
func (s *section) part(off, n uint64) (section, error) {
	if err := s.open(); err != nil {
		return section{}, err
	}
	if off > s.size || n > s.size-off {
		return section{}, s.bad(off, fmt.Sprintf("%d bytes reach beyond the end (%#x)", n, s.size))
	}
	p := section{file: s.file, name: s.name, r: s.r, off: s.off + int64(off), size: n}
	if s.data != nil {
		p.data = s.data[off:][:n:n]
	}
	return p, nil
}

// inflate decompresses a section that holds at most most bytes. Nothing is allocated only because a header
// says so.
func inflate(raw *io.SectionReader, p elf.Packing, class elf.Class, most uint64) ([]byte, error) {
	header := make([]byte, min(elf.MaxHeader, raw.Size()))
	if _, err := io.ReadFull(raw, header); err != nil {
		return nil, fmt.Errorf("compression header: %w: %w", err, ErrBadELF)
	}
	typ, size, length, err := p.Header(header, class)
	if err != nil {
		return nil, err
	}
	if _, err := raw.Seek(int64(length), io.SeekStart); err != nil {
		return nil, err
	}
	if size > most || size > maxSmall+maxRatio*uint64(raw.Size()) {
		return nil, fmt.Errorf("%d bytes out of %d: %w", size, raw.Size(), ErrBadELF)
	}
	if typ != elf.COMPRESS_ZLIB && typ != elf.COMPRESS_ZSTD {
		return nil, fmt.Errorf("%v: %w", typ, ErrUnsupported)
	}
	// Debugging information usually has at most eight times its compressed size; beyond that, the buffer
	// grows with the contents.
	buf := make([]byte, 0, min(size, 8*uint64(raw.Size()))+bytes.MinRead)
	limits := elf.Limits{Size: most, Window: 128 << 20}
	return elf.Inflate(bufio.NewReaderSize(raw, 64<<10), typ, size, buf, limits)
}
