package image

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/asm"
	"unspool/unwind/gotab"
	"unspool/unwind/jit/jitdump"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// An Image is one ELF file, however many processes map it and by whatever
// name. It is opened when it is first mapped, so that it can still be read
// when the process is gone, and parsed when it is first sampled.
type Image struct {
	// BuildID is the GNU build ID of the file, nil when it has none.
	BuildID []byte
	// Path is the name by which the file was first seen.
	Path string

	store  *Store
	inode  inode
	refs   int      // files of the address spaces that have this image
	opened bool     // the file could be opened
	file   *os.File // open as long as a process maps it
	memory []byte   // in its stead, for the vDSO
	size   int64
	mapped []byte // the file, while its tables may be read

	parsed bool
	err    error // why the file could not be opened or parsed
	cfi    *dwarfcfi.Table
	loads  []elf.Load
	entry  uint64       // address of the ELF entry point
	golang *gotab.Table // of a Go binary
	code   *asm.Code    // for what has no CFI, on i386 for where coroutines end
	rules  rule.Cache
	wide   []rule.WideRule
	hit    bool

	arch  *rule.Arch // of the code, nil for what is no ELF file
	rows  keptRows   // in the stead of rules, where arch is not AMD64
	debug debugInfo
}

// Rules returns the rules that are known, by offset in the file. [Image.Find] adds to them.
func (im *Image) Rules() *rule.Cache { return &im.rules }

// Wide gives the numbers of a rule of the kind Wide.
func (im *Image) Wide(r rule.Rule) *rule.WideRule { return &im.wide[r.Index()] }

// Opened says whether the file could be opened.
func (im *Image) Opened() bool { return im.opened }

// HasCode says whether the image was parsed and has code that can be read.
func (im *Image) HasCode() bool { return im.code != nil }

// Rule gives the rule for pc, which lies in m.
func (im *Image) Rule(m *vmas.Mapping, pc uint64) rule.Rule {
	off := pc - m.Start + m.Offset
	if off>>32 == 0 {
		if r := im.rules.Get(uint32(off)); r != rule.None {
			return r
		}
	}
	return im.Find(m, pc, off)
}

// Find is rule for a PC that was not seen before.
func (im *Image) Find(m *vmas.Mapping, pc, off uint64) rule.Rule {
	im.hit = true
	if !im.parsed {
		im.parse()
	}
	if im.err != nil {
		return rule.Unreadable
	}
	r := rule.Unreadable // i386 code, which frames of x86-64 do not return to
	if im.arch == rule.AMD64 || im.arch == nil {
		if r = im.compile(m, pc); im.err != nil {
			return rule.Unreadable
		}
	}
	if off>>32 == 0 {
		im.rules.Put(uint32(off), r)
	}
	return r
}

func (im *Image) compile(m *vmas.Mapping, pc uint64) rule.Rule {
	var fault error
	defer im.Guard(debug.SetPanicOnFault(true), &fault)
	if im.golang != nil {
		if addr, ok := im.Address(pc - m.Start + m.Offset); ok {
			if r, ok := im.golang.Rule(addr); ok {
				return r
			}
		}
	}
	var row dwarfcfi.Row
	err := im.tableRow(m, pc, &row)
	addr, ok := im.Address(pc - m.Start + m.Offset)
	switch {
	case err == nil && addr+1 == row.End && im.EndsContext(m, pc+1) && !im.code.IsRet(addr),
		err == dwarfcfi.ErrNoFDE && im.EndsContext(m, pc+1):
		return rule.EndOfStack
	case err == nil:
		return im.compileRow(&row, pc)
	case !errors.Is(err, dwarfcfi.ErrNoFDE):
		return rule.Malformed
	}
	if !ok || im.code == nil {
		return rule.Uncovered
	}
	if addr-im.entry < entrySize && im.code.IsOneFunction(im.entry, addr) {
		return rule.EntryCode
	}
	if r, ok := im.code.Rule(addr); ok {
		return r
	}
	return rule.Uncovered
}

// maxWide is how many rules an image may have whose numbers have no room in them.
const maxWide = 1 << 16

// compileRow gives the rule for a row, and keeps numbers that have no room in it.
func (im *Image) compileRow(row *dwarfcfi.Row, pc uint64) rule.Rule {
	r := rule.Compile(row, pc)
	if r == rule.Local && len(im.wide) < maxWide {
		if w, ok := rule.CompileWide(row); ok {
			im.wide = append(im.wide, w)
			return rule.WideAt(len(im.wide) - 1)
		}
	}
	return r
}

// entrySize is how many bytes after the entry point still belong to it: what
// the C libraries' start code has before it hands over for good.
const entrySize = 64

// Row gives the CFI row for pc, which lies in m.
func (im *Image) Row(m *vmas.Mapping, pc uint64, row *dwarfcfi.Row) (err error) {
	defer im.Guard(debug.SetPanicOnFault(true), &err)
	return im.tableRow(m, pc, row)
}

// EntryRow gives the CFI row for the first instruction of the function that holds the
// address addr.
func (im *Image) EntryRow(addr uint64, row *dwarfcfi.Row) (err error) {
	defer im.Guard(debug.SetPanicOnFault(true), &err)
	if im.cfi == nil {
		return dwarfcfi.ErrNoFDE
	}
	d, err := im.cfi.FDE(addr)
	if err != nil {
		return err
	}
	return d.Row(d.Start, row)
}

// InGo says whether the address addr is in a Go function.
func (im *Image) InGo(addr uint64) (ok bool) {
	if im.golang != nil {
		var fault error
		defer im.Guard(debug.SetPanicOnFault(true), &fault)
		_, _, ok = im.golang.Function(addr)
	}
	return ok
}

func (im *Image) tableRow(m *vmas.Mapping, pc uint64, row *dwarfcfi.Row) error {
	addr, ok := im.Address(pc - m.Start + m.Offset)
	if !ok {
		return dwarfcfi.ErrNoFDE
	}
	if im.golang != nil {
		if err := im.golang.Row(addr, row); err != gotab.ErrNotGo {
			return err
		}
	}
	if im.cfi != nil {
		if err := im.cfi.Row(addr, row); err != dwarfcfi.ErrNoFDE {
			return err
		}
	}
	return im.debugRow(addr, row)
}

// Address turns a file offset into the virtual address that the image's
// program headers give it.
func (im *Image) Address(off uint64) (uint64, bool) {
	for i := range im.loads {
		if l := &im.loads[i]; off >= l.Offset && off-l.Offset < l.Filesz {
			return off - l.Offset + l.Vaddr, true
		}
	}
	return 0, false
}

// Parse parses the file unless that was done. The error says why it cannot be used.
func (im *Image) Parse() error {
	if !im.parsed {
		im.parse()
	}
	return im.err
}

// parse finds the tables. The file stays open for its code.
func (im *Image) parse() {
	im.parsed = true
	if jitdump.IsName(im.Path) {
		return // its page of code is there to tell of it, and it is read on and on
	}
	defer func() {
		if im.code == nil {
			im.close()
		}
	}()
	if !im.opened {
		return
	}
	err := im.read()
	switch {
	case err == nil || errors.Is(err, dwarfcfi.ErrNoFDE) || im.err != nil:
		return
	case !errors.Is(err, elf.ErrBadELF) && !errors.Is(err, dwarfcfi.ErrBadCFI):
		im.err = err
	}
	im.store.Report(im.Path, err)
}

// read finds the CFI sections. What is no ELF file, or holds no CFI that can
// be read, is an image without CFI: code that was generated at run time may
// lie in a file too.
func (im *Image) read() (err error) {
	defer im.Guard(debug.SetPanicOnFault(true), &err)
	r := im.contents()
	layout, err := elf.ReadLayout(r, im.size)
	if err != nil {
		return fmt.Errorf("%s: %w", im.Path, err)
	}
	arch := rule.ArchOf(layout.Machine)
	if arch == nil {
		return fmt.Errorf("%s: %v: %w", im.Path, layout.Machine, errMachine)
	}
	im.arch, im.loads, im.entry = arch, layout.Loads, layout.Entry
	im.debug.note(r, layout)
	if arch == rule.AMD64 { // other rows are kept as they are, with expressions in the sections
		im.mapFile()
	}
	im.code = asm.New(r, layout, asm.Covered{FDEs: im.fdes, Gap: im.gap})
	im.golang, err = gotab.Read(r, im.size, layout, im.mapped)
	if err != nil && err != gotab.ErrNone {
		im.store.Report(im.Path, err)
	}
	var sections dwarfcfi.Sections
	if im.mapped != nil {
		sections, err = dwarfcfi.SectionsIn(im.mapped, layout)
	} else {
		sections, err = dwarfcfi.ReadSections(r, layout)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", im.Path, err)
	}
	cfi, err := dwarfcfi.New(sections)
	if err != nil {
		return fmt.Errorf("%s: %w", im.Path, err)
	}
	im.cfi = cfi
	return nil
}

var errMachine = errors.New("another machine's code")

// IsGenerated says whether the file was seen to be no ELF file: a runtime keeps
// the code that it generates in it.
func (im *Image) IsGenerated() bool {
	return im.parsed && im.err == nil && len(im.loads) == 0
}

func (im *Image) close() {
	im.unmap()
	im.memory = nil
	if im.file != nil {
		im.file.Close()
		im.file = nil
	}
}
