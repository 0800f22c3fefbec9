package srcline

import "unspool/dwarfcfi/elf"

// form is how an attribute's value is encoded (DWARF 5, 7.5.6; those from 0x1f01 on are GNU's and precede the
// standard's).
type form uint16

const (
	formAddr          form = 0x01
	formBlock2        form = 0x03
	formBlock4        form = 0x04
	formData2         form = 0x05
	formData4         form = 0x06
	formData8         form = 0x07
	formString        form = 0x08
	formBlock         form = 0x09
	formBlock1        form = 0x0a
	formData1         form = 0x0b
	formFlag          form = 0x0c
	formSdata         form = 0x0d
	formStrp          form = 0x0e
	formUdata         form = 0x0f
	formRefAddr       form = 0x10
	formRef1          form = 0x11
	formRef2          form = 0x12
	formRef4          form = 0x13
	formRef8          form = 0x14
	formRefUdata      form = 0x15
	formIndirect      form = 0x16
	formSecOffset     form = 0x17
	formExprloc       form = 0x18
	formFlagPresent   form = 0x19
	formStrx          form = 0x1a
	formAddrx         form = 0x1b
	formRefSup4       form = 0x1c
	formStrpSup       form = 0x1d
	formData16        form = 0x1e
	formLineStrp      form = 0x1f
	formRefSig8       form = 0x20
	formImplicitConst form = 0x21
	formLoclistx      form = 0x22
	formRnglistx      form = 0x23
	formRefSup8       form = 0x24
	formStrx1         form = 0x25
	formStrx2         form = 0x26
	formStrx3         form = 0x27
	formStrx4         form = 0x28
	formAddrx1        form = 0x29
	formAddrx2        form = 0x2a
	formAddrx3        form = 0x2b
	formAddrx4        form = 0x2c
	formGNUAddrIndex  form = 0x1f01
	formGNUStrIndex   form = 0x1f02
	formGNURefAlt     form = 0x1f20
	formGNUStrpAlt    form = 0x1f21
)

// size returns the step past a value of the form in the unit, with its number of bytes when that is fixed.
func (f form) size(u *unit) (st step, n uint8, ok bool) {
	switch f {
	case formFlagPresent, formImplicitConst:
		return stepFixed, 0, true
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		return stepFixed, 1, true
	case formData2, formRef2, formStrx2, formAddrx2:
		return stepFixed, 2, true
	case formStrx3, formAddrx3:
		return stepFixed, 3, true
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		return stepFixed, 4, true
	case formData8, formRef8, formRefSig8, formRefSup8:
		return stepFixed, 8, true
	case formData16:
		return stepFixed, 16, true
	case formAddr:
		return stepFixed, u.addrSize, true
	case formStrp, formSecOffset, formStrpSup, formLineStrp, formGNURefAlt, formGNUStrpAlt:
		return stepFixed, u.offsetSize, true
	case formRefAddr:
		return stepFixed, u.refAddrSize(), true
	case formSdata, formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex,
		formGNUStrIndex:
		return stepLEB, 0, true
	case formString:
		return stepString, 0, true
	case formBlock, formExprloc:
		return stepBlock, 0, true
	case formBlock1:
		return stepBlock1, 0, true
	case formBlock2:
		return stepBlock2, 0, true
	case formBlock4:
		return stepBlock4, 0, true
	case formIndirect:
		return stepIndirect, 0, true
	}
	return 0, 0, false
}

// isUnitRef reports whether the form is an offset from the start of the unit.
func (f form) isUnitRef() bool { return f >= formRef1 && f <= formRefUdata }

// value is the value of an attribute in the file: a number, an offset or an index, depending on the form. The
// value of formString is the position of the string in the cursor's data; blocks have no value.
type value struct {
	form form
	u    uint64
}

// readValue reads a value in the unit.
func readValue(c *elf.Cursor, s *spec, u *unit) value {
	v := value{form: s.form}
	switch s.step {
	case stepFixed:
		switch s.size {
		case 0:
			v.u = 1 // DW_FORM_flag_present
			if s.form == formImplicitConst {
				v.u = uint64(s.implicit)
			}
		case 16:
			c.Skip(16)
		default:
			v.u = c.Uint(s.size)
		}
	case stepLEB:
		if s.form == formSdata {
			v.u = uint64(c.SLEB())
		} else {
			v.u = c.WrappedULEB()
		}
	case stepString:
		v.u = uint64(c.Pos)
		c.CString()
	case stepIndirect:
		return readIndirect(c, u)
	default:
		skipStep(c, s.step, u)
	}
	return v
}

// readIndirect reads a value whose form precedes it. If it does not know the form, or the form is indirect
// again, it makes c bad.
func readIndirect(c *elf.Cursor, u *unit) value {
	f := form(min(c.WrappedULEB(), 0xffff))
	s, ok := newSpec(0, f, u)
	if !ok || f == formIndirect || f == formImplicitConst {
		c.Bad = true
		return value{}
	}
	return readValue(c, &s, u)
}

// isAddress reports whether the form is an address or an index of one.
func (f form) isAddress() bool {
	return f == formAddr || f == formAddrx || f == formGNUAddrIndex || f >= formAddrx1 && f <= formAddrx4
}

// address looks an address up.
func (u *unit) address(v value) (uint64, error) {
	if v.form == formAddr {
		return v.u, nil
	}
	return u.addrx(v.u)
}

// addrx is the i-th entry of the unit's part of .debug_addr.
func (u *unit) addrx(i uint64) (uint64, error) {
	owner := u
	if u.skeleton != nil {
		owner = u.skeleton
	}
	if i > owner.obj.addr.size {
		return 0, owner.obj.addr.bad(owner.addrBase, "address index out of range")
	}
	return owner.obj.addr.uint(owner.addrBase+i*uint64(u.addrSize), u.addrSize)
}

// string looks up a string; the offset of a formString is relative to base, in .debug_info.
func (d *Data) string(u *unit, v value, base uint64) (string, error) {
	s, err := d.lookup(u, v, base)
	// Strings may overlap, so together they can be much longer than the sections that hold them.
	if !d.spend(workPerChar * len(s)) {
		return "", u.obj.info.bad(base, errWork.Error())
	}
	return s, err
}

func (d *Data) lookup(u *unit, v value, base uint64) (string, error) {
	o := u.obj
	switch v.form {
	case formString:
		return o.info.string(base + v.u)
	case formStrp:
		return o.str.string(v.u)
	case formLineStrp:
		return o.lineStr.string(v.u)
	case formStrpSup, formGNUStrpAlt:
		alt, err := d.alt(o)
		if err != nil {
			return "", err
		}
		return alt.str.string(v.u)
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		if v.u > o.strOffsets.size {
			return "", o.strOffsets.bad(u.strOffsetsBase, "string index out of range")
		}
		off, err := o.strOffsets.uint(u.strOffsetsBase+v.u*uint64(u.offsetSize), u.offsetSize)
		if err != nil {
			return "", err
		}
		return o.str.string(off)
	}
	return "", o.info.bad(base, "a name that is no string")
}
