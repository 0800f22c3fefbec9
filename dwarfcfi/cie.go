package dwarfcfi

import (
	"bytes"

	"unspool/dwarfcfi/elf"
)

// CIE is a decoded common information entry. It is shared by the FDEs that name it and
// must not be changed. Its initial instructions are executed when a row first needs them.
type CIE struct {
	Offset       uint64 // of the entry in its section
	Version      uint8
	Augmentation string
	CodeAlign    uint64 // factor of advance_loc
	DataAlign    int64  // factor of offsets
	RA           uint8  // return address column
	Signal       bool   // 'S': a signal frame; look its return address up unadjusted

	code       span  // initial instructions
	pointerEnc uint8 // 'R'
	addrSize   uint8
	segSize    uint8
	sized      bool  // 'z': augmentation data has a length, also in FDEs
	initial    Rules // the result of code; valid once executed is set
	executed   bool
}

// span is a range of bytes of a section.
type span struct{ start, end uint32 }

// Limits on what an entry may ask for. Real entries stay far below: the longest program
// in libLLVM has some thousand bytes.
const (
	maxProgram      = 1 << 16 // bytes of call frame instructions in one entry
	maxAugmentation = 32      // bytes of an augmentation string and its zero
)

// entry is the header of a CIE or FDE.
type entry struct {
	offset uint64 // of the entry's length field
	body   int    // position after the CIE id or CIE pointer
	end    int    // position of the next entry
	isCIE  bool
	cie    uint64 // an FDE's CIE: its offset in the section
	zero   bool   // a zero terminator: no body
}

// entry reads the entry header at offset. On an error, end is still the position of the next entry
// if the length could be read, and 0 if not.
func (f *frames) entry(offset uint64) (entry, error) {
	e := entry{offset: offset}
	if offset >= uint64(len(f.Data)) {
		return e, f.bad(offset, "entry is outside the section")
	}
	const most = 64 // bytes: nearly every entry is shorter, and every header
	if err := f.fetch(int(offset), min(int(offset)+most, len(f.Data))); err != nil {
		return e, err
	}
	c := elf.Cursor{Data: f.Data, Pos: int(offset)}
	length, wide := uint64(c.U32()), false
	if length == 0xffffffff { // DWARF64
		length, wide = c.U64(), true
	} else if length >= 0xfffffff0 {
		return e, f.bad(offset, "reserved entry length")
	}
	if c.Bad || length > uint64(len(f.Data)-c.Pos) {
		return e, f.bad(offset, "entry runs past the end of the section")
	}
	e.end = c.Pos + int(length)
	if length == 0 {
		e.zero = true
		return e, nil
	}
	if e.end > int(offset)+most {
		if err := f.fetch(int(offset), e.end); err != nil {
			return entry{offset: offset}, err
		}
	}
	at := uint64(c.Pos)
	c.Data = f.Data[:e.end]
	if f.eh {
		// Four bytes wide even if the length has 64 bits: zero in a CIE, the distance back from
		// here to the CIE in an FDE.
		back := uint64(c.U32())
		e.isCIE, e.cie = back == 0, at-back
		if back > at {
			return e, f.bad(offset, "CIE pointer of an FDE leads to a place before the section")
		}
	} else if wide {
		e.cie = c.U64()
		e.isCIE = e.cie == 1<<64-1
	} else {
		e.cie = uint64(c.U32())
		e.isCIE = e.cie == 1<<32-1
	}
	if c.Bad {
		return e, f.bad(offset, "entry is cut short")
	}
	e.body = c.Pos
	return e, nil
}

// cie returns the CIE at offset, from the cache if it is there.
func (f *frames) cie(offset uint64) (*CIE, error) {
	slot := &f.cies[offset*0x9e3779b97f4a7c15>>(64-cieCacheBits)]
	if *slot != nil && (*slot).Offset == offset {
		return *slot, nil
	}
	cie, err := f.parseCIE(offset)
	if err != nil {
		return nil, err
	}
	*slot = cie
	return cie, nil
}

func (f *frames) parseCIE(offset uint64) (*CIE, error) {
	e, err := f.entry(offset)
	if err != nil {
		return nil, err
	}
	if e.zero || !e.isCIE {
		return nil, f.bad(offset, "CIE pointer of an FDE does not lead to a CIE")
	}
	c := elf.Cursor{Data: f.Data[:e.end], Pos: e.body}
	cie := &CIE{Offset: offset, Version: c.U8(), addrSize: f.ptrSize, pointerEnc: peAbsptr}
	if v := cie.Version; !c.Bad && v != 1 && v != 3 && v != 4 {
		return nil, f.bad(offset, "unknown CIE version")
	}
	n := bytes.IndexByte(c.Data[c.Pos:min(c.Pos+maxAugmentation, len(c.Data))], 0)
	if n < 0 {
		return nil, f.bad(offset, "CIE augmentation has no end")
	}
	augmentation := c.Take(n)
	c.U8()
	cie.Augmentation = string(augmentation)
	if cie.Augmentation == "eh" { // gcc 2: a pointer to exception data stands next
		c.Take(int(f.ptrSize))
	}
	if cie.Version >= 4 {
		cie.addrSize, cie.segSize = c.U8(), c.U8()
		if a := cie.addrSize; !c.Bad && a != 4 && a != 8 {
			return nil, f.bad(offset, "CIE has an address size other than 4 and 8")
		}
		if s := cie.segSize; s > 8 {
			return nil, f.bad(offset, "CIE has a segment selector wider than 8 bytes")
		}
	}
	cie.CodeAlign = c.ULEB()
	cie.DataAlign = c.SLEB()
	ra := uint64(0)
	if cie.Version == 1 {
		ra = uint64(c.U8())
	} else {
		ra = c.ULEB()
	}
	if c.Bad {
		return nil, f.bad(offset, "CIE is cut short")
	}
	if ra >= NumRegs {
		return nil, f.bad(offset, "return address column is out of range")
	}
	cie.RA = uint8(ra)
	if err := f.augment(cie, &c, augmentation); err != nil {
		return nil, err
	}
	if e.end-c.Pos > maxProgram {
		return nil, f.bad(offset, "CIE has too many instructions")
	}
	cie.code = span{uint32(c.Pos), uint32(e.end)}
	return cie, nil
}

// execute runs the initial instructions, unless that was done already.
func (cie *CIE) execute(f *frames) error {
	if cie.executed {
		return nil
	}
	p := program{frames: f, cie: cie, initial: true, remembered: &f.remembered}
	p.c = elf.Cursor{Data: f.Data[:cie.code.end], Pos: int(cie.code.start)}
	cie.initial = Rules{}
	_, _, err := p.run(&cie.initial)
	cie.executed = err == nil
	return err
}

// augment reads the augmentation data of a CIE and leaves c at its instructions.
func (f *frames) augment(cie *CIE, c *elf.Cursor, augmentation []byte) error {
	if len(augmentation) == 0 || cie.Augmentation == "eh" {
		return nil
	}
	if augmentation[0] != 'z' {
		return f.bad(cie.Offset, "unknown augmentation without a length")
	}
	cie.sized = true
	n := c.ULEB()
	if c.Bad || n > uint64(len(c.Data)-c.Pos) {
		return f.bad(cie.Offset, "augmentation data runs past the end of the CIE")
	}
	end := c.Pos + int(n)
	d := elf.Cursor{Data: c.Data[:end], Pos: c.Pos}
	c.Pos = end
	b := f.bases(cie)
letters:
	for _, letter := range augmentation[1:] {
		switch letter {
		case 'R':
			cie.pointerEnc = d.U8()
		case 'P':
			enc := d.U8()
			b.skip(&d, enc)
		case 'L':
			d.U8()
		case 'S':
			cie.Signal = true
		case 'B', 'G': // aarch64: signed with key B; stack is tagged (MTE)
		default:
			break letters // the length says where the instructions start
		}
	}
	if d.Bad {
		return f.bad(cie.Offset, "augmentation data is cut short")
	}
	return nil
}

// bases for pointers in the entries of cie.
func (f *frames) bases(cie *CIE) bases {
	return bases{section: f.Addr, text: f.text, data: f.data, ptrSize: cie.addrSize}
}
