package inputs

import (
	"bytes"
	"debug/elf"
	"slices"
	"strings"
)

// Files of this machine that have unwind tables and symbols, small ones among them.
var (
	Programs = []string{"/usr/bin/*", "/usr/sbin/*", "/usr/lib/x86_64-linux-gnu/*.so*"}
	Objects  = append([]string{"/usr/lib/x86_64-linux-gnu/*.o", "/usr/lib/gcc/x86_64-linux-gnu/*/*.o",
		"/usr/lib/debug/.build-id/*/*.debug"}, Programs...)
)

// Sections are like Files what sections of that name hold in ELF files.
func Sections(n, size int, name string, patterns ...string) [][]byte {
	return some(n, patterns, func(b []byte) []byte {
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			return nil
		}
		s := f.Section(name)
		if s == nil || s.Size > uint64(size) {
			return nil
		}
		data, err := s.Data()
		if err != nil {
			return nil
		}
		return data
	})
}

// Names are n strings with a prefix of the dynamic symbols' names in ELF files.
func Names(n int, prefix string, patterns ...string) []string {
	var names, some []string
	for _, b := range Sections(64, 1<<20, ".dynstr", patterns...) {
		for name := range strings.SplitSeq(string(b), "\x00") {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for i := range min(n, len(names)) {
		some = append(some, names[i*len(names)/min(n, len(names))])
	}
	return some
}

// InELF makes changes in the headers of ELF files, and in the sections whose names have one of the
// prefixes.
func InELF(prefixes ...string) Change {
	return In(func(b []byte) [][2]int {
		places := [][2]int{{0, min(len(b), 64)}}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			return places
		}
		half := f.ByteOrder.Uint16
		var phoff, shoff uint64
		var sizes []byte
		if f.Class == elf.ELFCLASS32 {
			phoff, shoff, sizes = uint64(f.ByteOrder.Uint32(b[28:])), uint64(f.ByteOrder.Uint32(b[32:])), b[42:]
		} else {
			phoff, shoff, sizes = f.ByteOrder.Uint64(b[32:]), f.ByteOrder.Uint64(b[40:]), b[54:]
		}
		table := func(off uint64, size, n uint16) {
			if end := off + uint64(size)*uint64(n); off < end && end <= uint64(len(b)) {
				places = append(places, [2]int{int(off), int(end)})
			}
		}
		table(phoff, half(sizes), half(sizes[2:]))
		table(shoff, half(sizes[4:]), half(sizes[6:]))
		for _, s := range f.Sections {
			if s.Type == elf.SHT_NOBITS || s.Offset+s.FileSize > uint64(len(b)) || s.Offset+s.FileSize < s.Offset {
				continue
			}
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s.Name, p) }) {
				places = append(places, [2]int{int(s.Offset), int(s.Offset + s.FileSize)})
			}
		}
		return places
	})
}
