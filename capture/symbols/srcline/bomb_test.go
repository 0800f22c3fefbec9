package srcline

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"

	"unspool/dwarfcfi/elf"
)

// packed is a section of zeros with the header of an SHF_COMPRESSED section.
func packed(t *testing.T, typ elf.CompressionType, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, v := range []uint64{uint64(typ), uint64(size), 1} {
		b.Write(binary.LittleEndian.AppendUint64(nil, v))
	}
	var w io.WriteCloser = zlib.NewWriter(&b)
	if typ == elf.COMPRESS_ZSTD {
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := io.CopyN(w, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestCompressedSectionsAreBounded opens sections that hold very much more than the file has.
func TestCompressedSectionsAreBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  elf.CompressionType
		size int64
		left uint64
		ok   bool
	}{
		{"zlib", elf.COMPRESS_ZLIB, 32 << 20, maxInflated, true},
		{"zlib, too much for its size", elf.COMPRESS_ZLIB, 128 << 20, maxInflated, false},
		{"zstd, too much for its size", elf.COMPRESS_ZSTD, 128 << 20, maxInflated, false},
		{"zlib, too much for the file", elf.COMPRESS_ZLIB, 32 << 20, 16 << 20, false},
	} {
		data := packed(t, c.typ, c.size)
		left := c.left
		s := section{
			file: "bomb", name: ".debug_info", r: bytes.NewReader(data), size: uint64(len(data)),
			packed: elf.Compressed, class: elf.ELFCLASS64, left: &left,
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := s.open()
		runtime.ReadMemStats(&after)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; !c.ok && n > 1<<20 {
			t.Errorf("%s: %d bytes are allocated for what is refused", c.name, n)
		}
		if c.ok && left != c.left-uint64(c.size) {
			t.Errorf("%s: %d bytes are left", c.name, left)
		}
	}
}
