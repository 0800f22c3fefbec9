package symbols

import (
	"bytes"
	"fmt"
	"io"

	"github.com/mikelolasagasti/xz"
)

// MiniDebugInfo is an ELF file with a symbol table and little else, packed by xz into the section .gnu_debugdata of a stripped
// file (GDB manual, "Debugging information in a special section"). Distributions leave out the functions that .dynsym has.

// What is unpacked is at most maxUnpacked bytes, and no more than symbol tables ever shrink to: 512 KiB and 64 for each packed
// byte. maxDictionary is what xz asks for at its highest level.
const (
	maxUnpacked   = 256 << 20
	maxDictionary = 64 << 20
)

// miniDebugInfo unpacks .gnu_debugdata; nil when the file has none.
func (f *elfFile) miniDebugInfo() (*elfFile, error) {
	s, ok := f.section(".gnu_debugdata")
	if !ok {
		return nil, nil
	}
	packed, err := f.Read(s.Offset, min(s.Size, maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf(".gnu_debugdata: %w", err)
	}
	limit := min(512<<10+64*int64(len(packed)), maxUnpacked)
	data, err := unpackXZ(packed, limit)
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

// unpackXZ unpacks at most limit bytes; more is an error.
func unpackXZ(packed []byte, limit int64) ([]byte, error) {
	r, err := xz.NewReader(bytes.NewReader(packed), maxDictionary)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("more than %d bytes from %d", limit, len(packed))
	}
	return data, nil
}
