package image

import (
	"errors"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/asm"
	"unspool/unwind/gotab"
	"unspool/unwind/jit/jitdump"
	"unspool/unwind/module"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// An Image is one ELF file, however many processes map it and by whatever name. It is opened when it is first
// mapped, so that it can still be read when the process is gone, and parsed when it is first sampled, both on
// goroutines of the store's reader. The image takes over their results when it is next used; until then it
// has no rules.
type Image struct {
	// BuildID is the GNU build ID of the file, nil when it has none.
	BuildID []byte
	// Path is that by which the file was first seen.
	Path string

	store  *Store
	name   string  // of which Path is a part: as the kernel gave it
	refs   int     // how many files of address spaces have this image
	source *source // nil if the file could not be opened, or is not read any more
	key    string  // of the source, "" without a build ID
	inode  inode   // of the source
	opened bool    // the file could be opened
	err    error   // why it cannot be used

	reading  *task[*tables] // nil unless it is under way
	*tables                 // nil until they are read
	contents *contents      // from which code is read
	calls    rule.Answers   // of IsReturn
	edges    edges          // of CallsOther
	code     *asm.Code      // for code without CFI; on i386 for start code and the ends of coroutines
	survey   survey         // likewise
	debug    debugInfo
	wanted   *job // reads the piece that was missed; nil if none was
	late     lateness
	skipped  bool // some of its rules were not looked for, as that takes too long

	rules  rule.Set
	ranges rule.Ranges // of rows
	rows   keptRows    // in place of rules, if arch is not AMD64
	hit    bool        // a frame was in it
}

// Rules is for [module.Module].
func (im *Image) Rules() *rule.Set { return &im.rules }

// State is for [module.Module].
func (im *Image) State() module.State {
	if im.Parse() != nil {
		return module.State{Late: im.misses()}
	}
	return module.State{Entry: im.entry, Read: true, Generated: im.IsGenerated(), CFI: im.cfi != nil,
		Late: im.misses()}
}

// Opened reports whether the file could be opened.
func (im *Image) Opened() bool { return im.opened }

// Find is for [module.Module]. The rule is [rule.Unreadable] until the file is read. That is not kept, so that the next
// look-up tries again.
func (im *Image) Find(m *vmas.Mapping, pc, off uint64) rule.Rule {
	im.sampled(m.File)
	if !im.isRead() || im.err != nil {
		return rule.Unreadable
	}
	if off>>32 == 0 {
		if r := im.ranges.Get(uint32(off)); r != rule.None {
			im.rules.Put(uint32(off), r)
			return r
		}
	}
	r, holds := rule.Unreadable, extent{} // for i386 code: frames of x86-64 do not return to it
	if im.arch == rule.AMD64 || im.arch == nil {
		began, ok := im.store.rules.begin()
		if !ok {
			im.overBudget()
			return rule.Unreadable
		}
		im.refresh()
		im.survey.missing = false
		r, holds = im.compile(m, pc)
		im.store.rules.end(began)
		if im.misses() || im.survey.missing || im.err != nil {
			return rule.Unreadable
		}
	}
	if off>>32 == 0 {
		im.rules.Put(uint32(off), r)
		if holds.to>>32 == 0 && holds.from < holds.to {
			im.ranges.Put(uint32(off), uint32(holds.from), uint32(holds.to), r)
		}
	}
	return r
}

// An extent is the file offsets over which a rule holds; to is exclusive. It is empty if that is not known.
type extent struct{ from, to uint64 }

// extentOf is that of the rule for a row that holds at addr, at an offset in the file. At the row's last byte
// a coroutine may end, and an expression may say something else at each address. Where Go's table goes before
// rows, and with a debug file, which the image's own CFI goes before, it is not known.
func (im *Image) extentOf(row *dwarfcfi.Row, addr, off uint64) extent {
	if row.CFA.Kind == dwarfcfi.CFAExpression || im.golang != nil || im.debug.cfi != nil ||
		addr < row.Start || addr+1 >= row.End || off < addr-row.Start {
		return extent{}
	}
	e := extent{off - (addr - row.Start), off + (row.End - 1 - addr)}
	low, lowOK := im.Address(e.from)
	last, lastOK := im.Address(e.to - 1)
	if !lowOK || !lastOK || low != row.Start || last != row.End-2 {
		return extent{} // it is not in one segment
	}
	return e
}

// sampled notes that a frame is in the image, which is that of the file f.
func (im *Image) sampled(f *vmas.File) {
	if im.hit {
		return
	}
	im.hit = true
	s := im.store
	if im.BuildID == nil && im.err != errLate && s.hooks.Unidentified != nil && s.find.recorded(f).IsZero() {
		s.hooks.Unidentified(im.name)
	}
}

// compile gives the rule for pc, which lies in m, and where it holds.
func (im *Image) compile(m *vmas.Mapping, pc uint64) (r rule.Rule, holds extent) {
	if im.golang != nil {
		if addr, ok := im.Address(pc - m.Start + m.Offset); ok {
			if r, ok := im.golang.Rule(addr); ok {
				return r, holds
			}
		}
	}
	var row dwarfcfi.Row
	err := im.Row(m, pc, &row)
	addr, ok := im.Address(pc - m.Start + m.Offset)
	switch {
	case err == nil && addr+1 == row.End && im.endsContext(m, pc+1) && !im.code.IsRet(addr),
		err == dwarfcfi.ErrNoFDE && im.endsContext(m, pc+1):
		return rule.EndOfStack, holds
	case err == nil:
		return im.compileRow(&row, pc), im.extentOf(&row, addr, pc-m.Start+m.Offset)
	case !errors.Is(err, dwarfcfi.ErrNoFDE):
		return rule.Malformed, holds
	}
	if !ok || im.code == nil {
		return rule.Uncovered, holds
	}
	if words, ok := im.startCode(addr); ok {
		return rule.EntryCode.With(words, 0), holds
	}
	if r, ok := im.code.Rule(addr); ok {
		return r, holds
	}
	if im.isBeforeFunction(addr) {
		return rule.GuessSP.With(1, 0), holds
	}
	return rule.Uncovered, holds
}

// endsContext reports whether pc, in m, is where the first function of a coroutine returns to, and not behind a call.
func (im *Image) endsContext(m *vmas.Mapping, pc uint64) bool {
	if im.code == nil || pc >= m.End {
		return false
	}
	addr, ok := im.Address(pc - m.Start + m.Offset)
	return ok && im.code.IsContextEnd(addr)
}

// isBeforeFunction reports whether there is only padding from addr to the start of a function. Code that runs
// into it from the function before has pushed nothing, as at a function's first instruction.
func (im *Image) isBeforeFunction(addr uint64) bool {
	start, ok := im.code.PaddingEnd(addr)
	if !ok || im.cfi == nil {
		return false
	}
	var row dwarfcfi.Row
	d, err := im.cfi.FDE(start)
	return err == nil && d.Start == start && d.Row(start, &row) == nil && rule.CFAAboveSP(&row) == 8
}

// compileRow gives the rule for a row.
func (im *Image) compileRow(row *dwarfcfi.Row, pc uint64) rule.Rule {
	r := rule.Compile(row, pc)
	if r == rule.Local {
		if w, ok := rule.CompileWide(row); ok {
			if at, ok := im.rules.PutWide(w); ok {
				return at
			}
		}
	}
	return r
}

// startCode reports whether the code shows that addr is in the function at the entry point, and how many words
// that has pushed by then.
func (im *Image) startCode(addr uint64) (words uint32, ok bool) {
	if im.code == nil || addr-im.entry >= maxStartCode {
		return 0, false
	}
	return im.code.StartCode(im.entry, addr)
}

// maxStartCode is how many bytes from the entry point on may be start code, if the code says so: Free
// Pascal's start code has 82.
const maxStartCode = 256

// entrySize is how many bytes from the entry point on are taken for start code if the code is not read: that
// of C libraries up to the call that does not return.
const entrySize = 64

// Row is for [module.Module].
func (im *Image) Row(m *vmas.Mapping, pc uint64, row *dwarfcfi.Row) error {
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

// Address turns a file offset into the virtual address that the image's program headers give it. ok is false
// if no segment has the offset, or the headers are not read yet.
func (im *Image) Address(off uint64) (addr uint64, ok bool) {
	if im.tables == nil {
		return 0, false
	}
	return im.address(off)
}

// Parse reads the file's tables, once. The error says why they cannot be used, or that they are not read yet.
func (im *Image) Parse() error {
	if !im.isRead() {
		return errLate
	}
	return im.err
}

// isRead reports whether the tables are there, or the reason why they cannot be. It has them read otherwise, and
// waits for them as long as that is allowed.
func (im *Image) isRead() bool {
	if im.tables != nil || im.err != nil {
		return true
	}
	if im.source == nil {
		im.tables = new(tables)
		return true
	}
	if im.reading == nil {
		path, source, quota := im.Path, im.source, im.store.tables
		im.reading = newTask(func() *tables { return readTables(path, source, quota) },
			func(t *tables) { t.share.giveBack() })
		im.reading.goesThrough(source)
	}
	if !im.store.await(&im.reading.job, im.Path, &im.late) {
		return false
	}
	im.adopt(im.reading.result)
	im.reading = nil
	return true
}

// adopt stores the tables that were read. The file stays open for its code.
func (im *Image) adopt(t *tables) {
	im.store.arrivals++
	im.tables, im.err = t, t.err
	for _, err := range t.told {
		im.store.Report(im.Path, err)
	}
	if t.err != nil {
		im.store.Report(im.Path, t.err)
	}
	if t.layout != nil && t.err == nil {
		for _, p := range t.lazy {
			p.image = im
		}
		if !t.generated { // whose instructions the process may have changed since
			im.contents = &contents{image: im}
			im.readCode()
		}
	} else if !jitdump.IsName(im.Path) {
		im.close()
	}
}

// readCode makes new readers of the code, which have concluded nothing yet.
func (im *Image) readCode() {
	im.code = asm.New(im.contents, im.layout, asm.Covered{FDEs: im.fdes, Gap: im.gap, Survey: im.surveyed})
	if im.golang != nil {
		im.golang.ReadCodeFrom(im.contents)
	}
}

// wait waits for a piece of the file, and notes that it was missed if it does not come in time.
func (im *Image) wait(piece *job) bool {
	if im.store.await(piece, im.Path, &im.late) {
		return true
	}
	im.wanted = piece
	return false
}

// misses reports whether a piece of the file was missed: nothing that was concluded since then may be kept.
func (im *Image) misses() bool { return im.wanted != nil }

// refresh drops what was concluded without the piece of the file that was missed, once it has come.
func (im *Image) refresh() {
	if im.misses() && im.wanted.isDone() {
		im.store.arrivals++
		im.wanted = nil
		im.late = lateness{told: im.late.told}
		im.readCode()
	}
}

// IsGenerated reports whether the file was read and has generated code: it is no ELF file, or one that was made of
// such code afterwards (see [jitdump.IsInjected]), which may have CFI.
func (im *Image) IsGenerated() bool {
	return im.tables != nil && im.err == nil && (len(im.loads) == 0 || im.generated)
}

// isNotELF reports whether the file was no ELF file when it was opened, or when it was read.
func (im *Image) isNotELF() bool {
	return im.IsGenerated() || im.tables == nil && im.source != nil && im.source.notELF
}

// Part is for [module.Module].
func (im *Image) Part(off uint64) (lo, hi uint64, code bool) {
	const page = 4096
	hi = ^uint64(0)
	for i := range im.loads {
		l := &im.loads[i]
		start, end := l.Offset&^(page-1), (l.Offset+l.Filesz+page-1)&^(page-1)
		switch {
		case l.Flags&elf.PF_X == 0 || end < start:
		case off < start:
			hi = min(hi, start)
		case off >= end:
			lo = max(lo, end)
		default:
			return start, end, true
		}
	}
	return lo, hi, len(im.loads) == 0
}

// close closes the image's file.
func (im *Image) close() {
	if s := im.source; s != nil && s.file != nil {
		im.source = nil
		s.close()
	}
}

// forget closes the file and gives back all memory: no process maps the file any more.
func (im *Image) forget() {
	if im.reading != nil {
		im.store.reader.abandon(&im.reading.job)
	}
	im.debug.forget(im.store)
	if im.contents != nil {
		im.contents.forget()
	}
	if im.tables != nil {
		im.share.giveBack()
	}
	im.close()
}
