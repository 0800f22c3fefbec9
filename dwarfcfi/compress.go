package dwarfcfi

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
	c := cursor{data: data}
	typ := elf.CompressionType(c.u32())
	var size uint64
	if class == elf.ELFCLASS32 {
		size = uint64(c.u32())
		c.u32() // ch_addralign
	} else {
		c.u32() // ch_reserved
		size = c.u64()
		c.u64() // ch_addralign
	}
	if c.bad || size > maxSection {
		return nil, fmt.Errorf("compression header: %w", ErrBadELF)
	}
	stream := bytes.NewReader(data[c.pos:])
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
			zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderMaxMemory(maxSection))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w: %w", err, ErrBadELF)
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("unknown compression %d: %w", typ, ErrBadELF)
	}
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(r, int64(size)+1))
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %w", typ, err, ErrBadELF)
	}
	if uint64(n) != size {
		return nil, fmt.Errorf("decompressed size is not the %d bytes of the header: %w", size, ErrBadELF)
	}
	return out.Bytes(), nil
}
