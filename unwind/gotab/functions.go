package gotab

import (
	"encoding/binary"
	"errors"
	"fmt"

	"unspool/dwarfcfi/elf"
)

// version is the magic number at the start of a table (internal/abi/symtab.go). Three layouts are
// supported.
type version uint32

const (
	go116 version = 0xfffffffa // 1.16 and 1.17: a function's entry is an address
	go118 version = 0xfffffff0 // 1.18 and 1.19: an offset from runtime.text
	go120 version = 0xfffffff1 // since 1.20: a start line in each function
)

// Limits on what a file may ask for. The largest Go programs have some
// 500,000 functions and tables of 200 MiB.
const (
	maxPclntab = 1 << 29
	maxGoFuncs = 1 << 22
)

// maxHeader is the size of the header where addresses have eight bytes.
const maxHeader = 8 + 8*8

// header is the head of the table (runtime.pcHeader): the magic number, two zeros, the size of the
// shortest instruction, the size of an address, and eight words of that size.
type header struct {
	version  version
	shortest uint8 // instruction, in bytes
	word     uint64
	nfunc    uint64
	text     uint64 // runtime.text; 0 since Go 1.26, and where a relocation would fill it in
	// Offsets from the start of the table.
	names, namesEnd uint64 // behind the names is cutab
	files           uint64
	pctab, funcs    uint64
}

// readHeader reads the head of a table of size bytes.
func readHeader(b []byte, size uint64, order binary.ByteOrder) (h header, err error) {
	if len(b) < 8 {
		return h, fmt.Errorf("header of %d bytes", len(b))
	}
	h = header{version: version(order.Uint32(b)), shortest: b[6], word: uint64(b[7])}
	if h.word != 4 && h.word != 8 || uint64(len(b)) < 8+8*h.word {
		return h, fmt.Errorf("header of %d bytes for addresses of %d", len(b), h.word)
	}
	word := func(i int) uint64 {
		if h.word == 8 {
			return order.Uint64(b[8+8*i:])
		}
		return uint64(order.Uint32(b[8+4*i:]))
	}
	h.nfunc = word(0)
	switch h.version {
	case go116: // nfunc, nfiles, names, cutab, filetab, pctab, funcs
		h.names, h.namesEnd, h.files, h.pctab, h.funcs = word(2), word(3), word(4), word(5), word(6)
	case go118, go120: // the same with runtime.text before the names
		h.text, h.names, h.namesEnd, h.files, h.pctab, h.funcs = word(2), word(3), word(4), word(5), word(6), word(7)
	default:
		return h, fmt.Errorf("unknown magic number %#x", uint32(h.version))
	}
	return h, h.check(b, size)
}

func (h *header) check(b []byte, size uint64) error {
	switch {
	case b[4] != 0 || b[5] != 0:
		return errors.New("header without its two zeros")
	case size > maxPclntab:
		return fmt.Errorf("%d bytes, at most %d", size, maxPclntab)
	case h.names >= size || h.pctab > h.funcs || h.funcs >= size:
		return fmt.Errorf("names at %#x, values at %#x and functions at %#x of %#x bytes",
			h.names, h.pctab, h.funcs, size)
	case h.nfunc == 0 || h.nfunc > maxGoFuncs:
		return fmt.Errorf("%d functions, at most %d", h.nfunc, maxGoFuncs)
	}
	return nil
}

// functions is the list of functions: for each a pair of numbers, its start and the position of its
// entry in the list; the end of the last function; then the entries.
type functions struct {
	version version
	order   binary.ByteOrder
	width   uint64 // of the numbers, in bytes
	count   uint64
	list    []byte
	// fetch makes sure that the bytes list[from:to] of entries are there; it may be nil. The numbers
	// are always there.
	fetch func(from, to int) error
	base  uint64 // subtracted from the starts in the list: the first of them if they are addresses, else 0
}

// newFunctions makes sure that the list has room for its functions.
func newFunctions(h *header, order binary.ByteOrder, list []byte,
	fetch func(from, to int) error) (f functions, err error) {
	f = functions{version: h.version, order: order, width: 4, count: h.nfunc, list: list, fetch: fetch}
	if h.version == go116 {
		f.width = h.word
	}
	if uint64(len(list)) < (2*f.count+1)*f.width {
		return f, fmt.Errorf("no room for %d functions in %#x bytes", f.count, len(list))
	}
	if fetch != nil {
		if err := fetch(0, int((2*f.count+1)*f.width)); err != nil {
			return f, err
		}
	}
	if h.version == go116 {
		f.base = f.field(0)
	}
	return f, nil
}

func (f *functions) field(i uint64) uint64 {
	if f.width == 8 {
		return f.order.Uint64(f.list[8*i:])
	}
	return uint64(f.order.Uint32(f.list[4*i:]))
}

// start is the offset of a function from text; for the index behind the last function it is the end.
func (f *functions) start(index uint32) uint64 { return f.field(2*uint64(index)) - f.base }

// entryAt is the position in the list of the entry of a function.
func (f *functions) entryAt(index uint32) uint64 { return f.field(2*uint64(index) + 1) }

// search finds the function that holds an offset from text.
func (f *functions) search(off uint64) (index uint32, ok bool) {
	low, high := uint32(0), uint32(f.count)
	if off < f.start(low) || off >= f.start(high) {
		return 0, false
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; f.start(mid) <= off {
			low = mid
		} else {
			high = mid
		}
	}
	return low, true
}

// nameAt is the position in an entry of the name: behind the start, which the entry has as well.
func (f *functions) nameAt() uint64 { return f.width }

// NameTable are the functions of a Go binary of any architecture, with their names.
type NameTable struct {
	functions
	header  header
	strings []byte
	text    uint64
}

// ReadNames reads the table that is size bytes at an offset in an ELF file. Nothing in it refers to
// the file any more.
func ReadNames(f *elf.File, offset, size uint64) (*NameTable, error) {
	head, err := f.Read(offset, min(size, uint64(8+8*f.Pick(8, 4))))
	if err != nil {
		return nil, fmt.Errorf("no header: %w", err)
	}
	h, err := readHeader(head, size, f.Order)
	switch {
	case err != nil:
		return nil, err
	case h.word != uint64(f.Pick(8, 4)):
		return nil, fmt.Errorf("addresses of %d bytes", h.word)
	case h.names > h.namesEnd || h.namesEnd > size:
		return nil, fmt.Errorf("names at %#x to %#x of %#x bytes", h.names, h.namesEnd, size)
	}
	n := &NameTable{header: h, text: h.text}
	list, err := f.Read(offset+h.funcs, size-h.funcs)
	if err != nil {
		return nil, err
	}
	if n.functions, err = newFunctions(&h, f.Order, list, nil); err != nil {
		return nil, err
	}
	if h.version == go116 {
		n.text = n.base
	}
	n.strings, err = f.Read(offset+h.names, h.namesEnd-h.names)
	return n, err
}

// Len is how many functions there are.
func (n *NameTable) Len() int { return int(n.count) }

// Strings has the names, which end in NUL.
func (n *NameTable) Strings() []byte { return n.strings }

// Text is the address that functions are relative to, runtime.text, or 0 if the table does not say. It is
// certain if the table has addresses of functions; otherwise it is the value that the linker put there.
func (n *NameTable) Text() (addr uint64, certain bool) { return n.text, n.version == go116 }

// Function gives the start and end of a function, relative to text, and the position of its name in
// Strings. ok is false if its entry is damaged.
func (n *NameTable) Function(i int) (start, end uint64, name uint32, ok bool) {
	start, end = n.start(uint32(i)), n.start(uint32(i)+1)
	entry, size := n.entryAt(uint32(i)), uint64(len(n.list))
	if end <= start || entry >= size || size-entry < n.nameAt()+4 {
		return 0, 0, 0, false
	}
	name = n.order.Uint32(n.list[entry+n.nameAt():])
	return start, end, name, uint64(name) < uint64(len(n.strings))
}
