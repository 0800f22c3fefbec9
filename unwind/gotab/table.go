package gotab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"unspool/dwarfcfi/elf"
)

// A Table is the function table of a Go binary (.gopclntab), which is used in the
// place of CFI: its pcsp tables say for every PC how far SP has moved since the
// function was entered. The format is that of runtime/symtab.go and
// cmd/link/internal/ld/pcln.go.
//
// It is searched in place; only the parts that a PC needs are read.
type Table struct {
	functions
	pctab []byte // their tables of values by PC
	// fetchValues makes sure that the bytes pctab[from:to] are there; it may be nil.
	fetchValues func(from, to int) error
	text        uint64 // address of the first function: runtime.text

	code *goCode
	// asm has the functions that were examined, by index; nil for compiled ones.
	asm map[uint32]*asmFunc
	// growth is what Growth has found; its Return is 0 before.
	growth Growth
	tries  int // to find it
}

// ErrNone means that a file has no Go function table that can be used.
var ErrNone = errors.New("no Go function table")

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

// A LoadFunc brings size bytes of the file, from an offset on, into memory. They need not all be there when it
// returns: fetch, if it is not nil, is called before the bytes data[from:to] are read. After fetch returns an
// error, no result may be used.
type LoadFunc func(offset, size uint64) (data []byte, fetch func(from, to int) error, err error)

// Read finds the function table of an ELF file of size bytes and loads the parts that matter. The error is
// ErrNone if the file is not a Go binary, or says what is wrong with the table.
func Read(r io.ReaderAt, size int64, layout *elf.Layout, load LoadFunc) (*Table, error) {
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
		err = errors.New("it is for another architecture")
	}
	if err != nil {
		return nil, fmt.Errorf(".gopclntab: bad header at offset %#x: %w: %w", off, err, ErrNone)
	}
	// The names and the file table, a third of the table, are not read.
	data, fetch, err := load(off+h.pctab, length-h.pctab)
	if err != nil {
		return nil, fmt.Errorf(".gopclntab: offset %#x: %w: %w", off+h.pctab, err, ErrNone)
	}
	skip := int(h.funcs - h.pctab)
	list, err := newFunctions(&h, binary.LittleEndian, data[skip:], shifted(fetch, skip))
	if err != nil {
		return nil, fmt.Errorf(".gopclntab: %w: %w", err, ErrNone)
	}
	t := &Table{
		functions: list, pctab: data[:skip], fetchValues: fetch, text: list.base,
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
	// A C linker put other code before the Go code, and the table does not say where the
	// Go code begins.
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

// shifted is a fetch for data that starts at a position of the loaded data.
func shifted(fetch func(from, to int) error, by int) func(from, to int) error {
	if fetch == nil {
		return nil
	}
	return func(from, to int) error { return fetch(from+by, to+by) }
}

// ReadCodeFrom makes the table read code and names from r, and drops what it knows from reading them before.
func (t *Table) ReadCodeFrom(r io.ReaderAt) {
	t.code = &goCode{r: r, loads: t.code.loads, names: t.code.names, namesEnd: t.code.namesEnd}
	clear(t.asm)
	t.growth, t.tries = Growth{}, 0
}

// findTable finds the table in the file, by its section or, if there are no
// sections, by its magic number. It also gives the address of .text.
func findTable(r io.ReaderAt, size int64, layout *elf.Layout) (off, length, text uint64) {
	for _, s := range layout.Text {
		if s.Name == ".text" {
			text = s.Start
		}
	}
	if e := &layout.Pclntab; len(layout.Text) > 0 {
		if e.Packed != elf.Plain {
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

// hasBuildInfo reports whether a writable segment begins with the section that the Go
// linker puts there: .go.buildinfo (debug/buildinfo).
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

// search finds the first pattern in [from, to) of the file for which accept returns true.
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

// check returns what is wrong with the extent of the functions.
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
	if t.fetch != nil && t.fetch(int(off), int(off+flag+1)) != nil {
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
	from  uint32 // the PCs over which it holds, relative to the function's entry
	to    uint32
	begun bool

	end     int // of rest, in pctab
	fetched int // pctab was fetched up to here
	fetch   func(from, to int) error
}

// bring fetches a part of the rest.
func (s *spDeltas) bring() bool {
	const most = 256
	if s.fetched >= s.end {
		return true
	}
	at := s.end - len(s.rest)
	s.fetched = min(at+most, s.end)
	return s.fetch(at, s.fetched) == nil
}

func (s *spDeltas) next() bool {
	if s.fetch != nil && s.end-len(s.rest)+2*maxVarint > s.fetched && !s.bring() {
		return false
	}
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

// maxVarint is how many bytes a varint has at most.
const maxVarint = 5

func (s *spDeltas) varint() (v uint32, ok bool) {
	for shift := 0; shift < 7*maxVarint; shift += 7 {
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
	return t.search(addr - t.text)
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
	table = table[:min(len(table), maxDeltas)]
	if t.fetchValues == nil {
		return spDeltas{rest: table}
	}
	return spDeltas{rest: table, end: int(f.pcsp) + len(table), fetch: t.fetchValues}
}

// frameStart is the offset from a function's entry at which the code first changes SP; ok is false for
// a function without a frame.
func (t *Table) frameStart(f *goFunc) (off uint32, ok bool) {
	s := t.deltas(f)
	for s.next() {
		if s.value != 0 {
			return s.from, s.value > 0
		}
	}
	return 0, false
}
