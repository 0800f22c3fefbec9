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
// result but nothing is allocated on its word.
func decompress(data []byte, class elf.Class) ([]byte, error) {
	c := Cursor{Data: data}
	typ := elf.CompressionType(c.U32())
	var size uint64
	if class == elf.ELFCLASS32 {
		size = uint64(c.U32())
		c.U32() // ch_addralign
	} else {
		c.U32() // ch_reserved
		size = c.U64()
		c.U64() // ch_addralign
	}
	if c.Bad || size > maxContents {
		return nil, fmt.Errorf("compression header: %w", ErrBadELF)
	}
	return Inflate(bytes.NewReader(data[c.Pos:]), typ, size, nil, Limits{Size: maxContents, Window: 8 << 20})
}

// Limits bound what a compressed section may cost, in bytes.
type Limits struct {
	Size   uint64 // of the contents
	Window uint64 // of a zstd stream
}

// Inflate returns the contents of a compressed section: a zlib or zstd stream of size bytes
// when decompressed. They go behind what is in buf, whose capacity is for the caller to
// choose; nothing is allocated on the word of size. The error wraps [ErrBadELF].
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
