package symbols

import (
	"bytes"
	"fmt"
)

// MiniDebugInfo is an ELF file with a symbol table and little else, packed by xz into the section
// .gnu_debugdata of a stripped file (GDB manual, "Debugging information in a special section").
// Distributions leave out the functions that are in .dynsym.

// At most maxUnpacked bytes are unpacked, and not more than 512 KiB plus 64 bytes for each packed byte, as
// symbol tables do not shrink more than that.
const maxUnpacked = 256 << 20

// miniDebugInfo unpacks .gnu_debugdata within a budget; nil when the file has none.
func (f *elfFile) miniDebugInfo(left *budget) (*elfFile, error) {
	s, ok := f.section(".gnu_debugdata")
	if !ok {
		return nil, nil
	}
	if err := left.allow(s.Size); err != nil {
		return nil, fmt.Errorf(".gnu_debugdata: %w", err)
	}
	packed, err := f.Read(s.Offset, s.Size)
	if err != nil {
		return nil, fmt.Errorf(".gnu_debugdata: %w", err)
	}
	limit := min(512<<10+64*int64(len(packed)), maxUnpacked)
	if left != nil {
		limit = min(limit, int64(min(left.file, left.all)))
	}
	data, err := unpackXZ(packed, limit)
	if err == nil {
		err = left.allow(uint64(len(data)))
	}
	if err != nil {
		return nil, fmt.Errorf(".gnu_debugdata: %w", err)
	}
	mini, err := parseELF(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf(".gnu_debugdata: %w", err)
	}
	if mini.Class != f.Class || mini.Machine != f.Machine {
		return nil, fmt.Errorf(".gnu_debugdata: for %v", mini.Machine)
	}
	return mini, nil
}
