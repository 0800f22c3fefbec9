package elf

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// A Packing says how a file holds the contents of a section.
type Packing uint8

const (
	// Plain contents are there as they are.
	Plain Packing = iota
	// Compressed is SHF_COMPRESSED: a header (gABI, Elf32_Chdr and Elf64_Chdr) and a zlib or zstd stream.
	Compressed
	// Zdebug is the older convention of GNU, for sections called .zdebug_*: "ZLIB", the size in 8 big-endian
	// bytes, and a zlib stream. gold and Go up to 1.18 write it.
	Zdebug
)

// Packing returns how the file holds the contents of a section of this name.
func (s *Section) Packing(name []byte) Packing {
	switch {
	case s.Flags&elf.SHF_COMPRESSED != 0:
		return Compressed
	case bytes.HasPrefix(name, []byte(".zdebug_")):
		return Zdebug
	}
	return Plain
}

// decompress returns the contents of a compressed section. The size in the header bounds the result, but
// nothing is allocated only because the header says so. allow is called with it before.
func decompress(data []byte, p Packing, class elf.Class, allow func(size uint64) error) ([]byte, error) {
	typ, size, header, err := p.Header(data, class)
	if err == nil {
		err = shrinks(size, uint64(len(data)))
	}
	if err == nil {
		err = allow(size)
	}
	if err != nil {
		return nil, err
	}
	return Inflate(bytes.NewReader(data[header:]), typ, size, nil, Limits{Size: maxContents, Window: 8 << 20})
}

// MaxHeader is the longest header of a compressed section, in bytes.
const MaxHeader = 4 + 4 + 8 + 8

// Header reads the header of a compressed section, which has so many bytes: how what follows is compressed, and
// the size of the contents, as it claims. The error wraps [ErrBadELF].
func (p Packing) Header(data []byte, class elf.Class) (typ elf.CompressionType, size uint64, length int,
	err error) {
	c := Cursor{Data: data}
	switch {
	case p == Zdebug:
		typ = elf.COMPRESS_ZLIB
		if magic, b := c.Take(4), c.Take(8); string(magic) != "ZLIB" {
			c.Bad = true
		} else if !c.Bad {
			size = binary.BigEndian.Uint64(b)
		}
	case class == elf.ELFCLASS32:
		typ = elf.CompressionType(c.U32())
		size = uint64(c.U32())
		c.U32() // ch_addralign
	default:
		typ = elf.CompressionType(c.U32())
		c.U32() // ch_reserved
		size = c.U64()
		c.U64() // ch_addralign
	}
	if c.Bad {
		return typ, 0, 0, fmt.Errorf("compression header: %w", ErrBadELF)
	}
	return typ, size, c.Pos, nil
}

// InflatedSize is the size of a section's contents when decompressed, as its header claims.
func (l *Layout) InflatedSize(r io.ReaderAt, e Extent) (uint64, error) {
	if e.Packed == Plain {
		return e.Size, nil
	}
	data, err := readRange(r, e.Offset, min(e.Size, MaxHeader), MaxHeader)
	if err != nil {
		return 0, err
	}
	_, size, _, err := e.Packed.Header(data, l.Class)
	if err == nil {
		err = shrinks(size, e.Size)
	}
	return size, err
}

// shrinks returns an error about a section of so many bytes that is compressed to fewer than any real
// one: CFI shrinks to a tenth at most. What shrinks to less is made to fill the memory, and to take long.
func shrinks(size, packed uint64) error {
	const small, ratio = 1 << 20, 64
	if size > maxContents || size > small+ratio*packed {
		return fmt.Errorf("%d bytes out of %d: %w", size, packed, ErrBadELF)
	}
	return nil
}

// Limits bound what a compressed section may cost, in bytes.
type Limits struct {
	Size   uint64 // of the contents
	Window uint64 // of a zstd stream
}

// Inflate returns the contents of a compressed section: a zlib or zstd stream of size bytes
// when decompressed. They are appended to buf, whose capacity the caller chooses; nothing is
// allocated only because size says so. The error wraps [ErrBadELF].
func Inflate(stream io.Reader, typ elf.CompressionType, size uint64, buf []byte, l Limits) ([]byte, error) {
	if size > l.Size {
		return nil, fmt.Errorf("%d bytes, at most %d are read: %w", size, l.Size, ErrBadELF)
	}
	var r io.Reader
	switch typ {
	case elf.COMPRESS_ZLIB:
		z, err := zlib.NewReader(stream)
		if err != nil {
			return nil, fmt.Errorf("zlib: %w: %w", err, ErrBadELF)
		}
		defer z.Close()
		r = z
	case elf.COMPRESS_ZSTD:
		z, err := zstd.NewReader(stream, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(l.Window), zstd.WithDecoderMaxMemory(l.Size))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w: %w", err, ErrBadELF)
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("unknown compression %d: %w", typ, ErrBadELF)
	}
	out := bytes.NewBuffer(buf)
	n, err := io.Copy(out, io.LimitReader(r, int64(size)+1))
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %w", typ, err, ErrBadELF)
	}
	if uint64(n) != size {
		return nil, fmt.Errorf("the contents are not the %d bytes of the header: %w", size, ErrBadELF)
	}
	return out.Bytes(), nil
}
