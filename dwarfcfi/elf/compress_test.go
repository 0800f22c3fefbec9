package elf

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var le = binary.LittleEndian

func TestDecompress(t *testing.T) {
	plain := bytes.Repeat([]byte("unwind "), 1<<16)
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(plain)
	w.Close()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	streams := map[uint32][]byte{
		uint32(elf.COMPRESS_ZLIB): z.Bytes(),
		uint32(elf.COMPRESS_ZSTD): encoder.EncodeAll(plain, nil),
		99:                        nil,
	}
	chdr := func(class elf.Class, typ uint32, size uint64) []byte {
		b := le.AppendUint32(nil, typ)
		if class == elf.ELFCLASS32 {
			return le.AppendUint32(le.AppendUint32(b, uint32(size)), 1)
		}
		return le.AppendUint64(le.AppendUint64(le.AppendUint32(b, 0), size), 1)
	}
	for typ, stream := range streams {
		for _, class := range []elf.Class{elf.ELFCLASS64, elf.ELFCLASS32} {
			got, err := decompress(slices.Concat(chdr(class, typ, uint64(len(plain))), stream), Compressed, class,
				anySize)
			if typ == 99 {
				if !errors.Is(err, ErrBadELF) {
					t.Errorf("unknown type: %v", err)
				}
			} else if err != nil || !bytes.Equal(got, plain) {
				t.Errorf("type %d, %v: %d bytes, %v", typ, class, len(got), err)
			}
		}
		for name, data := range map[string][]byte{
			"stream longer than its header says":  slices.Concat(chdr(elf.ELFCLASS64, typ, 100), stream),
			"stream shorter than its header says": slices.Concat(chdr(elf.ELFCLASS64, typ, maxContents), stream),
			"header that asks for all memory":     slices.Concat(chdr(elf.ELFCLASS64, typ, 1<<60), stream),
			"stream cut short": slices.Concat(chdr(elf.ELFCLASS64, typ, uint64(len(plain))),
				stream[:len(stream)/2]),
			"header cut short": {1, 0, 0},
		} {
			if got, err := decompress(data, Compressed, elf.ELFCLASS64, anySize); !errors.Is(err, ErrBadELF) {
				t.Errorf("type %d, %s: %d bytes, %v", typ, name, len(got), err)
			}
		}
	}
}

// TestDecompressZdebug reads the older convention, whose size is big-endian in files of either byte order.
func TestDecompressZdebug(t *testing.T) {
	plain := bytes.Repeat([]byte("unwind "), 1<<16)
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(plain)
	w.Close()
	header := func(size uint64) []byte { return binary.BigEndian.AppendUint64([]byte("ZLIB"), size) }
	whole := slices.Concat(header(uint64(len(plain))), z.Bytes())
	for _, class := range []elf.Class{elf.ELFCLASS64, elf.ELFCLASS32} {
		got, err := decompress(whole, Zdebug, class, anySize)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%v: %d bytes, %v", class, len(got), err)
		}
	}
	for name, data := range map[string][]byte{
		"stream longer than its header says":  slices.Concat(header(100), z.Bytes()),
		"stream shorter than its header says": slices.Concat(header(uint64(len(plain)+1)), z.Bytes()),
		"header that asks for all memory":     slices.Concat(header(1<<60), z.Bytes()),
		"header that asks for more than any":  slices.Concat(header(1<<64-1), z.Bytes()),
		"stream cut short":                    whole[:len(whole)/2],
		"header cut short":                    whole[:11],
		"magic cut short":                     whole[:3],
		"no magic":                            whole[1:],
		"empty":                               nil,
	} {
		allowed := uint64(0)
		got, err := decompress(data, Zdebug, elf.ELFCLASS64, func(size uint64) error { allowed = size; return nil })
		if !errors.Is(err, ErrBadELF) || allowed > maxContents {
			t.Errorf("%s: %d bytes, %d allowed, %v", name, len(got), allowed, err)
		}
		l := Layout{Class: elf.ELFCLASS64, Size: uint64(len(data))}
		size, err := l.InflatedSize(bytes.NewReader(data), Extent{Size: l.Size, Packed: Zdebug})
		if err == nil && size > maxContents {
			t.Errorf("%s: %d bytes are claimed", name, size)
		}
	}
}

// TestSectionsMadeToFillTheMemory asks for sections that hold very much more than the file has of them.
func TestSectionsMadeToFillTheMemory(t *testing.T) {
	for _, c := range []struct {
		size int
		ok   bool
	}{{1 << 20, true}, {32 << 20, false}} {
		var b bytes.Buffer
		for _, v := range []uint64{uint64(elf.COMPRESS_ZLIB), uint64(c.size), 1} {
			b.Write(le.AppendUint64(nil, v))
		}
		w := zlib.NewWriter(&b)
		w.Write(make([]byte, c.size))
		w.Close()
		l := Layout{Class: elf.ELFCLASS64, Size: uint64(b.Len())}
		e := Extent{Size: l.Size, Packed: Compressed}
		asked := false
		data, err := l.ContentsWithin(bytes.NewReader(b.Bytes()), e, func(size uint64) error {
			asked = asked || size > l.Size
			return nil
		})
		if (err == nil) != c.ok || asked != c.ok || c.ok && len(data) != c.size {
			t.Errorf("%d bytes out of %d: %d bytes, %v", c.size, l.Size, len(data), err)
		}
		if size, err := l.InflatedSize(bytes.NewReader(b.Bytes()), e); (err == nil) != c.ok || c.ok &&
			size != uint64(c.size) {
			t.Errorf("%d bytes out of %d: %d bytes are claimed, %v", c.size, l.Size, size, err)
		}
	}
}

func anySize(uint64) error { return nil }
