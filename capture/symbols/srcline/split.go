package srcline

import (
	"errors"
	"fmt"
	"io"
	"path"

	"unspool/dwarfcfi/elf"
)

// split returns the split unit of the skeleton unit, and the object to close after use.
func (d *Data) split(skeleton *unit) (*unit, error) {
	o, err := d.packed(skeleton.dwoID)
	if err != nil {
		d.problems.add(err)
	}
	if o == nil {
		if o, err = d.openDWO(skeleton); err != nil {
			return nil, err
		}
	}
	err = d.indexUnits(o)
	for _, off := range o.starts {
		u, err := o.parseUnit(off)
		if err != nil {
			o.close()
			return nil, err
		}
		u.skeleton = skeleton
		if err := d.readRoot(u); err != nil {
			o.close()
			return nil, err
		}
		if u.dwoID == skeleton.dwoID && u.kind != unitType && u.kind != unitSplitType {
			if o.units == nil {
				o.units = make(map[uint64]*unit)
			}
			o.units[off] = u
			return u, nil
		}
	}
	o.close()
	if err == nil {
		err = o.info.bad(0, fmt.Sprintf("no unit with the id %#x", skeleton.dwoID))
	}
	return nil, err
}

// openDWO opens the .dwo file of the unit.
func (d *Data) openDWO(skeleton *unit) (*object, error) {
	missing := func(err error) error {
		return &Error{skeleton.obj.name, skeleton.obj.info.name, skeleton.off, "split unit in " + skeleton.dwoName,
			err}
	}
	if d.options.DWO == nil {
		return nil, missing(errNoOpener)
	}
	f, err := d.options.DWO(skeleton.compDir, skeleton.dwoName, skeleton.dwoID)
	if err != nil {
		return nil, missing(err)
	}
	o, err := openObject(f, true)
	if err != nil {
		f.close()
		return nil, err
	}
	o.closer = f
	// A file may hold several units, and is opened for each.
	name := path.Clean(joinPath(skeleton.compDir, skeleton.dwoName))
	if !d.granted[name] {
		d.granted[name] = true
		d.work += int64(min(o.size(), 1<<48)) * workPerByte
	}
	return o, nil
}

var errNoOpener = errors.New("there is nothing to open it with")

// Columns of a .dwp's unit index (DWARF 5, 7.3.5.3); GNU's of DWARF 4 has .debug_loc in place of
// .debug_loclists and nothing in 8.
const (
	dwpInfo       = 1
	dwpAbbrev     = 3
	dwpLine       = 4
	dwpStrOffsets = 6
	dwpRnglists   = 8

	maxColumns = 16
)

// packed returns the part of the .dwp that belongs to the unit with the id, nil if there is none.
func (d *Data) packed(id uint64) (*object, error) {
	if !d.dwpOpened && d.options.DWP != nil {
		d.dwpOpened = true
		f, err := d.options.DWP()
		if err != nil {
			return nil, err
		}
		if f.ReaderAt != nil {
			if d.dwp, err = openObject(f, true); err != nil {
				f.close()
				return nil, err
			}
			d.dwp.closer = f
			d.work += workFor(d.dwp)
		}
	}
	if d.dwp == nil || d.dwp.cuIndex.size == 0 {
		return nil, nil
	}
	return d.dwp.unit(id)
}

// unit finds a unit by its id in the hash table of .debug_cu_index and cuts its parts out of the sections.
func (o *object) unit(id uint64) (*object, error) {
	s := &o.cuIndex
	b, err := s.at(0, 16)
	if err != nil {
		return nil, err
	}
	c := elf.Cursor{Data: b}
	version := c.U32() // in DWARF 5 two bytes, and two of padding
	columns, units, slots := uint64(c.U32()), uint64(c.U32()), uint64(c.U32())
	if version != 2 && version&0xffff != 5 {
		return nil, s.unsupported(0, fmt.Sprintf("unit index of version %d", version))
	}
	if columns > maxColumns || slots&(slots-1) != 0 {
		return nil, s.bad(0, fmt.Sprintf("unit index of %d columns and %d slots", columns, slots))
	}
	if slots == 0 {
		return nil, nil
	}
	// The header is followed by the ids, the rows by slot (from 1, 0 for an empty slot), the columns' sections,
	// the rows of offsets, the rows of sizes.
	const header = 16
	row := uint64(0)
	slot, step := id&(slots-1), id>>32&(slots-1)|1
	for probe := uint64(0); ; probe++ {
		if probe == slots {
			return nil, nil
		}
		r, err := s.uint(header+slots*8+slot*4, 4)
		if err != nil {
			return nil, err
		}
		if r == 0 {
			return nil, nil
		}
		have, err := s.uint(header+slot*8, 8)
		if err != nil {
			return nil, err
		}
		if have == id {
			row = r
			break
		}
		slot = (slot + step) & (slots - 1)
	}
	if row > units {
		return nil, s.bad(0, fmt.Sprintf("row %d of %d", row, units))
	}
	table := header + slots*12
	part := &object{name: o.name, dwo: true, str: o.str, lineStr: o.lineStr}
	for i := range columns {
		kind, err := s.uint(table+i*4, 4)
		if err != nil {
			return nil, err
		}
		off, err := s.uint(table+(row*columns+i)*4, 4)
		if err != nil {
			return nil, err
		}
		size, err := s.uint(table+((units+row)*columns+i)*4, 4)
		if err != nil {
			return nil, err
		}
		var from, to *section
		switch kind {
		case dwpInfo:
			from, to = &o.info, &part.info
		case dwpAbbrev:
			from, to = &o.abbrev, &part.abbrev
		case dwpLine:
			from, to = &o.line, &part.line
		case dwpStrOffsets:
			from, to = &o.strOffsets, &part.strOffsets
		case dwpRnglists:
			if version == 2 {
				continue
			}
			from, to = &o.rnglists, &part.rnglists
		default:
			continue
		}
		if *to, err = from.part(off, size); err != nil {
			return nil, err
		}
	}
	return part, nil
}

// alt returns the alternate file that o refers to.
func (d *Data) alt(o *object) (*object, error) {
	if o.alt == nil && o.altErr == nil {
		o.alt, o.altErr = d.openAlt(o)
	}
	return o.alt, o.altErr
}

func (d *Data) openAlt(o *object) (*object, error) {
	name, id, link, err := o.altFile()
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*object, error) {
		return nil, &Error{o.name, link.name, 0, "alternate file " + name, err}
	}
	if d.options.Alt == nil {
		return fail(errNoOpener)
	}
	f, err := d.options.Alt(name, id)
	if err != nil {
		return fail(err)
	}
	alt, err := openObject(f, false)
	if err != nil {
		f.close()
		return nil, err
	}
	alt.closer = f
	alt.altErr = errors.New("an alternate file refers to another")
	d.work += workFor(alt)
	return alt, nil
}

// altFile reads which file o refers to: .gnu_debugaltlink is its name, NUL and its build ID; .debug_sup
// (DWARF 5, 7.3.6) is a version, a flag that reports whether this file itself is the supplementary one, a name,
// and a checksum with its length.
func (o *object) altFile() (name string, id []byte, link *section, err error) {
	const most = 1 << 16
	if link = &o.altLink; link.size > 0 {
		b, err := link.view(0, 1, most)
		if err != nil {
			return "", nil, link, err
		}
		c := elf.Cursor{Data: b}
		name = string(c.CString())
		if c.Bad {
			return "", nil, link, link.bad(0, "no name")
		}
		return name, append([]byte(nil), c.Data[c.Pos:]...), link, nil
	}
	if link = &o.sup; link.size > 0 {
		b, err := link.view(0, 1, most)
		if err != nil {
			return "", nil, link, err
		}
		c := elf.Cursor{Data: b}
		version, self := c.U16(), c.U8()
		name = string(c.CString())
		n := c.WrappedULEB()
		start := c.Pos
		c.Skip(n)
		if c.Bad || version != 5 || self != 0 {
			return "", nil, link, link.bad(0, "it does not name a supplementary file")
		}
		return name, append([]byte(nil), c.Data[start:c.Pos]...), link, nil
	}
	return "", nil, link, o.info.bad(0, "a reference to an alternate file that the file does not name")
}

func (f File) close() {
	if c, ok := f.ReaderAt.(io.Closer); ok {
		c.Close()
	}
}

func (o *object) close() {
	if o != nil && o.closer.ReaderAt != nil {
		o.closer.close()
	}
}
