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
			got, err := decompress(slices.Concat(chdr(class, typ, uint64(len(plain))), stream), class, anySize)
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
			if got, err := decompress(data, elf.ELFCLASS64, anySize); !errors.Is(err, ErrBadELF) {
				t.Errorf("type %d, %s: %d bytes, %v", typ, name, len(got), err)
			}
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
		e := Extent{Size: l.Size, Compressed: true}
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
