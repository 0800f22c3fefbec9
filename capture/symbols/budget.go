package symbols

import (
	"errors"
	"fmt"
	"io"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
)

// What is read of files for their names stays in memory, and how much files claim to have is for others
// to decide: a sparse file of some KiB claims as much as it likes. The symbol tables of the largest
// programs have some 300 MiB.
const (
	maxOfFile = 384 << 20
	maxOfAll  = 1024 << 20
)

// A budget is what may still be read, in bytes.
type budget struct{ file, all uint64 }

// allow takes n bytes, if the file and all files together may have as many.
func (b *budget) allow(n uint64) error {
	switch {
	case b == nil:
		return nil
	case n > b.file:
		return fmt.Errorf("%d bytes of symbols or unwind tables, at most %d are read of a file: %w",
			n, uint64(maxOfFile), errOver)
	case n > b.all:
		return fmt.Errorf("no room for %d bytes of symbols or unwind tables beside those of other files: %w",
			n, errOver)
	}
	b.file -= n
	b.all -= n
	return nil
}

// budget is that of the next file.
func (s *Symbolizer) budget() *budget {
	s.left.file = maxOfFile
	return &s.left
}

// errOver is wrapped by errors about what is over a budget.
var errOver = errors.New("it is not used")

// readUnwindTable reads the unwind table of an ELF file within a budget.
func readUnwindTable(r io.ReaderAt, size uint64, left *budget) (*dwarfcfi.Table, error) {
	layout, err := elf.ReadLayout(r, int64(size))
	if err != nil {
		return nil, err
	}
	sections, err := dwarfcfi.ReadSectionsBy(r, layout, func(e elf.Extent, _ bool) (dwarfcfi.Section, error) {
		data, err := layout.ContentsWithin(r, e, left.allow)
		return dwarfcfi.Section{Data: data}, err
	})
	if err != nil {
		return nil, err
	}
	return dwarfcfi.New(sections)
}
