package symbols

import (
	"io"

	"unspool/dwarfcfi/elf"
)

// Limits on symbol tables. The largest browsers and compilers stay well below them; a table above them
// is damaged or hostile, and only its own names are lost.
const (
	maxSymbols = 1 << 24
	maxStrings = 512 << 20
)

// elfFile is an ELF file that symbols are read from.
type elfFile struct {
	*elf.File
	loads elf.Loads
}

func parseELF(r io.ReaderAt, size int64) (*elfFile, error) {
	f, err := elf.NewFile(r, size)
	if err != nil {
		return nil, err
	}
	return &elfFile{f, f.Loads()}, nil
}

// hasDebugInfo reports whether the file has debugging information, compressed or not.
func (f *elfFile) hasDebugInfo() bool {
	_, ok := f.section(".debug_info")
	_, packed := f.section(".zdebug_info")
	return ok || packed
}

// section finds a section by its name, among those that are not loaded.
func (f *elfFile) section(name string) (*elf.Section, bool) {
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_ALLOC == 0 && f.Named(s, name) {
			return s, true
		}
	}
	return nil, false
}
