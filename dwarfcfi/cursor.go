package dwarfcfi

import "encoding/binary"

// cursor reads little-endian values from data, starting at pos. Reading past the end sets
// bad and yields zeroes from then on, so that a reader checks once, after a group of
// fields.
type cursor struct {
	data []byte
	pos  int
	bad  bool
}

// take returns the next n bytes, nil when there are fewer.
func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.data)-c.pos {
		c.bad = true
		return nil
	}
	b := c.data[c.pos : c.pos+n]
	c.pos += n
	return b
}

func (c *cursor) u8() uint8 {
	if c.bad || c.pos >= len(c.data) {
		c.bad = true
		return 0
	}
	b := c.data[c.pos]
	c.pos++
	return b
}

func (c *cursor) u16() uint16 {
	b := c.take(2)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint16(b)
}

func (c *cursor) u32() uint32 {
	b := c.take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

func (c *cursor) u64() uint64 {
	b := c.take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// uint reads an unsigned value of size 1, 2, 4 or 8 bytes.
func (c *cursor) uint(size uint8) uint64 {
	switch size {
	case 1:
		return uint64(c.u8())
	case 2:
		return uint64(c.u16())
	case 4:
		return uint64(c.u32())
	case 8:
		return c.u64()
	}
	c.bad = true
	return 0
}

// uleb reads an unsigned LEB128 number. Padding beyond 64 bits is accepted, as
// assemblers emit it; bits lost beyond 64 make the number bad.
func (c *cursor) uleb() uint64 {
	if !c.bad && c.pos < len(c.data) && c.data[c.pos] < 0x80 {
		b := c.data[c.pos]
		c.pos++
		return uint64(b)
	}
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := c.u8()
		if c.bad {
			return 0
		}
		low := uint64(b & 0x7f)
		if shift < 64 {
			v |= low << shift
			if low<<shift>>shift != low {
				c.bad = true
			}
		} else if low != 0 {
			c.bad = true
		}
		if b < 0x80 {
			return v
		}
	}
}

// sleb reads a signed LEB128 number, wrapped to 64 bits.
func (c *cursor) sleb() int64 {
	var v int64
	for shift := uint(0); ; {
		b := c.u8()
		if c.bad {
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

// block reads a DW_FORM_exprloc: a ULEB128 length and that many bytes.
func (c *cursor) block() []byte {
	n := c.uleb()
	if n > uint64(len(c.data)) {
		c.bad = true
		return nil
	}
	return c.take(int(n))
}
