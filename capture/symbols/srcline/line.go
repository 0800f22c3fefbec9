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
	paths   map[uint64]string // of files, those asked for
	stringy elf.Cursor        // of the header: where the strings that it holds are
	program elf.Cursor
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
	t.stringy = c
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

// addFileV4 reads what follows a file's name: directory, time of modification, size.
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
	// The table's forms may be narrower or wider than its unit's.
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

// file is the path of the i-th file, "" when there is none.
func (d *Data) file(t *lineTable, i uint64) string {
	if i >= uint64(len(t.files)) || t.files[i].name.form == 0 {
		return ""
	}
	f := t.files[i]
	text := func(v value) string {
		if v.form == formString {
			c := elf.Cursor{Data: t.stringy.Data, Pos: int(v.u)}
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
	if !path.IsAbs(name) && (t.version < 5 || f.dir != 0) { // from DWARF 5 on, directory 0 is the compilation's
		name = joinPath(t.u.compDir, name)
	}
	return name
}

// joinPath keeps the path as the compiler has it: what .. leads to depends on links.
func joinPath(dir, name string) string {
	if dir == "" {
		return name
	}
	if dir[len(dir)-1] == '/' {
		return dir + name
	}
	return dir + "/" + name
}

// registers are those of the line number state machine that matter here (DWARF 5, 6.2.2).
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

// runLines runs the program and sets, of rows, those of the sorted pcs that have a line.
func (d *Data) runLines(t *lineTable, pcs []uint64, rows []row) error {
	var (
		c        = t.program
		r        = registers{file: 1, line: 1}
		last     registers // the row before, whose line holds up to this one
		open     bool      // there is such a row, in this sequence
		next     int       // the first of pcs that is not below last.addr
		live     bool      // the sequence is one of linked code
		opcodes  = uint64(t.opcodeBase)
		constAdd = uint64(0)
	)
	if t.lineRange != 0 {
		constAdd = (255 - opcodes) / uint64(t.lineRange)
	}
	emit := func() {
		switch {
		case !open:
			open, live = true, r.addr != 0 // the linker moves dropped code to 0
			next = search(pcs, r.addr)
		case r.addr < last.addr:
			next = search(pcs, r.addr)
		default:
			first := next
			for ; next < len(pcs) && pcs[next] < r.addr; next++ {
				if live && !rows[next].found {
					rows[next] = row{last.file, last.line, last.column, true}
				}
			}
			d.work -= int64(next - first)
		}
		last = r
	}
	advance := func(n uint64) {
		if t.maxOps == 1 {
			r.addr += n * uint64(t.minInst)
			return
		}
		n += r.opIndex
		r.addr += n / uint64(t.maxOps) * uint64(t.minInst)
		r.opIndex = n % uint64(t.maxOps)
	}
	for c.Pos < len(c.Data) && !c.Bad && d.work >= 0 {
		op := uint64(c.U8())
		if op >= opcodes {
			if t.lineRange == 0 {
				return t.u.obj.line.bad(t.off+uint64(c.Pos), "line_range is 0")
			}
			op -= opcodes
			advance(op / uint64(t.lineRange))
			r.line += uint64(int64(t.lineBase) + int64(op%uint64(t.lineRange)))
			emit()
			continue
		}
		switch op {
		case lnsExtended:
			n := c.WrappedULEB()
			if c.Bad || n > uint64(len(c.Data)-c.Pos) {
				c.Bad = true
				break
			}
			if n == 0 {
				continue
			}
			end := c.Pos + int(n)
			switch c.U8() {
			case lneEndSequence:
				emit()
				r, open = registers{file: 1, line: 1}, false
			case lneSetAddress:
				r.addr, r.opIndex = c.Uint(uint8(min(n-1, 255))), 0
			case lneDefineFile:
				pos := c.Pos
				c.CString()
				if len(t.files) <= maxLineFiles {
					t.addFileV4(&c, pos)
				}
			}
			c.Pos = end
		case lnsCopy:
			emit()
		case lnsAdvancePC:
			advance(c.WrappedULEB())
		case lnsAdvanceLine:
			r.line += uint64(c.SLEB())
		case lnsSetFile:
			r.file = c.WrappedULEB()
		case lnsSetColumn:
			r.column = c.WrappedULEB()
		case lnsConstAddPC:
			advance(constAdd)
		case lnsFixedAdvancePC:
			r.addr, r.opIndex = r.addr+uint64(c.U16()), 0
		default:
			for range t.lengths[op-1] {
				c.WrappedULEB()
			}
		}
	}
	if c.Bad {
		return t.u.obj.line.bad(t.off+uint64(c.Pos), "line number program cut short")
	}
	return nil
}
