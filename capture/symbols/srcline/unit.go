package srcline

import (
	"debug/dwarf"
	"fmt"

	"unspool/dwarfcfi/elf"
)

// unit is a unit of .debug_info: its header, and those attributes of its first DIE on which others depend.
type unit struct {
	obj        *object
	off, end   uint64 // of the header, and behind the last DIE, in .debug_info
	die        uint64 // of the first DIE
	version    uint16
	kind       uint8 // DW_UT_*; 0 before DWARF 5, as it is not known
	addrSize   uint8
	offsetSize uint8
	abbrevOff  uint64
	dwoID      uint64 // pairs a skeleton unit with its split unit

	tag              dwarf.Tag
	low              uint64 // base of the ranges and of DWARF's base address
	pc               pcRange
	lineOff          uint64
	hasLine          bool
	compDir, dwoName string
	strOffsetsBase   uint64
	addrBase         uint64
	rangesBase       uint64 // of the split unit's DW_AT_ranges: DW_AT_GNU_ranges_base
	rnglistsBase     uint64

	skeleton *unit // of a split unit
}

// DW_UT_* (DWARF 5, 7.5.1)
const (
	unitCompile      = 0x01
	unitType         = 0x02
	unitPartial      = 0x03
	unitSkeleton     = 0x04
	unitSplitCompile = 0x05
	unitSplitType    = 0x06
)

// pcRange has the attributes that say where a DIE's code is.
type pcRange struct {
	low, high, ranges          value
	hasLow, hasHigh, hasRanges bool
}

func (u *unit) refAddrSize() uint8 {
	if u.version == 2 {
		return u.addrSize
	}
	return u.offsetSize
}

// maxHeader is how long the header of a unit can be.
const maxHeader = 12 + 2 + 2 + 8 + 8 + 8

// parseUnit reads the header of the unit at off.
func (o *object) parseUnit(off uint64) (*unit, error) {
	b, err := o.info.view(off, 11, maxHeader)
	if err != nil {
		return nil, err
	}
	c := elf.Cursor{Data: b}
	u := &unit{obj: o, off: off}
	var n uint64
	n, u.offsetSize = c.Length()
	start := off + uint64(c.Pos)
	if c.Bad || n > o.info.size-start {
		return nil, o.info.bad(off, "a unit reaches beyond the end of the section")
	}
	u.end = start + n
	u.version = c.U16()
	switch {
	case u.version < 2 || u.version > 5:
		return u, o.info.unsupported(off, fmt.Sprintf("DWARF version %d", u.version))
	case u.version == 5:
		u.kind, u.addrSize = c.U8(), c.U8()
		u.abbrevOff = c.Uint(u.offsetSize)
		switch u.kind {
		case unitSkeleton, unitSplitCompile:
			u.dwoID = c.U64()
		case unitType, unitSplitType:
			c.Skip(8 + uint64(u.offsetSize))
		}
	default:
		u.abbrevOff = c.Uint(u.offsetSize)
		u.addrSize = c.U8()
	}
	u.die = off + uint64(c.Pos)
	if c.Bad || u.die > u.end {
		return u, o.info.bad(off, "unit header cut short")
	}
	if u.addrSize != 4 && u.addrSize != 8 {
		return u, o.info.unsupported(off, fmt.Sprintf("addresses of %d bytes", u.addrSize))
	}
	return u, nil
}

// indexUnits finds where the units start. After an error, the units behind it are not known.
func (d *Data) indexUnits(o *object) error {
	if o.starts != nil {
		return nil
	}
	if err := o.info.open(); err != nil {
		return err
	}
	for off := uint64(0); off < o.info.size; {
		u, err := o.parseUnit(off)
		if u == nil || u.end == 0 {
			return err
		}
		if !d.spend(maxHeader) {
			return o.info.bad(off, errWork.Error())
		}
		o.starts = append(o.starts, off)
		off = u.end
	}
	return nil
}

// maxUnits is how many parsed units of an object are kept for references into them.
const maxUnits = 1024

// unitAt returns the unit that contains the offset in .debug_info.
func (d *Data) unitAt(o *object, off uint64) (*unit, error) {
	if err := d.indexUnits(o); err != nil && len(o.starts) == 0 {
		return nil, err
	}
	i := search(o.starts, off+1) - 1
	if i < 0 {
		return nil, o.info.bad(off, "a reference into no unit")
	}
	if u := o.units[o.starts[i]]; u != nil {
		return u, nil
	}
	return d.readUnit(o, o.starts[i])
}

// readUnit reads the header and the first DIE of the unit at off.
func (d *Data) readUnit(o *object, off uint64) (*unit, error) {
	u, err := o.parseUnit(off)
	if err != nil {
		return nil, err
	}
	if err := d.readRoot(u); err != nil {
		return nil, err
	}
	if o.units == nil || len(o.units) >= maxUnits {
		o.units = make(map[uint64]*unit)
	}
	o.units[off] = u
	return u, nil
}

// Attributes that debug/dwarf does not know: GNU's of split DWARF 4, and of dwz.
const (
	attrGNUDwoName    dwarf.Attr = 0x2130
	attrGNUDwoID      dwarf.Attr = 0x2131
	attrGNURangesBase dwarf.Attr = 0x2132
	attrGNUAddrBase   dwarf.Attr = 0x2133
	attrMIPSLinkage   dwarf.Attr = 0x2007
)

// readRoot reads the unit's first DIE.
func (d *Data) readRoot(u *unit) error {
	if u.kind == unitType || u.kind == unitSplitType || u.die == u.end {
		return nil
	}
	if u.obj.dwo && u.version == 5 {
		// A .dwo file has one table of each kind, and no attribute says where it begins: behind its header
		// (DWARF 5, 7.26 and 7.28).
		u.strOffsetsBase = 8
		u.rnglistsBase = 12
		if u.offsetSize == 8 {
			u.strOffsetsBase, u.rnglistsBase = 16, 20
		}
	}
	var compDir, dwoName value
	err := d.readDIE(u, u.die, func(attr dwarf.Attr, v value) {
		switch attr {
		case dwarf.AttrStmtList:
			u.lineOff, u.hasLine = v.u, true
		case dwarf.AttrCompDir:
			compDir = v
		case dwarf.AttrDwoName, attrGNUDwoName:
			dwoName = v
		case attrGNUDwoID:
			u.dwoID = v.u
		case dwarf.AttrStrOffsetsBase:
			u.strOffsetsBase = v.u
		case dwarf.AttrAddrBase, attrGNUAddrBase:
			u.addrBase = v.u
		case dwarf.AttrRnglistsBase:
			u.rnglistsBase = v.u
		case attrGNURangesBase:
			u.rangesBase = v.u
		default:
			u.pc.set(attr, v)
		}
	}, &u.tag)
	if err != nil {
		return err
	}
	if u.pc.hasLow && !u.obj.dwo {
		if u.low, err = u.address(u.pc.low); err != nil {
			return err
		}
	}
	if compDir.form != 0 {
		if u.compDir, err = d.string(u, compDir, u.die); err != nil {
			d.problems.add(err)
		}
	}
	if dwoName.form != 0 {
		if u.dwoName, err = d.string(u, dwoName, u.die); err != nil {
			return err
		}
	}
	return nil
}

// set keeps the attribute if it says where code is.
func (p *pcRange) set(attr dwarf.Attr, v value) {
	switch attr {
	case dwarf.AttrLowpc:
		p.low, p.hasLow = v, v.form.isAddress()
	case dwarf.AttrHighpc:
		p.high, p.hasHigh = v, true
	case dwarf.AttrRanges:
		p.ranges, p.hasRanges = v, true
	}
}

// readDIE calls each with the attributes of the DIE at off in .debug_info. Offsets of strings in it are
// relative to off.
func (d *Data) readDIE(u *unit, off uint64, each func(dwarf.Attr, value), tag *dwarf.Tag) error {
	if off < u.die || off >= u.end {
		return u.obj.info.bad(off, "a reference to no DIE")
	}
	table, err := d.abbrevs(u)
	if err != nil {
		return err
	}
	// A DIE does not say how long it is; nearly all are shorter than this.
	for n := uint64(512); ; n *= 16 {
		rest := u.end - off
		if !d.spend(int(min(n, rest))) {
			return u.obj.info.bad(off, errWork.Error())
		}
		b, err := u.obj.info.at(off, min(n, rest))
		if err != nil {
			return err
		}
		c := elf.Cursor{Data: b}
		code := c.WrappedULEB()
		a := table.lookup(code)
		if a == nil {
			return u.obj.info.bad(off, fmt.Sprintf("abbreviation %d does not exist", code))
		}
		probe := c
		a.skipDIE(&probe, u)
		if probe.Bad && n < rest {
			continue
		}
		if probe.Bad {
			return u.obj.info.bad(off, "a DIE reaches beyond the end of the unit")
		}
		if tag != nil {
			*tag = a.tag
		}
		for i := range a.specs {
			each(a.specs[i].attr, readValue(&c, &a.specs[i], u))
		}
		return nil
	}
}

// reference is the place of a DIE: the file and the offset.
type reference struct {
	obj *object
	off uint64 // in .debug_info
}

// resolve finds what a reference of the unit points to.
func (d *Data) resolve(u *unit, v value) (reference, error) {
	switch {
	case v.form.isUnitRef():
		if v.u >= u.end-u.off {
			return reference{}, u.obj.info.bad(u.off, "a reference beyond the end of the unit")
		}
		return reference{u.obj, u.off + v.u}, nil
	case v.form == formRefAddr:
		return reference{u.obj, v.u}, nil
	case v.form == formGNURefAlt, v.form == formRefSup4, v.form == formRefSup8:
		alt, err := d.alt(u.obj)
		return reference{alt, v.u}, err
	}
	return reference{}, u.obj.info.unsupported(u.off,
		fmt.Sprintf("a function that is referred to by form %#x", uint16(v.form)))
}
