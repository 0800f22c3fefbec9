package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"

	"unspool/dwarfcfi"
)

// A pclntab is the function table of a Go binary (.gopclntab), which stands
// in for the CFI that Go code lacks: its pcsp tables say for every PC how far
// SP has moved since the function was entered. The format is that of
// runtime/symtab.go and cmd/link/internal/ld/pcln.go; it has had three
// versions that matter, told apart by a magic number (internal/abi/symtab.go).
//
// Only what the rules need is kept, about 25 bytes a function.
type pclntab struct {
	starts []uint32 // offset of each function from text, ascending; the last is the end of all
	pcsp   []uint32 // where in tables a function's pcsp table begins, plus one; 0 for none
	tables []byte   // pcsp tables
	text   uint64   // address of the first function: runtime.text

	asm       map[uint32]asmFunc // what is known of functions in assembly, by index
	sigreturn uint64             // address of the signal return trampoline, 0 when there is none
}

// errNoPclntab says that a file has no Go function table that can be used.
var errNoPclntab = errors.New("no Go function table")

// Magic numbers, as the first eight bytes of the table: magic, two zeros, the
// size of the shortest instruction, the size of a pointer.
const (
	go116 = 0x08010000_fffffffa // 1.16 and 1.17: a function's entry is an address
	go118 = 0x08010000_fffffff0 // 1.18 and 1.19: an offset from runtime.text
	go120 = 0x08010000_fffffff1 // since 1.20: a start line in each function
)

// Limits on what a file may ask for. The largest Go programs have some
// 500,000 functions and tables of 200 MiB.
const (
	maxPclntab = 1 << 29
	maxGoFuncs = 1 << 22
)

// goHeader is the head of the table (runtime.pcHeader).
type goHeader struct {
	version   uint64
	nfunc     uint64
	textStart uint64 // 0 since Go 1.26, and where a relocation would fill it in
	names     uint64 // offsets from the start of the table
	pctab     uint64
	funcs     uint64
}

// goFunc is a function's entry in the table (runtime._func).
type goFunc struct {
	entry uint64 // from text
	name  uint32 // from the name table
	pcsp  uint32 // from pctab; 0 for none
	flag  uint8
}

// Bits of goFunc.flag (abi.FuncFlag).
const (
	flagTopFrame = 1 << iota
	flagSPWrite
	flagAsm
)

func readHeader(b []byte) (h goHeader, ok bool) {
	if len(b) < 72 {
		return h, false
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	h = goHeader{version: word(0), nfunc: word(1)}
	switch h.version {
	case go116:
		h.names, h.pctab, h.funcs = word(3), word(6), word(7)
	case go118, go120:
		h.textStart, h.names, h.pctab, h.funcs = word(3), word(4), word(7), word(8)
	default:
		return h, false
	}
	return h, h.nfunc > 0 && h.nfunc <= maxGoFuncs && h.pctab <= h.funcs
}

// readPclntab finds the function table of an ELF file of size bytes and keeps
// what matters of it. The error is errNoPclntab for what is no Go binary, or
// says what is wrong with the table.
func readPclntab(r io.ReaderAt, size int64, layout *dwarfcfi.Layout) (*pclntab, error) {
	if layout.Machine != elf.EM_X86_64 || layout.Class != elf.ELFCLASS64 {
		return nil, errNoPclntab
	}
	off, length, textSection := findPclntab(r, size, layout)
	if length == 0 {
		return nil, errNoPclntab
	}
	if length > maxPclntab || off > uint64(size) || length > uint64(size)-off {
		return nil, fmt.Errorf(".gopclntab: %d bytes at offset %#x are not in the file: %w", length, off, errNoPclntab)
	}
	var head [72]byte
	if _, err := r.ReadAt(head[:min(length, 72)], int64(off)); err != nil {
		return nil, fmt.Errorf(".gopclntab: offset %#x: %w", off, err)
	}
	h, ok := readHeader(head[:])
	if !ok || h.funcs >= length || h.names >= length {
		return nil, fmt.Errorf(".gopclntab: bad header at offset %#x: %w", off, errNoPclntab)
	}
	// The names and the file table, a third of the table, stay unread.
	data := make([]byte, length-h.pctab)
	if _, err := r.ReadAt(data, int64(off+h.pctab)); err != nil {
		return nil, fmt.Errorf(".gopclntab: offset %#x: %w", off+h.pctab, err)
	}
	pctab, funcs := data[:h.funcs-h.pctab], data[h.funcs-h.pctab:]

	code := &goCode{r: r, loads: layout.Loads, names: int64(off + h.names), namesEnd: int64(off + length)}
	t := &pclntab{asm: make(map[uint32]asmFunc)}
	special, err := t.read(&h, pctab, funcs)
	if err != nil {
		return nil, err
	}
	for _, text := range []uint64{h.textStart, t.text, textSection} {
		if text != 0 && t.fits(code, text) {
			return t.finish(code, special, h.version)
		}
	}
	// A C linker put other code before Go's, and the table does not say where
	// Go's begins.
	for _, f := range special {
		if code.name(f.name) == sigreturnName {
			if code.find(sigreturnCode, func(at uint64) bool { return t.fits(code, at-f.entry) }) {
				return t.finish(code, special, h.version)
			}
			break
		}
	}
	return nil, fmt.Errorf(".gopclntab: cannot tell where the code begins: %w", errNoPclntab)
}

// findPclntab finds the table in the file, by its section or, where there are
// no sections, by its magic number. It also gives the address of .text.
func findPclntab(r io.ReaderAt, size int64, layout *dwarfcfi.Layout) (off, length, text uint64) {
	for _, s := range layout.Text {
		if s.Name == ".text" {
			text = s.Start
		}
	}
	if len(layout.Text) > 0 {
		f, err := elf.NewFile(io.NewSectionReader(r, 0, size))
		if err != nil {
			return 0, 0, 0
		}
		for _, s := range f.Sections {
			if (s.Name == ".gopclntab" || s.Name == ".data.rel.ro.gopclntab") && s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_COMPRESSED == 0 {
				return s.Offset, s.FileSize, text
			}
		}
		return 0, 0, 0
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
		for _, version := range []uint64{go120, go118, go116} {
			magic := binary.LittleEndian.AppendUint64(nil, version)
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
func hasBuildInfo(r io.ReaderAt, layout *dwarfcfi.Layout) bool {
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

// read fills the table from the header's parts. It returns the functions that
// the code must be looked at for.
func (t *pclntab) read(h *goHeader, pctab, funcs []byte) (special []goFunc, err error) {
	bad := func(what string, i uint64) error {
		return fmt.Errorf(".gopclntab: %s of function %d: %w", what, i, errNoPclntab)
	}
	le := binary.LittleEndian
	width := uint64(4)
	if h.version == go116 {
		width = 8
	}
	if uint64(len(funcs)) < (2*h.nfunc+1)*width {
		return nil, bad("no room for the table", h.nfunc)
	}
	field := func(i uint64) uint64 {
		if width == 8 {
			return le.Uint64(funcs[8*i:])
		}
		return uint64(le.Uint32(funcs[4*i:]))
	}
	if h.version == go116 {
		t.text = field(0)
	}
	t.starts = make([]uint32, 0, h.nfunc+1)
	t.pcsp = make([]uint32, 0, h.nfunc)
	seen := make(map[uint32]uint32) // the linker shares equal pcsp tables
	for i := range h.nfunc {
		f, ok := readFunc(h.version, funcs, field(2*i+1))
		if !ok {
			return nil, bad("no entry", i)
		}
		start := field(2*i) - t.text
		if start>>32 != 0 || i > 0 && uint32(start) < t.starts[i-1] {
			return nil, bad("address out of order", i)
		}
		f.entry = start
		t.starts = append(t.starts, uint32(start))
		at := seen[f.pcsp]
		if f.pcsp != 0 && at == 0 && uint64(f.pcsp) < uint64(len(pctab)) {
			table := pcspTable(pctab[f.pcsp:])
			if len(t.tables)+len(table) > len(pctab) {
				return nil, bad("overlapping pcsp", i)
			}
			at = uint32(len(t.tables)) + 1
			t.tables = append(t.tables, table...)
			seen[f.pcsp] = at
		}
		t.pcsp = append(t.pcsp, at)
		if f.flag != 0 || h.version != go120 {
			f.pcsp = uint32(i) // from here on: the index
			special = append(special, f)
		}
	}
	end := field(2*h.nfunc) - t.text
	if end>>32 != 0 || uint32(end) < t.starts[h.nfunc-1] {
		return nil, bad("end", h.nfunc)
	}
	t.starts = append(t.starts, uint32(end))
	return special, nil
}

// readFunc reads a runtime._func, of which the newer versions have a shorter
// entry and a start line.
func readFunc(version uint64, funcs []byte, off uint64) (f goFunc, ok bool) {
	name, flag := uint64(4), uint64(37)
	switch version {
	case go116:
		name, flag = 8, 41
	case go120:
		flag = 41
	}
	if off >= uint64(len(funcs)) || uint64(len(funcs))-off <= flag {
		return f, false
	}
	b := funcs[off:]
	f.name = binary.LittleEndian.Uint32(b[name:])
	f.pcsp = binary.LittleEndian.Uint32(b[name+12:])
	f.flag = b[flag]
	return f, true
}

// pcspTable cuts a pcsp table off the front of b, its end included.
func pcspTable(b []byte) []byte {
	var s spDeltas
	s.rest = b
	for s.next() {
	}
	return b[:len(b)-len(s.rest)]
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

// function finds the function that holds addr.
func (t *pclntab) function(addr uint64) (index uint32, ok bool) {
	off := addr - t.text
	last := len(t.starts) - 1
	if last < 1 || off < uint64(t.starts[0]) || off >= uint64(t.starts[last]) {
		return 0, false
	}
	i := sort.Search(last, func(i int) bool { return uint64(t.starts[i]) > off })
	return uint32(i - 1), true
}

// deltas gives the pcsp table of a function.
func (t *pclntab) deltas(index uint32) spDeltas {
	at := t.pcsp[index]
	if at == 0 {
		return spDeltas{}
	}
	return spDeltas{rest: t.tables[at-1:]}
}

// frameStart is where a function's code first moves SP, from its entry, and
// by how much; ok is false for a function without a frame.
func (t *pclntab) frameStart(index uint32) (off uint32, size int32, ok bool) {
	s := t.deltas(index)
	for s.next() {
		if s.value != 0 {
			return s.from, s.value, s.value > 0
		}
	}
	return 0, 0, false
}
