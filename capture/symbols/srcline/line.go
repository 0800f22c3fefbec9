package srcline

import (
	"fmt"
	"path"

	"unspool/dwarfcfi/elf"
)

// row is the line of an address; found is false where no line is known.
type row struct {
	file, line, column uint64
	found              bool
}

// lineTable is the header of a line number program (DWARF 5, 6.2.4) and the program.
type lineTable struct {
	u          *unit // whose strings and compilation directory it uses
	off        uint64
	version    uint16
	offsetSize uint8

	minInst    uint8
	maxOps     uint8
	lineBase   int8
	lineRange  uint8
	opcodeBase uint8
	lengths    []byte // of the standard opcodes' operands

	dirs    []value
	files   []lineFile
	paths   map[uint64]string // of the files that were asked for, by number
	program elf.Cursor        // its data begins with the header; the strings of the tables are in either
}

type lineFile struct {
	name value
	dir  uint64
}

// maxLineFiles bounds the files and directories of one program; those of a whole linked program have a few
// times 10,000.
const maxLineFiles = 1 << 20

// lineTable reads the header of the unit's line number program. It is valid until the next call for a unit of
// the same file.
func (d *Data) lineTable(u *unit) (*lineTable, error) {
	if u.skeleton != nil {
		u = u.skeleton
	}
	s := &u.obj.line
	if !u.hasLine {
		return &lineTable{u: u}, nil
	}
	b, err := s.view(u.lineOff, 4, 12)
	if err != nil {
		return nil, err
	}
	c := elf.Cursor{Data: b}
	n, offsetSize := c.Length()
	if c.Bad || n > s.size-u.lineOff-uint64(c.Pos) {
		return nil, s.bad(u.lineOff, "a line number program reaches beyond the end of the section")
	}
	head := c.Pos
	if !d.spend(int(n)) {
		return nil, s.bad(u.lineOff, errWork.Error())
	}
	b, err = s.keep(u.lineOff, uint64(head)+n)
	if err != nil {
		return nil, err
	}
	t := &lineTable{u: u, off: u.lineOff, offsetSize: offsetSize}
	c = elf.Cursor{Data: b, Pos: head}
	t.version = c.U16()
	if t.version < 2 || t.version > 5 {
		return nil, s.unsupported(t.off, fmt.Sprintf("line number program of version %d", t.version))
	}
	if t.version == 5 {
		c.Skip(2) // address_size, segment_selector_size
	}
	headerLength := c.Uint(offsetSize)
	if c.Bad || headerLength > uint64(len(b)-c.Pos) {
		return nil, s.bad(t.off, "line number program header cut short")
	}
	begin := c.Pos + int(headerLength)
	t.program = elf.Cursor{Data: b, Pos: begin}
	c.Data = b[:begin]
	t.minInst, t.maxOps = c.U8(), 1
	if t.version >= 4 {
		t.maxOps = c.U8()
	}
	c.U8() // default_is_stmt
	t.lineBase, t.lineRange, t.opcodeBase = int8(c.U8()), c.U8(), c.U8()
	lengths := c.Pos
	c.Skip(uint64(max(t.opcodeBase, 1) - 1))
	if c.Bad || t.maxOps == 0 {
		return nil, s.bad(t.off, "bad line number program header")
	}
	t.lengths = c.Data[lengths:c.Pos]
	if t.version == 5 {
		err = t.entriesV5(&c)
	} else {
		err = t.entriesV4(&c)
	}
	if err == nil && c.Bad {
		err = fmt.Errorf("file table cut short")
	}
	if err != nil {
		return nil, s.bad(t.off+uint64(c.Pos), err.Error())
	}
	return t, nil
}

// entriesV4 reads directories and files, both from index 1 on, and each list ended by an empty name.
func (t *lineTable) entriesV4(c *elf.Cursor) error {
	t.dirs = append(t.dirs, value{}) // the compilation directory
	for {
		pos := c.Pos
		if name := c.CString(); len(name) == 0 {
			break
		}
		t.dirs = append(t.dirs, value{formString, uint64(pos)})
		if len(t.dirs) > maxLineFiles {
			return fmt.Errorf("more than %d directories", maxLineFiles)
		}
	}
	t.files = append(t.files, lineFile{})
	for {
		pos := c.Pos
		if name := c.CString(); len(name) == 0 {
			return nil
		}
		t.addFileV4(c, pos)
		if len(t.files) > maxLineFiles {
			return fmt.Errorf("more than %d files", maxLineFiles)
		}
	}
}

// addFileV4 reads the fields behind a file's name: directory, time of modification, size.
func (t *lineTable) addFileV4(c *elf.Cursor, name int) {
	t.files = append(t.files, lineFile{value{formString, uint64(name)}, c.WrappedULEB()})
	c.WrappedULEB()
	c.WrappedULEB()
}

// DW_LNCT_* (DWARF 5, 7.22)
const (
	lnctPath           = 1
	lnctDirectoryIndex = 2
)

// lineFormat is a column of the tables: what it is (DW_LNCT_*), and how it is stored.
type lineFormat struct {
	content uint64
	spec    spec
}

// entriesV5 reads directories and files, both from index 0 on, as the formats before them say.
func (t *lineTable) entriesV5(c *elf.Cursor) error {
	// The offsets of the table may have another size than those of its unit.
	forms := &unit{offsetSize: t.offsetSize, addrSize: t.u.addrSize, version: 5}
	for list := range 2 {
		formats := make([]lineFormat, c.U8())
		for i := range formats {
			content, f := c.WrappedULEB(), c.WrappedULEB()
			s, ok := newSpec(0, form(min(f, 0xffff)), forms)
			if !ok && !c.Bad {
				return fmt.Errorf("unknown form %#x", f)
			}
			formats[i] = lineFormat{content, s}
		}
		n := c.WrappedULEB()
		if c.Bad {
			return nil
		}
		if n > maxLineFiles || n > uint64(len(c.Data)-c.Pos) {
			return fmt.Errorf("%d files or directories in %d bytes", n, len(c.Data)-c.Pos)
		}
		for range n {
			var f lineFile
			for i := range formats {
				v := readValue(c, &formats[i].spec, forms)
				switch formats[i].content {
				case lnctPath:
					f.name = v
				case lnctDirectoryIndex:
					f.dir = v.u
				}
			}
			if c.Bad {
				return nil
			}
			if list == 0 {
				t.dirs = append(t.dirs, f.name)
			} else {
				t.files = append(t.files, f)
			}
		}
	}
	return nil
}

// file is the path of the i-th file, "" if there is none.
func (d *Data) file(t *lineTable, i uint64) string {
	if i >= uint64(len(t.files)) || t.files[i].name.form == 0 {
		return ""
	}
	f := t.files[i]
	text := func(v value) string {
		if v.form == formString {
			c := elf.Cursor{Data: t.program.Data, Pos: int(v.u)}
			return string(c.CString())
		}
		s, err := d.string(t.u, v, t.off)
		if err != nil {
			d.problems.add(err)
		}
		return s
	}
	name := text(f.name)
	if name == "" || path.IsAbs(name) {
		return name
	}
	if f.dir < uint64(len(t.dirs)) && t.dirs[f.dir].form != 0 {
		name = joinPath(text(t.dirs[f.dir]), name)
	}
	if !path.IsAbs(name) && (t.version < 5 || f.dir != 0) { // since DWARF 5, 0 is the compilation directory
		name = joinPath(t.u.compDir, name)
	}
	return name
}

// joinPath keeps .. in the path, as its meaning depends on symbolic links.
func joinPath(dir, name string) string {
	if dir == "" {
		return name
	}
	if dir[len(dir)-1] == '/' {
		return dir + name
	}
	return dir + "/" + name
}

// registers are the registers of the line number state machine that matter here (DWARF 5, 6.2.2).
type registers struct {
	addr, opIndex      uint64
	file, line, column uint64
}

// Standard and extended opcodes (DWARF 5, 7.22).
const (
	lnsExtended       = 0
	lnsCopy           = 1
	lnsAdvancePC      = 2
	lnsAdvanceLine    = 3
	lnsSetFile        = 4
	lnsSetColumn      = 5
	lnsConstAddPC     = 8
	lnsFixedAdvancePC = 9
	lneEndSequence    = 1
	lneSetAddress     = 2
	lneDefineFile     = 3
)

// runLines runs the program and sets the rows of those of the sorted pcs that have a line.
func (d *Data) runLines(t *lineTable, pcs []uint64, rows []row) error {
	m := lineMachine{d: d, t: t, c: t.program, r: startRegisters, pcs: pcs, rows: rows}
	var constAdd uint64
	if t.lineRange != 0 {
		constAdd = (255 - uint64(t.opcodeBase)) / uint64(t.lineRange)
	}
	for m.c.Pos < len(m.c.Data) && !m.c.Bad && d.work >= 0 {
		op := uint64(m.c.U8())
		if op >= uint64(t.opcodeBase) {
			if t.lineRange == 0 {
				return t.u.obj.line.bad(t.off+uint64(m.c.Pos), "line_range is 0")
			}
			op -= uint64(t.opcodeBase)
			m.advance(op / uint64(t.lineRange))
			m.r.line += uint64(int64(t.lineBase) + int64(op%uint64(t.lineRange)))
			m.emit()
			continue
		}
		switch op {
		case lnsExtended:
			m.extended()
		case lnsCopy:
			m.emit()
		case lnsAdvancePC:
			m.advance(m.c.WrappedULEB())
		case lnsAdvanceLine:
			m.r.line += uint64(m.c.SLEB())
		case lnsSetFile:
			m.r.file = m.c.WrappedULEB()
		case lnsSetColumn:
			m.r.column = m.c.WrappedULEB()
		case lnsConstAddPC:
			m.advance(constAdd)
		case lnsFixedAdvancePC:
			m.r.addr, m.r.opIndex = m.r.addr+uint64(m.c.U16()), 0
		default:
			for range t.lengths[op-1] {
				m.c.WrappedULEB()
			}
		}
	}
	if m.c.Bad {
		return t.u.obj.line.bad(t.off+uint64(m.c.Pos), "line number program cut short")
	}
	return nil
}

// startRegisters are the registers at the start of a sequence.
var startRegisters = registers{file: 1, line: 1}

// A lineMachine is the line number state machine, with the rows that it sets.
type lineMachine struct {
	d    *Data // whose work is charged
	t    *lineTable
	c    elf.Cursor // the rest of the program
	r    registers
	last registers // the row before, whose line holds up to this one
	open bool      // there is such a row, in this sequence
	live bool      // the sequence is for code that the linker kept

	pcs  []uint64 // sorted
	rows []row    // of pcs
	next int      // index of the first of pcs that is not below last.addr
}

// emit appends a row to the table: the row before holds for the pcs up to this one.
func (m *lineMachine) emit() {
	switch {
	case !m.open:
		m.open, m.live = true, m.r.addr != 0 // the linker moves dropped code to 0
		m.next = search(m.pcs, m.r.addr)
	case m.r.addr < m.last.addr:
		m.next = search(m.pcs, m.r.addr)
	default:
		first := m.next
		for ; m.next < len(m.pcs) && m.pcs[m.next] < m.r.addr; m.next++ {
			if m.live && !m.rows[m.next].found {
				m.rows[m.next] = row{m.last.file, m.last.line, m.last.column, true}
			}
		}
		m.d.work -= int64(m.next - first)
	}
	m.last = m.r
}

// advance moves the address by n operations.
func (m *lineMachine) advance(n uint64) {
	t := m.t
	if t.maxOps == 1 {
		m.r.addr += n * uint64(t.minInst)
		return
	}
	n += m.r.opIndex
	m.r.addr += n / uint64(t.maxOps) * uint64(t.minInst)
	m.r.opIndex = n % uint64(t.maxOps)
}

// extended executes an extended opcode, whose length precedes it.
func (m *lineMachine) extended() {
	c := &m.c
	n := c.WrappedULEB()
	if c.Bad || n > uint64(len(c.Data)-c.Pos) {
		c.Bad = true
		return
	}
	if n == 0 {
		return
	}
	end := c.Pos + int(n)
	switch c.U8() {
	case lneEndSequence:
		m.emit()
		m.r, m.open = startRegisters, false
	case lneSetAddress:
		m.r.addr, m.r.opIndex = c.Uint(uint8(min(n-1, 255))), 0
	case lneDefineFile:
		pos := c.Pos
		c.CString()
		if len(m.t.files) <= maxLineFiles {
			m.t.addFileV4(c, pos)
		}
	}
	c.Pos = end
}
