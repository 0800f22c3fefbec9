package image

import (
	"errors"
	"fmt"
	"io"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/asm"
	"unspool/unwind/gotab"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/jit/jitdump"
	"unspool/unwind/rule"
)

// tables are what is read of a file before its first rule, on a goroutine of the reader. After that, only
// lazy sections and code are read from the file.
type tables struct {
	layout *elf.Layout // nil if the file is no ELF file
	arch   *rule.Arch  // of the code, nil if the file is no ELF file
	loads  []elf.Load
	entry  uint64 // address of the ELF entry point
	cfi    *dwarfcfi.Table
	golang *gotab.Table   // of a Go binary
	link   debugfile.Link // .gnu_debuglink

	// generated means that all of the code was generated at run time: the file is none that the process mapped.
	generated bool

	lazy  []*section // parts of the file that are read as they are needed
	share share      // of memory
	err   error      // why the file cannot be used at all
	told  []error    // what else is wrong with it, to be reported
}

// readTables reads the tables of an image. A file that is no ELF file, or has no valid CFI, is an image
// without CFI: generated code may be in a file, too.
func readTables(path string, s *source, q *quota) *tables {
	t := &tables{share: share{of: q}, generated: jitdump.IsInjected(path)}
	if jitdump.IsName(path) {
		return t // a jitdump is mapped only to be noticed, and is read elsewhere as it grows
	}
	if _, err := s.hold(); err != nil {
		t.err = fmt.Errorf("%s: %w", path, err)
		return t
	}
	defer s.release()
	err := t.read(path, s)
	if s.changed() && !(s.notELF && t.layout == nil) {
		return &tables{share: t.share, err: fmt.Errorf("%s: %w", path, errCut)}
	}
	switch {
	case err == nil || errors.Is(err, dwarfcfi.ErrNoFDE):
	case errors.Is(err, elf.ErrBadELF) || errors.Is(err, dwarfcfi.ErrBadCFI):
		t.told = append(t.told, err)
	default:
		t.err = err
	}
	return t
}

func (t *tables) read(path string, s *source) error {
	r := s.contents()
	layout, err := elf.ReadLayout(r, s.size)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	arch := rule.ArchOf(layout.Machine)
	if arch == nil {
		return fmt.Errorf("%s: %v: %w", path, layout.Machine, errMachine)
	}
	t.layout, t.arch, t.loads, t.entry = layout, arch, layout.Loads, layout.Entry
	t.readLink(r)
	if !t.generated {
		t.golang, err = gotab.Read(r, s.size, layout, t.partOf(s))
		if err != nil && err != gotab.ErrNone {
			t.told = append(t.told, fmt.Errorf("%s: %w", path, err))
		}
	}
	load := t.loader(s)
	var leftOut []error // beside what can be read
	sections, err := dwarfcfi.ReadSectionsBy(r, layout,
		func(e elf.Extent, whole bool) (dwarfcfi.Section, error) {
			section, err := load(e, whole)
			if err != nil {
				leftOut = append(leftOut,
					fmt.Errorf("%s: unwind tables at offset %#x of the file: %w", path, e.Offset, err))
			}
			return section, err
		})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.told = append(t.told, leftOut...)
	cfi, err := dwarfcfi.New(sections)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.cfi = cfi
	return nil
}

var errMachine = errors.New("another machine's code")

// readLink reads .gnu_debuglink.
func (t *tables) readLink(r io.ReaderAt) {
	e := &t.layout.DebugLink
	if e.Size == 0 || e.Size > debugfile.MaxLink || e.Packed != elf.Plain {
		return
	}
	section := make([]byte, e.Size)
	if n, _ := r.ReadAt(section, int64(e.Offset)); n == len(section) {
		t.link, _ = debugfile.ParseLink(section)
	}
}

// fdes yields the ranges that CFI covers.
func (t *tables) fdes(yield func(start, end uint64) bool) {
	if t.cfi == nil {
		return
	}
	for d, err := range t.cfi.FDEs() {
		if err == nil && !yield(d.Start, d.End) {
			return
		}
	}
}

// gap gives the hole around addr between two FDEs, or the Go function around addr if Go's tables do not say
// more. begins means that the hole begins with a function.
func (t *tables) gap(addr uint64) (h asm.Hole, begins, ok bool) {
	if g := t.golang; g != nil {
		if h.Lo, h.Hi, ok = g.Function(addr); ok {
			return h, true, true
		}
	}
	if t.cfi == nil {
		return h, false, false
	}
	h.Lo, h.Hi, ok = t.cfi.Gap(addr)
	return h, false, ok
}

// address turns a file offset into the virtual address that the program headers give it. In files that perf
// inject makes of generated code, it is the same; older ones have no program headers.
func (t *tables) address(off uint64) (uint64, bool) {
	if t.generated {
		return off, t.layout != nil
	}
	for i := range t.loads {
		if l := &t.loads[i]; off >= l.Offset && off-l.Offset < l.Filesz {
			return off - l.Offset + l.Vaddr, true
		}
	}
	return 0, false
}
