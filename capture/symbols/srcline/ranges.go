package srcline

import (
	"fmt"

	"unspool/dwarfcfi/elf"
)

// each calls f with the address ranges [lo, hi) of a DIE in the unit. Ranges that start at 0 belong to
// functions that the linker dropped, and are left out.
func (d *Data) each(u *unit, p *pcRange, f func(lo, hi uint64)) error {
	report := func(lo, hi uint64) {
		if lo < hi && lo != 0 {
			f(lo, hi)
		}
	}
	switch {
	case p.hasRanges:
		return d.rangeList(u, p.ranges, report)
	case p.hasLow && p.hasHigh:
		lo, err := u.address(p.low)
		if err != nil {
			return err
		}
		hi := lo + p.high.u
		if p.high.form.isAddress() {
			if hi, err = u.address(p.high); err != nil {
				return err
			}
		}
		report(lo, hi)
	}
	return nil
}

// rangeList decodes the list that a DW_AT_ranges points to.
func (d *Data) rangeList(u *unit, v value, f func(lo, hi uint64)) error {
	base := u.low
	if u.skeleton != nil {
		base = u.skeleton.low
	}
	if u.version < 5 {
		off, owner := v.u, u
		if u.skeleton != nil { // GNU's split DWARF 4 leaves the ranges in the linked file
			owner = u.skeleton
			off += owner.rangesBase
		}
		return d.rangesV4(&owner.obj.ranges, off, u.addrSize, base, f)
	}
	s, off := &u.obj.rnglists, v.u
	if v.form == formRnglistx {
		if v.u > s.size {
			return s.bad(u.rnglistsBase, "range list index out of range")
		}
		rel, err := s.uint(u.rnglistsBase+v.u*uint64(u.offsetSize), u.offsetSize)
		if err != nil {
			return err
		}
		off = u.rnglistsBase + rel
	}
	return d.rangesV5(u, s, off, base, f)
}

// rangesV4 decodes pairs of addresses relative to base (DWARF 4, 2.17.3). A pair whose first address is all
// ones sets base; a pair of zeros ends the list.
func (d *Data) rangesV4(s *section, off uint64, addrSize uint8, base uint64, f func(lo, hi uint64)) error {
	last := ^uint64(0) >> (64 - 8*uint(addrSize))
	for size := 2 * uint64(addrSize); ; off += size {
		b, err := s.at(off, size)
		if err != nil {
			return err
		}
		if !d.spend(len(b)) {
			return s.bad(off, errWork.Error())
		}
		c := elf.Cursor{Data: b}
		lo, hi := c.Uint(addrSize), c.Uint(addrSize)
		switch {
		case lo == 0 && hi == 0:
			return nil
		case lo == last:
			base = hi
		default:
			f(base+lo, base+hi)
		}
	}
}

// DW_RLE_* (DWARF 5, 7.25)
const (
	rleEnd = iota
	rleBaseAddressx
	rleStartxEndx
	rleStartxLength
	rleOffsetPair
	rleBaseAddress
	rleStartEnd
	rleStartLength
)

// maxRangeEntry is the longest entry: a byte and two numbers.
const maxRangeEntry = 1 + 2*10

func (d *Data) rangesV5(u *unit, s *section, off, base uint64, f func(lo, hi uint64)) error {
	for {
		b, err := s.view(off, 1, maxRangeEntry)
		if err != nil {
			return err
		}
		c := elf.Cursor{Data: b}
		var lo, hi uint64
		var bad error
		index := func() uint64 {
			addr, err := u.addrx(c.WrappedULEB())
			if err != nil && bad == nil {
				bad = err
			}
			return addr
		}
		kind := c.U8()
		switch kind {
		case rleEnd:
			return nil
		case rleBaseAddressx:
			base = index()
		case rleStartxEndx:
			lo = index()
			hi = index()
		case rleStartxLength:
			lo = index()
			hi = lo + c.WrappedULEB()
		case rleOffsetPair:
			lo = base + c.WrappedULEB()
			hi = base + c.WrappedULEB()
		case rleBaseAddress:
			base = c.Uint(u.addrSize)
		case rleStartEnd:
			lo, hi = c.Uint(u.addrSize), c.Uint(u.addrSize)
		case rleStartLength:
			lo = c.Uint(u.addrSize)
			hi = lo + c.WrappedULEB()
		default:
			return s.bad(off, fmt.Sprintf("unknown range list entry %d", kind))
		}
		if bad != nil {
			return bad
		}
		if c.Bad {
			return s.bad(off, "a range list reaches beyond the end of the section")
		}
		if !d.spend(c.Pos) {
			return s.bad(off, errWork.Error())
		}
		if lo < hi {
			f(lo, hi)
		}
		off += uint64(c.Pos)
	}
}
