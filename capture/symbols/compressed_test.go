package symbols

import (
	"bytes"
	"compress/zlib"
	std "debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"

	"unspool/dwarfcfi/elf"
)

// packed has sections of an ELF64 file compressed, as eu-elfcompress --name does, each with a header that claims
// the size of the contents and so many bytes more.
func packed(t *testing.T, file []byte, more uint64, types ...std.SectionType) []byte {
	t.Helper()
	f, err := std.NewFile(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	file = slices.Clone(file)
	for i, s := range f.Sections {
		if !slices.Contains(types, s.Type) || s.Flags&std.SHF_ALLOC != 0 || s.Name == ".shstrtab" {
			continue
		}
		data, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		for _, v := range []uint64{uint64(std.COMPRESS_ZLIB), uint64(len(data)) + more, 1} {
			b.Write(le.AppendUint64(nil, v))
		}
		w := zlib.NewWriter(&b)
		w.Write(data)
		w.Close()
		header := le.Uint64(file[40:]) + uint64(64*i)
		le.PutUint64(file[header+8:], uint64(std.SHF_COMPRESSED))
		le.PutUint64(file[header+24:], uint64(len(file)))
		le.PutUint64(file[header+32:], uint64(b.Len()))
		file = append(file, b.Bytes()...)
	}
	return file
}

// TestCompressedSymbolTables reads names where .symtab, its strings, or both are compressed.
func TestCompressedSymbolTables(t *testing.T) {
	file, err := os.ReadFile(compile(t, "p.c", program, "-O1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, types := range [][]std.SectionType{{std.SHT_SYMTAB}, {std.SHT_STRTAB}, {std.SHT_SYMTAB, std.SHT_STRTAB}} {
		data := packed(t, file, 0, types...)
		table, err := readChecked(bytes.NewReader(data), int64(len(data)), nil)
		if err != nil {
			t.Errorf("%v: %v", types, err)
		} else if _, ok := find(table, "compare"); !ok {
			t.Errorf("%v: the function is not found", types)
		}
		// What the headers claim is not believed, and costs nothing.
		for _, more := range []uint64{1, 1 << 20, 300 << 20, 1 << 40, 1<<64 - 1} {
			data := packed(t, file, more, types...)
			f, err := parseELF(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b := builder{left: &budget{file: maxOfFile, all: maxOfAll}}
			err = b.readTable(f, elf.SHT_SYMTAB)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, elf.ErrBadELF) || after.TotalAlloc-before.TotalAlloc > 4<<20 {
				t.Errorf("%v, %d bytes more: %d allocated, %v", types, more, after.TotalAlloc-before.TotalAlloc, err)
			}
		}
		// A budget holds for the contents, too.
		f, err := parseELF(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		b := builder{left: &budget{file: 512, all: maxOfAll}}
		if err := b.readTable(f, elf.SHT_SYMTAB); !errors.Is(err, errOver) {
			t.Errorf("%v: over the budget: %v", types, err)
		}
	}
}
