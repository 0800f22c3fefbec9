package gotab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"unspool/dwarfcfi/elf"
)

// A Table is the function table of a Go binary (.gopclntab), which stands
// in for the CFI that Go code lacks: its pcsp tables say for every PC how far
// SP has moved since the function was entered. The format is that of
// runtime/symtab.go and cmd/link/internal/ld/pcln.go.
//
// It is searched where it lies; what is looked at is what a PC needs.
type Table struct {
	functions
	pctab []byte // their tables of values by PC
	text  uint64 // address of the first function: runtime.text

	code *goCode
	asm  map[uint32]*asmFunc // what is known of the functions that were looked at, by index; nil for compiled ones
}

// ErrNone says that a file has no Go function table that can be used.
var ErrNone = errors.New("no Go function table")

// signature is what a table for x86-64 begins with: the magic number, two zeros, the size of the
// shortest instruction, the size of an address.
func (v version) signature() uint64 { return 0x08010000<<32 | uint64(v) }

// goFunc is a function's entry in the table (runtime._func).
type goFunc struct {
	name uint32 // from the name table
	pcsp uint32 // from pctab; 0 for none
	flag uint8
}

// Bits of goFunc.flag (abi.FuncFlag).
const (
	flagTopFrame = 1 << iota
	flagSPWrite
	flagAsm
)

// Read finds the function table of an ELF file of size bytes, in file where that is
// the file in memory, which stays in use then; else it reads what matters. The error is
// ErrNone for what is no Go binary, or says what is wrong with the table.
func Read(r io.ReaderAt, size int64, layout *elf.Layout, file []byte) (*Table, error) {
	if layout.Machine != elf.EM_X86_64 || layout.Class != elf.ELFCLASS64 {
		return nil, ErrNone
	}
	off, length, textSection := findTable(r, size, layout)
	if length == 0 {
		return nil, ErrNone
	}
	if length > maxPclntab || off > uint64(size) || length > uint64(size)-off {
		return nil, fmt.Errorf(".gopclntab: %d bytes at offset %#x are not in the file: %w", length, off, ErrNone)
	}
	var head [maxHeader]byte
	if _, err := r.ReadAt(head[:min(length, maxHeader)], int64(off)); err != nil {
		return nil, fmt.Errorf(".gopclntab: offset %#x: %w", off, err)
	}
	h, err := readHeader(head[:min(length, maxHeader)], length, binary.LittleEndian)
	switch {
	case err != nil:
	case h.shortest != 1 || h.word != 8:
		err = errors.New("it is another architecture's")
	case file != nil && int64(len(file)) != size:
		err = fmt.Errorf("the file has %d bytes in memory and %d on disk", len(file), size)
	}
	if err != nil {
		return nil, fmt.Errorf(".gopclntab: bad header at offset %#x: %w: %w", off, err, ErrNone)
	}
	// The names and the file table, a third of the table, stay unread.
	var data []byte
	if file != nil {
		data = file[off:][h.pctab:length]
	} else {
		data = make([]byte, length-h.pctab)
		if _, err := r.ReadAt(data, int64(off+h.pctab)); err != nil {
			return nil, fmt.Errorf(".gopclntab: offset %#x: %w", off+h.pctab, err)
		}
	}
	list, err := newFunctions(&h, binary.LittleEndian, data[h.funcs-h.pctab:])
	if err != nil {
		return nil, fmt.Errorf(".gopclntab: %w: %w", err, ErrNone)
	}
	t := &Table{
		functions: list, pctab: data[:h.funcs-h.pctab], text: list.base,
		code: &goCode{r: r, loads: layout.Loads, names: int64(off + h.names), namesEnd: int64(off + length)},
		asm:  make(map[uint32]*asmFunc),
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	for _, text := range []uint64{h.text, t.text, textSection} {
		if text != 0 && t.fits(text) {
			return t, nil
		}
	}
	// A C linker put other code before Go's, and the table does not say where
	// Go's begins.
	for i := range uint32(t.count) {
		f, ok := t.entry(i)
		if !ok || f.flag&flagAsm == 0 && t.version == go120 || t.code.name(f.name) != sigreturnName {
			continue
		}
		if t.code.find(sigreturnCode, func(at uint64) bool { return t.fits(at - t.start(i)) }) {
			return t, nil
		}
		break
	}
	return nil, fmt.Errorf(".gopclntab: cannot tell where the code begins: %w", ErrNone)
}

// findTable finds the table in the file, by its section or, where there are
// no sections, by its magic number. It also gives the address of .text.
func findTable(r io.ReaderAt, size int64, layout *elf.Layout) (off, length, text uint64) {
	for _, s := range layout.Text {
		if s.Name == ".text" {
			text = s.Start
		}
	}
	if e := &layout.Pclntab; len(layout.Text) > 0 {
		if e.Compressed {
			return 0, 0, 0
		}
		return e.Offset, e.Size, text
	}
	if !hasBuildInfo(r, layout) {
		return 0, 0, 0
	}
	for _, l := range layout.Loads {
		if l.Flags&elf.PF_X != 0 {
			if text == 0 {
				// The Go linker puts .text a page into the file.
				text = l.Vaddr + 0x1000
			}
			continue
		}
		end := l.Offset + min(l.Filesz, uint64(max(size, 0))-min(l.Offset, uint64(size)))
		for _, v := range []version{go120, go118, go116} {
			magic := binary.LittleEndian.AppendUint64(nil, v.signature())
			found := search(r, l.Offset, end, magic, func(at uint64) bool {
				off = at
				return at%8 == 0
			})
			if found {
				return off, end - off, text
			}
		}
	}
	return 0, 0, 0
}

// hasBuildInfo says whether a writable segment begins with what the Go linker
// puts there: the .go.buildinfo section (debug/buildinfo).
func hasBuildInfo(r io.ReaderAt, layout *elf.Layout) bool {
	for _, l := range layout.Loads {
		if l.Flags&elf.PF_W == 0 {
			continue
		}
		buf := make([]byte, min(l.Filesz, 1<<16))
		n, _ := r.ReadAt(buf, int64(l.Offset))
		if bytes.Contains(buf[:n], []byte("\xff Go buildinf:")) {
			return true
		}
	}
	return false
}

// search finds pattern in [from, to) of the file, where accept takes it.
func search(r io.ReaderAt, from, to uint64, pattern []byte, accept func(at uint64) bool) bool {
	buf := make([]byte, 1<<18)
	for from < to {
		n, _ := r.ReadAt(buf[:min(uint64(len(buf)), to-from)], int64(from))
		if n < len(pattern) {
			return false
		}
		for i := 0; ; i++ {
			j := bytes.Index(buf[i:n], pattern)
			if j < 0 {
				break
			}
			i += j
			if accept(from + uint64(i)) {
				return true
			}
		}
		from += uint64(n - len(pattern) + 1)
	}
	return false
}

// check says what is wrong with the extent of the functions.
func (t *Table) check() error {
	if first, end := t.start(0), t.start(uint32(t.count)); end>>32 != 0 || end < first {
		return fmt.Errorf(".gopclntab: functions from %#x to %#x: %w", first, end, ErrNone)
	}
	return nil
}

// entry reads the entry of a function, a runtime._func. Newer versions have a start line in it.
func (t *Table) entry(index uint32) (f goFunc, ok bool) {
	off, name := t.entryAt(index), t.nameAt()
	flag := name + 33
	if t.version == go120 {
		flag += 4
	}
	if off >= uint64(len(t.list)) || uint64(len(t.list))-off <= flag {
		return f, false
	}
	b := t.list[off:]
	f.name = binary.LittleEndian.Uint32(b[name:])
	f.pcsp = binary.LittleEndian.Uint32(b[name+12:])
	f.flag = b[flag]
	return f, true
}

// spDeltas iterates over a pcsp table: pairs of varints, a zigzag delta of
// the value and a delta of the PC, up to a zero (runtime.step).
type spDeltas struct {
	rest  []byte
	value int32  // how far SP has moved, in bytes
	from  uint32 // the PCs over which it holds, from the function's entry
	to    uint32
	begun bool
}

func (s *spDeltas) next() bool {
	v, ok := s.varint()
	if !ok || v == 0 && s.begun {
		return false
	}
	pc, ok := s.varint()
	if !ok {
		return false
	}
	if !s.begun {
		s.begun = true
		s.value = -1
	}
	s.value += int32(-(v & 1) ^ v>>1)
	s.from = s.to
	s.to += pc
	return s.to >= s.from
}

func (s *spDeltas) varint() (v uint32, ok bool) {
	for shift := 0; shift < 35; shift += 7 {
		if len(s.rest) == 0 {
			return 0, false
		}
		b := s.rest[0]
		s.rest = s.rest[1:]
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v, true
		}
	}
	return 0, false
}

// index finds the function that holds addr.
func (t *Table) index(addr uint64) (index uint32, ok bool) {
	off := addr - t.text
	low, high := uint32(0), uint32(t.count)
	if off < t.start(low) || off >= t.start(high) {
		return 0, false
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; t.start(mid) <= off {
			low = mid
		} else {
			high = mid
		}
	}
	return low, true
}

// Function gives the addresses of the function that holds addr; end is exclusive.
func (t *Table) Function(addr uint64) (start, end uint64, ok bool) {
	i, ok := t.index(addr)
	if !ok {
		return 0, 0, false
	}
	return t.text + t.start(i), t.text + t.start(i+1), true
}

// maxDeltas is how long a pcsp table may be, in bytes.
const maxDeltas = 1 << 16

// deltas gives the pcsp table of a function.
func (t *Table) deltas(f *goFunc) spDeltas {
	if f.pcsp == 0 || uint64(f.pcsp) >= uint64(len(t.pctab)) {
		return spDeltas{}
	}
	table := t.pctab[f.pcsp:]
	return spDeltas{rest: table[:min(len(table), maxDeltas)]}
}

// frameStart is where a function's code first moves SP, from its entry; ok is false for a
// function without a frame.
func (t *Table) frameStart(f *goFunc) (off uint32, ok bool) {
	s := t.deltas(f)
	for s.next() {
		if s.value != 0 {
			return s.from, s.value > 0
		}
	}
	return 0, false
}
