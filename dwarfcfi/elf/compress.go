package elf

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// decompress returns the contents of a SHF_COMPRESSED section: a compression header (gABI,
// Elf32_Chdr and Elf64_Chdr) and a zlib or zstd stream. The size in the header bounds the
// result, but nothing is allocated only because the header says so. allow is called with it before.
func decompress(data []byte, class elf.Class, allow func(size uint64) error) ([]byte, error) {
	typ, size, stream, err := compressed(data, class)
	if err == nil {
		err = shrinks(size, uint64(len(data)))
	}
	if err == nil {
		err = allow(size)
	}
	if err != nil {
		return nil, err
	}
	return Inflate(bytes.NewReader(stream), typ, size, nil, Limits{Size: maxContents, Window: 8 << 20})
}

// compressed reads the header of a compressed section, and returns the stream behind it.
func compressed(data []byte, class elf.Class) (typ elf.CompressionType, size uint64, stream []byte,
	err error) {
	c := Cursor{Data: data}
	typ = elf.CompressionType(c.U32())
	if class == elf.ELFCLASS32 {
		size = uint64(c.U32())
		c.U32() // ch_addralign
	} else {
		c.U32() // ch_reserved
		size = c.U64()
		c.U64() // ch_addralign
	}
	if c.Bad || size > maxContents {
		return typ, 0, nil, fmt.Errorf("compression header: %w", ErrBadELF)
	}
	return typ, size, data[c.Pos:], nil
}

// InflatedSize is the size of a section's contents when decompressed, as its header claims.
func (l *Layout) InflatedSize(r io.ReaderAt, e Extent) (uint64, error) {
	const header = 4 + 4 + 8 + 8
	if !e.Compressed {
		return e.Size, nil
	}
	data, err := readRange(r, e.Offset, min(e.Size, header), header)
	if err != nil {
		return 0, err
	}
	_, size, _, err := compressed(data, l.Class)
	if err == nil {
		err = shrinks(size, e.Size)
	}
	return size, err
}

// shrinks returns an error about a section of so many bytes that is compressed to fewer than any real
// one: CFI shrinks to a tenth at most. What shrinks to less is made to fill the memory, and to take long.
func shrinks(size, packed uint64) error {
	const small, ratio = 1 << 20, 64
	if size > small+ratio*packed {
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
