package dwarfcfi

import "unspool/dwarfcfi/elf"

// Pointer encodings of .eh_frame and .eh_frame_hdr (LSB Core 5.0, 10.5.1): a format in the
// low four bits, what the value is relative to in the next three, and a flag for a pointer
// to the pointer.
const (
	peAbsptr  = 0x00
	peULEB128 = 0x01
	peUdata2  = 0x02
	peUdata4  = 0x03
	peUdata8  = 0x04
	peSigned  = 0x08
	peSLEB128 = 0x09
	peSdata2  = 0x0a
	peSdata4  = 0x0b
	peSdata8  = 0x0c

	pePCRel    = 0x10
	peTextRel  = 0x20
	peDataRel  = 0x30
	peFuncRel  = 0x40
	peAligned  = 0x50
	peIndirect = 0x80
	peOmit     = 0xff

	peFormat = 0x0f
	peBase   = 0x70
)

// bases are the addresses that encoded pointers are relative to.
type bases struct {
	section uint64 // address of the first byte of the cursor's data: pcrel
	text    uint64 // textrel
	data    uint64 // datarel
	fn      uint64 // funcrel
	ptrSize uint8
}

// clip cuts an address to the width of the image's pointers.
func (b *bases) clip(v uint64) uint64 {
	if b.ptrSize == 4 {
		return uint64(uint32(v))
	}
	return v
}

// raw reads the value of an encoded pointer, without adding the base that it is relative to.
func (b *bases) raw(c *elf.Cursor, enc uint8) uint64 {
	switch enc & peFormat {
	case peAbsptr:
		return c.Uint(b.ptrSize)
	case peSigned:
		if b.ptrSize == 4 {
			return uint64(int64(int32(c.U32())))
		}
		return c.U64()
	case peULEB128:
		return c.ULEB()
	case peSLEB128:
		return uint64(c.SLEB())
	case peUdata2:
		return uint64(c.U16())
	case peSdata2:
		return uint64(int64(int16(c.U16())))
	case peUdata4:
		return uint64(c.U32())
	case peSdata4:
		return uint64(int64(int32(c.U32())))
	case peUdata8, peSdata8:
		return c.U64()
	}
	c.Bad = true
	return 0
}

// pointer reads an encoded pointer. An indirect one is bad here: the word that it points to
// is relocated in the running process, and only personality routines are encoded like that.
func (b *bases) pointer(c *elf.Cursor, enc uint8) uint64 {
	if enc == peOmit || enc&peIndirect != 0 {
		c.Bad = true
		return 0
	}
	base := uint64(0)
	switch enc & peBase {
	case 0:
	case pePCRel:
		base = b.section + uint64(c.Pos)
	case peTextRel:
		base = b.text
	case peDataRel:
		base = b.data
	case peFuncRel:
		base = b.fn
	case peAligned:
		b.align(c)
		return b.clip(c.Uint(b.ptrSize))
	default:
		c.Bad = true
		return 0
	}
	return b.clip(base + b.raw(c, enc))
}

// length reads the size of the range that a pointer starts: it has the same format, is relative to
// nothing, and is never negative.
func (b *bases) length(c *elf.Cursor, enc uint8) uint64 {
	switch {
	case enc&peBase == peAligned:
		return c.Uint(b.ptrSize)
	case enc&peFormat == peSdata2:
		return uint64(c.U16())
	case enc&peFormat == peSdata4:
		return uint64(c.U32())
	}
	v := b.raw(c, enc)
	if enc&peFormat >= peSigned && int64(v) < 0 {
		c.Bad = true
	}
	return v
}

// skip steps over an encoded pointer whose value nobody needs (a personality).
func (b *bases) skip(c *elf.Cursor, enc uint8) {
	switch {
	case enc == peOmit:
	case enc&peBase == peAligned:
		b.align(c)
		c.Uint(b.ptrSize)
	default:
		b.raw(c, enc)
	}
}

// align steps to the next address that is a multiple of the pointer size.
func (b *bases) align(c *elf.Cursor) {
	at := b.section + uint64(c.Pos)
	c.Take(int(-at & uint64(b.ptrSize-1)))
}

// fixedSize is the width in bytes of an encoding whose values all have the same width, else 0.
func fixedSize(enc, ptrSize uint8) int {
	switch enc & peFormat {
	case peAbsptr, peSigned:
		return int(ptrSize)
	case peUdata2, peSdata2:
		return 2
	case peUdata4, peSdata4:
		return 4
	case peUdata8, peSdata8:
		return 8
	}
	return 0
}
