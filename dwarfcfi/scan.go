package dwarfcfi

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"

	"unspool/dwarfcfi/elf"
)

// An ehFrameScan looks for .eh_frame in an image whose headers do not say where it is: a static
// program has no PT_GNU_EH_FRAME, and its section headers may have been cut off.
//
// It looks for a run of entries that follow one another: first a CIE as compilers write it for
// this machine, then FDEs that name a CIE of the run and cover code, until a zero terminator or
// something else. Hardly any other data looks like that, so one FDE is enough.
type ehFrameScan struct {
	w       window
	ptrSize uint8
	ra      uint8
	code    []elf.Load // the executable segments

	// How much may still be read.
	bytes   uint64
	entries int
	cies    int
}

// Limits on what a scan may cost: about 150 ms of work.
const (
	maxScanned = 512 << 20 // bytes read
	maxEntries = 1 << 20   // entries looked at
	maxCIEs    = 1 << 14   // CIEs looked at; linkers merge equal ones
	maxEntry   = 1 << 16   // bytes of one entry
)

// scanEhFrame returns where .eh_frame is, or a zero Extent if none is found. If several runs
// look like .eh_frame, it takes the longest.
func scanEhFrame(r io.ReaderAt, l *elf.Layout) elf.Extent {
	s := ehFrameScan{ptrSize: uint8(l.PtrSize()), bytes: maxScanned, entries: maxEntries, cies: maxCIEs}
	switch l.Machine { // the psABI supplements' number of the return address column
	case elf.EM_X86_64:
		s.ra = 16
	case elf.EM_386:
		s.ra = 8
	default:
		return elf.Extent{}
	}
	for _, load := range l.Loads {
		if load.Flags&elf.PF_X != 0 {
			s.code = append(s.code, load)
		}
	}
	// .eh_frame lies in the segment of the constants, which is that of the code if the linker
	// makes one segment of both.
	for _, flags := range []elf.ProgFlag{elf.PF_R, elf.PF_R | elf.PF_X} {
		var best elf.Extent
		for _, load := range l.Loads {
			if load.Flags&(elf.PF_R|elf.PF_W|elf.PF_X) != flags || load.Vaddr%4 != load.Offset%4 {
				continue
			}
			s.w = window{r: r, base: load.Offset, addr: load.Vaddr, size: load.Filesz}
			if run := s.longestRun(); run.Size > best.Size {
				best = run
			}
		}
		if best.Size > 0 {
			return best
		}
	}
	return elf.Extent{}
}

// longestRun finds the longest run in the window's segment.
func (s *ehFrameScan) longestRun() (best elf.Extent) {
	for at := -s.w.addr & 3; s.entries > 0 && s.cies > 0; {
		at = s.nextCIE(at)
		if at >= s.w.size {
			return best
		}
		end, last, ok := s.run(at)
		if ok && end-at > best.Size {
			best = elf.Extent{Addr: s.w.addr + at, Offset: s.w.base + at, Size: end - at}
		}
		// The last entry of this run may be other data in which the real first entry lies.
		at = last + 4
	}
	return best
}

// cieStart is what follows the length of a CIE: a zero id, version 1 and an augmentation
// string.
var cieStart = []byte{0, 0, 0, 0, 1, 'z'}

// nextCIE returns the position of the next bytes, from at on, that look like the start of a CIE, or
// the segment's size if there are none. The address of at is a multiple of 4.
func (s *ehFrameScan) nextCIE(at uint64) uint64 {
	for at < s.w.size {
		data := s.w.from(at, 1<<12)
		if uint64(len(data)) > s.bytes {
			return s.w.size
		}
		searched := 0
		for {
			i := bytes.Index(data[searched:], cieStart)
			if i < 0 {
				break
			}
			searched += i + 1
			if i = searched - 1 - 4; i >= 0 && i%4 == 0 {
				s.bytes -= uint64(i)
				return at + uint64(i)
			}
		}
		// The end of this piece may be the start of a CIE: the next piece overlaps it.
		step := uint64(max(len(data)&^3-12, 0))
		if step == 0 {
			break
		}
		s.bytes -= step
		at += step
	}
	return s.w.size
}

// run follows the entries from at on. It returns where they end, where the last one starts,
// and whether they look like .eh_frame.
func (s *ehFrameScan) run(at uint64) (end, last uint64, ok bool) {
	encodings := make(map[uint64]uint8) // by position of a CIE: how its FDEs encode pointers
	var fdes, covering int
	end, last = at, at
	for s.entries > 0 {
		head := s.w.from(end, maxEntry)
		if len(head) < 8 {
			break
		}
		s.entries--
		length := uint64(binary.LittleEndian.Uint32(head))
		if length == 0 || length%4 != 0 || length > maxEntry-4 || length > uint64(len(head)-4) {
			break
		}
		entry := head[:4+length]
		addr := s.w.addr + end
		if back := uint64(binary.LittleEndian.Uint32(entry[4:])); back == 0 {
			if s.cies--; s.cies < 0 {
				break
			}
			enc, ok := s.cie(entry, addr)
			if !ok {
				break
			}
			encodings[end] = enc
		} else {
			enc, ok := encodings[end+4-back]
			if !ok {
				break
			}
			fdes++
			if s.covers(entry, addr, enc) {
				covering++
			}
		}
		last = end
		end += 4 + length
	}
	// Functions that the linker dropped may leave FDEs that cover no code.
	return end, last, covering > 0 && covering >= fdes/2
}

// cie reads a CIE and returns how the pointers of its FDEs are encoded. ok is false for bytes that
// are not a CIE as compilers write it.
func (s *ehFrameScan) cie(entry []byte, addr uint64) (enc uint8, ok bool) {
	f := frames{Section: Section{Addr: addr, Data: entry}, eh: true, ptrSize: s.ptrSize}
	cie, err := f.parseCIE(0)
	if err != nil || cie.Version != 1 || cie.CodeAlign != 1 || cie.RA != s.ra ||
		cie.DataAlign != -4 && cie.DataAlign != -8 || !cie.sized || strings.Trim(cie.Augmentation, "zPLRS") != "" {
		return 0, false
	}
	enc = cie.pointerEnc
	return enc, fixedSize(enc, s.ptrSize) > 0 && (enc&^peFormat == 0 || enc&^peFormat == pePCRel)
}

// covers reports whether the addresses that an FDE covers lie in an executable segment.
func (s *ehFrameScan) covers(entry []byte, addr uint64, enc uint8) bool {
	b := bases{section: addr, ptrSize: s.ptrSize}
	c := elf.Cursor{Data: entry, Pos: 8}
	start, size := b.pointer(&c, enc), b.length(&c, enc)
	if lsda := c.ULEB(); c.Bad || size == 0 || lsda > uint64(len(entry)-c.Pos) {
		return false
	}
	for _, l := range s.code {
		if off := start - l.Vaddr; off < l.Filesz && size <= l.Filesz-off {
			return true
		}
	}
	return false
}

// A window is the part of a segment that is in memory; further parts are read as they are needed.
type window struct {
	r                io.ReaderAt
	base, addr, size uint64 // of the segment: offset in the file, address, bytes in the file
	at               uint64 // where buf is in the segment
	buf              []byte
}

// windowSize is how much is read at once.
const windowSize = 1 << 20

// from returns the bytes of the segment from at on: at least n of them, unless the segment ends
// before that or cannot be read. They are valid until the next call.
func (w *window) from(at, n uint64) []byte {
	if at >= w.size {
		return nil
	}
	if n = min(n, w.size-at); at >= w.at && at-w.at+n <= uint64(len(w.buf)) {
		return w.buf[at-w.at:]
	}
	if w.buf == nil {
		w.buf = make([]byte, min(w.size, windowSize))
	}
	w.at, w.buf = at, w.buf[:min(uint64(cap(w.buf)), w.size-at)]
	if int64(w.base+at) < 0 || w.base+at < at {
		w.buf = w.buf[:0]
		return nil
	}
	got, _ := w.r.ReadAt(w.buf, int64(w.base+at))
	w.buf = w.buf[:got]
	return w.buf
}
