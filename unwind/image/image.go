package image

import (
	"errors"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/asm"
	"unspool/unwind/gotab"
	"unspool/unwind/jit/jitdump"
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
	calls    answers        // of IsReturn
	leaving  answers        // of MayLeave
	hostless answers        // of CallsNoHost
	edges    edges          // of CallsOther
	code     *asm.Code      // for code without CFI; on i386 for start code and the ends of coroutines
	survey   survey         // likewise
	debug    debugInfo
	wanted   *job // reads the piece that was missed; nil if none was
	late     lateness
	skipped  bool // some of its rules were not looked for, as that takes too long

	rules  rule.Cache
	ranges rule.Ranges // of rows
	wide   []rule.WideRule
	rows   keptRows // in place of rules, if arch is not AMD64
	hit    bool     // a frame was in it
}

// Rules returns the rules that are known, by offset in the file. [Image.Find] adds to them.
func (im *Image) Rules() *rule.Cache { return &im.rules }

// Wide returns the rule whose numbers are too large for r, of the kind [rule.Wide].
func (im *Image) Wide(r rule.Rule) *rule.WideRule { return &im.wide[r.Index()] }

// Opened reports whether the file could be opened.
func (im *Image) Opened() bool { return im.opened }

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

// Find is Rule for a PC that was not looked up before; off is its offset in the file. The rule is
// [rule.Unreadable] until the file is read. That is not kept, so that the next look-up tries again.
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
	if im.BuildID == nil && im.err != errLate && s.tell.Unidentified != nil && s.find.recorded(f).IsZero() {
		s.tell.Unidentified(im.name)
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
	case err == nil && addr+1 == row.End && im.EndsContext(m, pc+1) && !im.code.IsRet(addr),
		err == dwarfcfi.ErrNoFDE && im.EndsContext(m, pc+1):
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

// isBeforeFunction reports whether there is only padding from addr to the start of a function. Code that runs
// into it from the function before has pushed nothing, as at a function's first instruction.
func (im *Image) isBeforeFunction(addr uint64) bool {
	start, ok := im.code.PaddingEnd(addr)
	if !ok || im.cfi == nil {
		return false
	}
	var row dwarfcfi.Row
	d, err := im.cfi.FDE(start)
	return err == nil && d.Start == start && d.Row(start, &row) == nil && fromSP(&row) && row.CFA.Offset == 8
}

// maxWide is how many rules of the kind Wide an image may have.
const maxWide = 1 << 16

// compileRow gives the rule for a row. Numbers that do not fit into a rule are kept in im.wide.
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

// IsEntry reports whether CFI shows that pc, which lies in m, is in the function at the entry point.
func (im *Image) IsEntry(m *vmas.Mapping, pc uint64) bool {
	if im.tables == nil || im.cfi == nil {
		return false
	}
	addr, ok := im.Address(pc - m.Start + m.Offset)
	if !ok {
		return false
	}
	d, err := im.cfi.FDE(addr)
	return err == nil && d.Start == im.entry
}

// EntryRow gives the CFI row for the first instruction of the function that holds the
// address addr.
func (im *Image) EntryRow(addr uint64, row *dwarfcfi.Row) error {
	if im.tables == nil || im.cfi == nil {
		return dwarfcfi.ErrNoFDE
	}
	d, err := im.cfi.FDE(addr)
	if err != nil {
		return err
	}
	return d.Row(d.Start, row)
}

// DispatchFrame gives the address where the function that begins at pc, which lies in m, jumps through a
// pointer in memory, as interpreters of threaded code do, and the distance from SP to the CFA there. Only
// jumps where the function has its largest frame are considered: before a tail call the frame is gone. ok is
// false if there is no such jump.
func (im *Image) DispatchFrame(m *vmas.Mapping, pc uint64) (at, size uint64, ok bool) {
	if im.Parse() != nil {
		return 0, 0, false
	}
	addr, ok := im.Address(pc - m.Start + m.Offset)
	if !ok || im.cfi == nil || im.code == nil {
		return 0, 0, false
	}
	d, err := im.cfi.FDE(addr)
	if err != nil || d.Start != addr {
		return 0, 0, false
	}
	size = largestFrame(&d)
	left := uint64(mostDispatch)
	for row, err := range d.Rows() {
		if err != nil || size <= 8 || row.End-row.Start > left {
			break
		}
		if !fromSP(row) || uint64(row.CFA.Offset) != size {
			continue
		}
		if jump, ok := im.code.Dispatch(row.Start, row.End); ok {
			return pc + jump - addr, size, !im.misses()
		}
		left -= row.End - row.Start
	}
	return 0, 0, false
}

const (
	mostRows     = 1 << 12   // of an interpreter's CFI
	mostDispatch = 256 << 10 // bytes of its code that are searched
)

// largestFrame gives the largest distance from SP to the CFA in a function, 0 if it has too many rows.
func largestFrame(d *dwarfcfi.FDE) (size uint64) {
	n := 0
	for row, err := range d.Rows() {
		if n++; err != nil || n > mostRows {
			return 0
		}
		if fromSP(row) {
			size = max(size, uint64(row.CFA.Offset))
		}
	}
	return size
}

// fromSP reports whether a row's CFA is SP plus an offset.
func fromSP(row *dwarfcfi.Row) bool {
	return row.CFA.Kind == dwarfcfi.CFARegister && row.CFA.Reg == rule.SP && row.CFA.Offset > 0
}

// InGo reports whether the address addr is in a Go function.
func (im *Image) InGo(addr uint64) (ok bool) {
	if im.IsGo() {
		_, _, ok = im.golang.Function(addr)
	}
	return ok && !im.misses()
}

// IsGo reports whether the image has Go functions.
func (im *Image) IsGo() bool { return im.tables != nil && im.golang != nil }

// CallsMorestack reports whether pc, in m, is where a call of Go's morestack returns to.
func (im *Image) CallsMorestack(m *vmas.Mapping, pc uint64) bool {
	addr, ok := im.Address(pc - m.Start + m.Offset)
	return ok && im.IsGo() && im.golang.CallsMorestack(addr) && !im.misses()
}

// Growth is [gotab.Table.Growth] for pc, which lies in m, with a return address in m.
func (im *Image) Growth(m *vmas.Mapping, pc uint64) (g gotab.Growth, ok bool) {
	addr, ok := im.Address(pc - m.Start + m.Offset)
	if !ok || !im.IsGo() {
		return g, false
	}
	g, ok = im.golang.Growth(addr)
	g.Return += pc - addr
	return g, ok && !im.misses()
}

// Row gives the CFI row for pc, which lies in m.
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

// IsLate reports whether what was just asked about the code is not known yet, as a piece of it was not read in
// time.
func (im *Image) IsLate() bool { return im.misses() }

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

// HasCFI reports whether the file was read and has CFI.
func (im *Image) HasCFI() bool { return im.tables != nil && im.cfi != nil }

// isNotELF reports whether the file was no ELF file when it was opened, or when it was read.
func (im *Image) isNotELF() bool {
	return im.IsGenerated() || im.tables == nil && im.source != nil && im.source.notELF
}

// Part reports whether the image, which was parsed, has code at an offset in the file, by its segments and not
// by what the process may execute. The answer is the same for all offsets from lo up to hi.
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
