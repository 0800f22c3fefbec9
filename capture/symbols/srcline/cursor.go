package srcline

import (
	"bytes"
	"encoding/binary"
)

// cursor reads little-endian values from data, starting at pos. Reading past the end sets bad and yields zeroes from then
// on, so that a reader checks once, after a group of fields.
type cursor struct {
	data []byte
	pos  int
	bad  bool
}

func (c *cursor) skip(n uint64) {
	if c.bad || n > uint64(len(c.data)-c.pos) {
		c.bad = true
		return
	}
	c.pos += int(n)
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
	if c.bad || len(c.data)-c.pos < 2 {
		c.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint16(c.data[c.pos:])
	c.pos += 2
	return v
}

func (c *cursor) u32() uint32 {
	if c.bad || len(c.data)-c.pos < 4 {
		c.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint32(c.data[c.pos:])
	c.pos += 4
	return v
}

func (c *cursor) u64() uint64 {
	if c.bad || len(c.data)-c.pos < 8 {
		c.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(c.data[c.pos:])
	c.pos += 8
	return v
}

// uint reads an unsigned value of 1, 2, 3, 4 or 8 bytes.
func (c *cursor) uint(size uint8) uint64 {
	switch size {
	case 1:
		return uint64(c.u8())
	case 2:
		return uint64(c.u16())
	case 3:
		low := uint64(c.u16())
		return low | uint64(c.u8())<<16
	case 4:
		return uint64(c.u32())
	case 8:
		return c.u64()
	}
	c.bad = true
	return 0
}

// uleb reads an unsigned LEB128 number, modulo 2^64.
func (c *cursor) uleb() uint64 {
	if !c.bad && c.pos < len(c.data) && c.data[c.pos] < 0x80 {
		b := c.data[c.pos]
		c.pos++
		return uint64(b)
	}
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := c.u8()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}

// sleb reads a signed LEB128 number, modulo 2^64.
func (c *cursor) sleb() int64 {
	var v int64
	for shift := uint(0); ; {
		b := c.u8()
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

// string reads a NUL-terminated string.
func (c *cursor) string() []byte {
	if c.bad {
		return nil
	}
	n := bytes.IndexByte(c.data[c.pos:], 0)
	if n < 0 {
		c.bad = true
		return nil
	}
	s := c.data[c.pos : c.pos+n]
	c.pos += n + 1
	return s
}

// length reads an initial length (DWARF 5, 7.4) and tells how wide offsets are in what follows: 4 bytes or 8.
func (c *cursor) length() (n uint64, offsetSize uint8) {
	n = uint64(c.u32())
	switch {
	case n == 0xffffffff:
		return c.u64(), 8
	case n >= 0xfffffff0:
		c.bad = true
	}
	return n, 4
}
