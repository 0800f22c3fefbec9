package symbols

import (
	"errors"
	"fmt"
	"io"

	"unspool/capture/symbols/srcline"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/gotab"
)

// goLines is LinesUntil for a Go binary without debugging information.
func (f *elfFile) goLines(stop func() bool, addrs []uint64, yield func(i int, frames []srcline.Frame)) error {
	t, err := f.findGo(f.codeRanges())
	if t == nil || err != nil {
		return err
	}
	table := func(at, size uint64) ([]byte, error) { return f.Read(t.at.Offset+at, size) }
	lines, err := t.Lines(table, t.inlined())
	if errors.Is(err, gotab.ErrNoLines) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("function table of Go at offset 0x%x: %w", t.at.Offset, err)
	}
	const each, atLeast = 4 << 10, 64 << 20 // bytes; tables are a few hundred
	lines.Left = each*len(addrs) + atLeast
	var found []gotab.Frame
	var frames []srcline.Frame
	for i, addr := range addrs {
		if stop != nil && stop() {
			return nil
		}
		found, frames = lines.At(addr-t.text, found[:0]), frames[:0]
		if lines.Left < 0 {
			return fmt.Errorf("function table of Go at offset 0x%x: given up, as its tables are too long", t.at.Offset)
		}
		for _, at := range found {
			frames = append(frames, srcline.Frame{Func: at.Func, File: at.File, Line: at.Line, Start: at.Start})
		}
		if len(frames) > 0 {
			yield(i, frames)
		}
	}
	return nil
}

// inlined reads what describes inlined functions, go:func.*. Since Go 1.26 that is in the table, but the address is in
// runtime.moduledata alone. It is nil if that is not found.
func (t *goTable) inlined() gotab.Reader {
	words := func(b []byte, i int) uint64 { return t.f.Word(b, 8*i, 4*i) }
	const chunk, most = 1 << 20, 256 << 20
	size := uint64(t.f.Pick(8, 4) * (gotab.ModuleFuncs + 1))
	left := uint64(most)
	for i := range t.f.Sections {
		s := &t.f.Sections[i]
		if s.Type != elf.SHT_PROGBITS || s.Flags&(elf.SHF_ALLOC|elf.SHF_WRITE) != elf.SHF_ALLOC|elf.SHF_WRITE {
			continue
		}
		for from := uint64(0); from+size <= s.Size && left > 0; from += chunk {
			n := min(chunk+size, s.Size-from)
			left -= min(left, n)
			b, err := t.f.Read(s.Offset+from, n)
			if err != nil {
				break
			}
			for ; uint64(len(b)) >= size; b = b[t.f.Pick(8, 4):] {
				if words(b, 0) == t.at.Addr && words(b, gotab.ModuleNames) == t.at.Addr+t.NamesAt() {
					base := words(b, gotab.ModuleFuncs)
					return func(at, size uint64) ([]byte, error) {
						b, ok := t.f.memory(base+at, size)
						if !ok {
							return nil, io.ErrUnexpectedEOF
						}
						return b, nil
					}
				}
			}
		}
	}
	return nil
}
