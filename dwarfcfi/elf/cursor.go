package elf

import (
	"bytes"
	"encoding/binary"
)

// Cursor reads little-endian values from data, starting at Pos. Reading past the end sets
// Bad and yields zeroes from then on, so that its user can check once, after a group of
// fields.
type Cursor struct {
	Data []byte
	Pos  int
	Bad  bool
}

// Take returns the next n bytes, nil when there are fewer.
func (c *Cursor) Take(n int) []byte {
	if c.Bad || n < 0 || n > len(c.Data)-c.Pos {
		c.Bad = true
		return nil
	}
	b := c.Data[c.Pos : c.Pos+n]
	c.Pos += n
	return b
}

// Skip steps over the next n bytes.
func (c *Cursor) Skip(n uint64) {
	if c.Bad || n > uint64(len(c.Data)-c.Pos) {
		c.Bad = true
		return
	}
	c.Pos += int(n)
}

func (c *Cursor) U8() uint8 {
	if c.Bad || c.Pos >= len(c.Data) {
		c.Bad = true
		return 0
	}
	b := c.Data[c.Pos]
	c.Pos++
	return b
}

func (c *Cursor) U16() uint16 {
	if c.Bad || len(c.Data)-c.Pos < 2 {
		c.Bad = true
		return 0
	}
	v := binary.LittleEndian.Uint16(c.Data[c.Pos:])
	c.Pos += 2
	return v
}

func (c *Cursor) U32() uint32 {
	if c.Bad || len(c.Data)-c.Pos < 4 {
		c.Bad = true
		return 0
	}
	v := binary.LittleEndian.Uint32(c.Data[c.Pos:])
	c.Pos += 4
	return v
}

func (c *Cursor) U64() uint64 {
	if c.Bad || len(c.Data)-c.Pos < 8 {
		c.Bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(c.Data[c.Pos:])
	c.Pos += 8
	return v
}

// Uint reads an unsigned value of 1, 2, 3, 4 or 8 bytes.
func (c *Cursor) Uint(size uint8) uint64 {
	switch size {
	case 1:
		return uint64(c.U8())
	case 2:
		return uint64(c.U16())
	case 4:
		return uint64(c.U32())
	case 8:
		return c.U64()
	case 3:
		low := uint64(c.U16())
		return low | uint64(c.U8())<<16
	}
	c.Bad = true
	return 0
}

// ULEB reads an unsigned LEB128 number. Padding beyond 64 bits is accepted, as
// assemblers emit it; bits lost beyond 64 make the number bad.
func (c *Cursor) ULEB() uint64 {
	if v, ok := c.ShortULEB(); ok {
		return v
	}
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := c.U8()
		if c.Bad {
			return 0
		}
		low := uint64(b & 0x7f)
		if shift < 64 {
			v |= low << shift
			if low<<shift>>shift != low {
				c.Bad = true
			}
		} else if low != 0 {
			c.Bad = true
		}
		if b < 0x80 {
			return v
		}
	}
}

// ShortULEB is ULEB for a number of one byte, as most are, and is inlined. Where it has more, ok is false and
// nothing is read.
func (c *Cursor) ShortULEB() (v uint64, ok bool) {
	if c.Bad || c.Pos >= len(c.Data) || c.Data[c.Pos] >= 0x80 {
		return 0, false
	}
	v = uint64(c.Data[c.Pos])
	c.Pos++
	return v, true
}

// WrappedULEB is ULEB modulo 2^64: bits beyond that are ignored, as readers of .debug_info do.
func (c *Cursor) WrappedULEB() uint64 {
	if !c.Bad && c.Pos < len(c.Data) && c.Data[c.Pos] < 0x80 {
		b := c.Data[c.Pos]
		c.Pos++
		return uint64(b)
	}
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := c.U8()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}

// SLEB reads a signed LEB128 number, wrapped to 64 bits.
func (c *Cursor) SLEB() int64 {
	var v int64
	for shift := uint(0); ; {
		b := c.U8()
		if c.Bad {
			return 0
		}
		v |= int64(b&0x7f) << shift
		shift += 7
		if b < 0x80 {
			if b&0x40 != 0 {
				v |= -1 << shift
			}
			return v
		}
	}
}

// Block reads a DW_FORM_exprloc: a ULEB128 length and that many bytes.
func (c *Cursor) Block() []byte {
	n := c.ULEB()
	if n > uint64(len(c.Data)) {
		c.Bad = true
		return nil
	}
	return c.Take(int(n))
}

// CString reads a NUL-terminated string.
func (c *Cursor) CString() []byte {
	if c.Bad || c.Pos > len(c.Data) {
		c.Bad = true
		return nil
	}
	n := bytes.IndexByte(c.Data[c.Pos:], 0)
	if n < 0 {
		c.Bad = true
		return nil
	}
	s := c.Data[c.Pos : c.Pos+n]
	c.Pos += n + 1
	return s
}

// Length reads an initial length (DWARF 5, 7.4) and says how wide offsets are in what
// follows: 4 bytes or 8.
func (c *Cursor) Length() (n uint64, offsetSize uint8) {
	n = uint64(c.U32())
	switch {
	case n == 0xffffffff:
		return c.U64(), 8
	case n >= 0xfffffff0:
		c.Bad = true
	}
	return n, 4
}
