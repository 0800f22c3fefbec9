package elf

import "encoding/binary"

// Cursor reads little-endian values from data, starting at Pos. Reading past the end sets
// Bad and yields zeroes from then on, so that a reader checks once, after a group of
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
	b := c.Take(2)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint16(b)
}

func (c *Cursor) U32() uint32 {
	b := c.Take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

func (c *Cursor) U64() uint64 {
	b := c.Take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// Uint reads an unsigned value of size 1, 2, 4 or 8 bytes.
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
	}
	c.Bad = true
	return 0
}

// ULEB reads an unsigned LEB128 number. Padding beyond 64 bits is accepted, as
// assemblers emit it; bits lost beyond 64 make the number bad.
func (c *Cursor) ULEB() uint64 {
	if !c.Bad && c.Pos < len(c.Data) && c.Data[c.Pos] < 0x80 {
		b := c.Data[c.Pos]
		c.Pos++
		return uint64(b)
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
