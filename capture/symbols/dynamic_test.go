package symbols

import (
	"bytes"
	std "debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"

	"unspool/dwarfcfi/elf"
)

// withoutSections returns an ELF file whose header does not tell of section headers.
func withoutSections(file []byte) []byte {
	file = slices.Clone(file)
	if std.Class(file[std.EI_CLASS]) == std.ELFCLASS32 {
		clear(file[32:36])
		clear(file[48:52])
	} else {
		clear(file[40:48])
		clear(file[60:64])
	}
	return file
}

// exports are the functions that the dynamic symbols of a file name.
func exports(t *testing.T, file []byte) map[Func]bool {
	t.Helper()
	f, err := parseELF(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	b := builder{code: f.codeRanges(), left: &budget{maxOfFile, maxOfAll}}
	if err := b.readTable(f, elf.SHT_DYNSYM); err != nil {
		t.Error(err)
	}
	found := make(map[Func]bool)
	for _, s := range b.syms {
		found[Func{string(cString(b.strings, s.name)), s.addr, uint64(s.size), s.addr}] = true
	}
	return found
}

// TestDynamicSymbolsWithoutSections finds by PT_DYNAMIC what the section headers lead to.
func TestDynamicSymbolsWithoutSections(t *testing.T) {
	const library = "int inner(int x) { return x + 1; }\nint outer(int x) { return inner(x) * 2; }\n"
	files := map[string][]byte{}
	for name, flags := range map[string][]string{
		"gnu": {"-Wl,--hash-style=gnu"}, "sysv": {"-Wl,--hash-style=sysv"}, "both": {"-Wl,--hash-style=both"},
		"32 bits": {"-m32", "-nostdlib"},
	} {
		if name == "32 bits" && runtime.GOARCH != "amd64" {
			continue
		}
		file, err := os.ReadFile(compile(t, "l.c", library, append(flags, "-O1", "-fPIC", "-shared")...))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	var err error
	if files["libc"], err = os.ReadFile(libc(t)); err != nil {
		t.Fatal(err)
	}
	for name, file := range files {
		want := exports(t, file)
		got := exports(t, withoutSections(file))
		for f := range want {
			if !got[f] {
				t.Errorf("%s: %+v is missing", name, f)
			}
		}
		if len(want) < 2 || len(got) != len(want) {
			t.Errorf("%s: %d functions, want %d", name, len(got), len(want))
		}
	}
	// A program that defines no dynamic symbol.
	file, err := os.ReadFile(compile(t, "p.c", program, "-O1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := exports(t, withoutSections(file)); len(got) > len(exports(t, file)) {
		t.Errorf("a program exports %v", got)
	}
}

// TestDynamicSectionsThatLie changes what PT_DYNAMIC and the hash table of a library say: nothing is read beyond
// the file's segments, and not much is allocated.
func TestDynamicSectionsThatLie(t *testing.T) {
	le := binary.LittleEndian
	for _, style := range []string{"gnu", "sysv"} {
		file, err := os.ReadFile(compile(t, "l.c", "int outer(int x) { return x * 2; }\n", "-O1", "-fPIC", "-shared",
			"-Wl,--hash-style="+style))
		if err != nil {
			t.Fatal(err)
		}
		f, err := std.NewFile(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		dynamic, hash := f.Section(".dynamic"), f.SectionByType(std.SHT_GNU_HASH)
		if style == "sysv" {
			hash = f.SectionByType(std.SHT_HASH)
		}
		file = withoutSections(file)
		values := []uint64{0, 1, 4, 0x1001, uint64(len(file)), 1 << 23, 1 << 31, 1<<32 - 1, 1 << 40, 1 << 63, 1<<64 - 1}
		var changed [][]byte
		for at := dynamic.Offset; at < dynamic.Offset+dynamic.Size; at += 16 {
			for _, v := range values {
				changed = append(changed, slices.Clone(file))
				le.PutUint64(changed[len(changed)-1][at+8:], v)
			}
		}
		for at := hash.Offset; at < hash.Offset+hash.Size; at += 4 {
			for _, v := range values[:8] {
				changed = append(changed, slices.Clone(file))
				le.PutUint32(changed[len(changed)-1][at:], uint32(v))
			}
		}
		for i, file := range changed {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			table, err := readELF(bytes.NewReader(file), int64(len(file)))
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("%s, change %d: %d bytes allocated, %v", style, i, n, err)
			}
			if table != nil && table.Len() > len(file)/std.Sym64Size {
				t.Errorf("%s, change %d: %d functions", style, i, table.Len())
			}
		}
		// Without a hash table nobody knows where the symbols end.
		for at := dynamic.Offset; at < dynamic.Offset+dynamic.Size; at += 16 {
			if tag := std.DynTag(le.Uint64(file[at:])); tag == std.DT_HASH || tag == std.DT_GNU_HASH {
				le.PutUint64(file[at:], uint64(std.DT_DEBUG))
			}
		}
		if _, err := readELF(bytes.NewReader(file), int64(len(file))); !errors.Is(err, errNoHash) {
			t.Errorf("%s: without a hash table: %v", style, err)
		}
	}
}
