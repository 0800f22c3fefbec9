package gotab

import (
	"bytes"
	"errors"
	"fmt"
)

// LineTable are the source lines and inlined functions of a Go binary, which its runtime needs for tracebacks: also one
// without DWARF has them (runtime/symtab.go and symtabinl.go). Versions of Go before 1.20 are left out.
type LineTable struct {
	*NameTable
	values  []byte // tables of values by PC
	units   []byte // cutab: for each file of a compilation unit, the position of its name in files
	files   []byte // names, which end in NUL
	inlined Reader // nil for none

	// Left is how many bytes of tables may still be read before the file is given up as hostile.
	Left int
}

// A Frame is a function at an address.
type Frame struct {
	Func string
	File string // "" when it is not known
	// Of the innermost frame, the line of the address; of the others, the line where the frame before was called; 0 when
	// it is not known.
	Line  int
	Start int // the line where the function begins; 0 when it is not known
}

// ErrNoLines means that a table is of a version of Go whose lines are not read.
var ErrNoLines = errors.New("no lines")

// A Reader reads size bytes at an offset.
type Reader func(offset, size uint64) ([]byte, error)

// Lines reads the lines of a table. inlined reads go:func.*; without it, code of inlined functions has no lines.
func (n *NameTable) Lines(table, inlined Reader) (*LineTable, error) {
	h := &n.header
	if h.version != go120 {
		return nil, ErrNoLines
	}
	if h.namesEnd > h.files || h.files > h.pctab {
		return nil, fmt.Errorf("units at %#x, files at %#x and values at %#x", h.namesEnd, h.files, h.pctab)
	}
	l := &LineTable{NameTable: n, inlined: inlined}
	for _, part := range []struct {
		bytes    *[]byte
		from, to uint64
	}{{&l.units, h.namesEnd, h.files}, {&l.files, h.files, h.pctab}, {&l.values, h.pctab, h.funcs}} {
		var err error
		if *part.bytes, err = table(part.from, part.to-part.from); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// ModuleFuncs is the index of a word of runtime.moduledata, the address of go:func.*, and ModuleNames that of the
// address of the names; the first word is the address of the table (since Go 1.20).
const (
	ModuleNames = 1
	ModuleFuncs = 40
)

// NamesAt is where the names are in the table.
func (n *NameTable) NamesAt() uint64 { return n.header.names }

// Indices of what a function has besides (internal/abi/symtab.go), and of no data.
const (
	pcdataInlined   = 2
	funcdataInlined = 3
	noData          = 1<<32 - 1
)

// maxInlined bounds nested inlined functions.
const maxInlined = 512

// funcLines is what a function's entry says about lines.
type funcLines struct {
	name, start   uint32
	file, line    uint32 // tables of values
	unit          uint32
	inlined, tree uint32 // table of values, and what it indexes; noData for none
	size          uint64 // of the code
}

func (l *LineTable) function(i uint32) (f funcLines, ok bool) {
	const fixed = 44 // bytes, since Go 1.20
	at := l.entryAt(i)
	if at > uint64(len(l.list)) || uint64(len(l.list))-at < fixed {
		return f, false
	}
	b := l.list[at:]
	word := func(pos int) uint32 { return l.order.Uint32(b[pos:]) }
	f = funcLines{name: word(4), file: word(20), line: word(24), unit: word(32), start: word(36), inlined: noData,
		tree: noData, size: l.start(i+1) - l.start(i)}
	values, data := uint64(word(28)), uint64(b[fixed-1])
	if values > pcdataInlined && data > funcdataInlined && uint64(len(b)) >= fixed+4*(values+data) {
		f.inlined, f.tree = word(fixed+4*pcdataInlined), word(fixed+4*int(values)+4*funcdataInlined)
	}
	return f, true
}

// value looks up the offset of an address in a function in a table of values; -1 if it is not there.
func (l *LineTable) value(table uint32, off uint64) int32 {
	if table == 0 || uint64(table) >= uint64(len(l.values)) {
		return -1
	}
	d := spDeltas{rest: l.values[table:][:min(maxDeltas, uint64(len(l.values))-uint64(table))]}
	before := len(d.rest)
	defer func() { l.Left -= before - len(d.rest) }()
	for d.next() {
		if off < uint64(d.to)*uint64(l.header.shortest) {
			return d.value
		}
	}
	return -1
}

// At appends to frames the functions at an address, which is relative to text, innermost first.
func (l *LineTable) At(off uint64, frames []Frame) []Frame {
	i, ok := l.search(off)
	if !ok || l.Left < 0 {
		return frames
	}
	f, ok := l.function(i)
	if !ok {
		return frames
	}
	kept := frames
	for at := off - l.start(i); ; {
		index := int32(-1)
		if f.tree != noData {
			index = l.value(f.inlined, at)
		}
		here := Frame{Func: l.text(l.strings, f.name), File: l.file(&f, at), Line: number(l.value(f.line, at)),
			Start: number(int32(f.start))}
		if index < 0 {
			return append(frames, here)
		}
		var parent uint32
		here.Func, here.Start, parent, ok = l.call(&f, index)
		if !ok || uint64(parent) >= f.size || len(frames)-len(kept) == maxInlined || l.Left < 0 {
			return append(kept, Frame{Func: l.text(l.strings, f.name), Start: number(int32(f.start))})
		}
		frames = append(frames, here)
		at = uint64(parent)
	}
}

// call reads an inlined call (runtime.inlinedCall): the function, where it begins, and the offset of an instruction of
// the line of the call.
func (l *LineTable) call(f *funcLines, index int32) (name string, start int, parent uint32, ok bool) {
	const size = 16
	if l.inlined == nil {
		return "", 0, 0, false
	}
	l.Left -= size
	b, err := l.inlined(uint64(f.tree)+size*uint64(index), size)
	if err != nil || b[1]|b[2]|b[3] != 0 {
		return "", 0, 0, false
	}
	at := l.order.Uint32(b[4:])
	if at == 0 || uint64(at) >= uint64(len(l.strings)) || l.strings[at-1] != 0 {
		return "", 0, 0, false
	}
	return l.text(l.strings, at), number(int32(l.order.Uint32(b[12:]))), l.order.Uint32(b[8:]), true
}

// file is the name of the file of an instruction.
func (l *LineTable) file(f *funcLines, off uint64) string {
	i := l.value(f.file, off)
	if at := (uint64(f.unit) + uint64(uint32(i))) * 4; i >= 0 && at+4 <= uint64(len(l.units)) {
		return l.text(l.files, l.order.Uint32(l.units[at:]))
	}
	return ""
}

// text returns the string at a position, "" if there is none.
func (l *LineTable) text(strings []byte, at uint32) string {
	const longest = 64 << 10
	if uint64(at) >= uint64(len(strings)) {
		return ""
	}
	s := strings[at:]
	end := bytes.IndexByte(s[:min(len(s), longest)], 0)
	if end < 0 {
		return ""
	}
	l.Left -= end
	return string(s[:end])
}

// number is a line, 0 if it is none.
func number(line int32) int { return int(max(line, 0)) }
