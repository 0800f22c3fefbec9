package srcline

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"strings"

	"unspool/dwarfcfi/elf"
)

// object is a file with debugging information, or the part of a .dwp that belongs to one unit.
type object struct {
	name string
	typ  elf.Type
	dwo  bool // the names of its sections end in .dwo

	info, abbrev, line, str, lineStr, strOffsets, addr, ranges, rnglists section

	cuIndex      section // .debug_cu_index, of a .dwp
	altLink, sup section // .gnu_debugaltlink, .debug_sup

	alt         *object // the file that those name, nil before it is needed
	altErr      error   // why it could not be opened
	starts      []uint64
	units       map[uint64]*unit
	tables      map[tableKey]*abbrevs
	subprograms map[uint64]subprogram // by the offset of their DIE
	closer      File                  // to be closed with the object
	left        uint64                // bytes that compressed sections may still hold: see maxInflated
}

// wanted returns the field for the section of the name, nil if the section is not needed.
func (o *object) wanted(name string) *section {
	if strings.HasSuffix(name, ".dwo") != o.dwo {
		if name == ".debug_cu_index" {
			return &o.cuIndex
		}
		return nil
	}
	switch strings.TrimSuffix(name, ".dwo") {
	case ".debug_info":
		return &o.info
	case ".debug_abbrev":
		return &o.abbrev
	case ".debug_line":
		return &o.line
	case ".debug_str":
		return &o.str
	case ".debug_line_str":
		return &o.lineStr
	case ".debug_str_offsets":
		return &o.strOffsets
	case ".debug_addr":
		return &o.addr
	case ".debug_ranges":
		return &o.ranges
	case ".debug_rnglists":
		return &o.rnglists
	case ".gnu_debugaltlink":
		return &o.altLink
	case ".debug_sup":
		return &o.sup
	}
	return nil
}

// openObject reads the section headers of an ELF file; dwo means that it is a .dwo or .dwp.
func openObject(file File, dwo bool) (*object, error) {
	if file.ReaderAt == nil {
		return nil, &Error{file.Name, "ELF header", 0, "reading", fs.ErrNotExist}
	}
	f, err := elf.NewFile(file, file.Size)
	if err != nil {
		return nil, badFile(file.Name, err)
	}
	if f.Order != binary.LittleEndian {
		return nil, &Error{file.Name, "ELF header", 0, "not little-endian", ErrUnsupported}
	}
	names, err := f.Names()
	if err != nil {
		return nil, badFile(file.Name, err)
	}
	o := &object{name: file.Name, typ: f.Type, dwo: dwo, left: file.mostInflated()}
	for i := range f.Sections {
		if err := o.add(file, f, &f.Sections[i], string(names.Of(&f.Sections[i]))); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// badFile adds the place to an error about the headers of a file.
func badFile(file string, err error) error {
	var place *elf.Error
	if errors.As(err, &place) {
		return &Error{file, place.Section, place.Offset, place.What, place.Err}
	}
	return &Error{file, "ELF header", 0, "reading", err}
}

// add notes where a section is, if it is one that is needed.
func (o *object) add(file File, f *elf.File, h *elf.Section, name string) error {
	if h.Type == elf.SHT_NOBITS || h.Type == elf.SHT_NULL {
		return nil
	}
	title := name
	if rest, ok := strings.CutPrefix(name, ".zdebug_"); ok {
		title = ".debug_" + rest
	}
	s := o.wanted(title)
	if s == nil || s.size != 0 {
		return nil
	}
	if err := f.Holds(h.Offset, h.Size); err != nil {
		return &Error{file.Name, title, h.Offset, "section header", err}
	}
	*s = section{
		file: file.Name, name: name, r: file, off: int64(h.Offset), size: h.Size,
		packed: h.Packing([]byte(name)), class: f.Class, left: &o.left,
	}
	return nil
}

// size is how many bytes of debugging information the file stores.
func (o *object) size() uint64 {
	var n uint64
	for _, s := range []*section{&o.info, &o.abbrev, &o.line, &o.str, &o.lineStr, &o.strOffsets, &o.addr,
		&o.ranges, &o.rnglists} {
		n += s.size
	}
	return n
}
