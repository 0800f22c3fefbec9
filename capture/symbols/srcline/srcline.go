package srcline

import (
	"debug/dwarf"
	"errors"
	"io"
	"slices"

	"unspool/dwarfcfi/elf"
)

// File is an ELF file. One that an Options function returned is closed when it is no longer needed, if it is
// an io.Closer.
type File struct {
	io.ReaderAt
	Size int64
	Name string // for errors
	// Stored is how many of its bytes are on a disk: a sparse file has fewer. 0 stands for all.
	Stored int64
}

// Options say how to open the files that debugging information refers to. Without a function, or if it
// fails, the contents of those files are missing, and the error of Frames says so.
type Options struct {
	// Alt opens the alternate file that dwz moved shared entries to: its name as it is recorded, often relative
	// to the file that refers to it, and its build ID. A file with another build ID must not be returned.
	Alt func(name string, buildID []byte) (File, error)
	// DWO opens the file with a split unit: its name, relative to the compilation directory, and its id. A file
	// without a unit of the id is refused.
	DWO func(compDir, name string, id uint64) (File, error)
	// DWP opens the package of all split units, usually the image's path with ".dwp". It is called once, when
	// the first split unit is needed, and may return the zero File when there is no package.
	DWP func() (File, error)
	// Stop, if set, is asked between two units whether to leave out the rest, which is no error.
	Stop func() bool
}

// Frame is a function at an address.
type Frame struct {
	Func string // mangled; "" when it is not known
	File string // "" when it is not known
	// Of the innermost frame, the line of the address; of the others, the line where the frame before was
	// called; 0 if not known.
	Line   int
	Column int // of the same place
	Start  int // the line where the function is declared, DW_AT_decl_line; 0 if not known
}

// Data is the debugging information of an image. It is not safe for concurrent use.
type Data struct {
	options   Options
	main      *object
	dwp       *object
	dwpOpened bool

	work     int64 // how many bytes may still be handled before the file is given up as hostile
	problems problems
	granted  map[string]bool // .dwo files whose size was added to work

	walk   walk
	rows   []row
	index  []int32 // for each of walk.pcs its index in Frames's addrs
	frames []Frame
}

// Open reads the headers of an ELF file with debugging information. The file must stay readable until Close.
func Open(f File, o Options) (*Data, error) {
	main, err := openObject(f, false)
	if err != nil {
		return nil, err
	}
	if main.info.size == 0 {
		return nil, &Error{f.Name, ".debug_info", 0, "absent or empty", ErrNoDWARF}
	}
	if main.typ == elf.ET_REL {
		return nil, &Error{f.Name, "ELF header", 16, "a relocatable file", ErrUnsupported}
	}
	if err := main.info.open(); err != nil {
		return nil, err
	}
	return &Data{options: o, main: main}, nil
}

// Close closes the files that the Options functions opened. Data must not be used any more.
func (d *Data) Close() error {
	d.main.alt.close()
	d.dwp.close()
	d.main.alt, d.dwp = nil, nil
	return nil
}

// Work is counted in bytes that are read. A real file is walked twice at most, and each of its tables is read
// about once.
const (
	workPerByte = 64
	workAtLeast = 64 << 20
	workPerChar = 16 // of a name
)

func workFor(o *object) int64 { return int64(min(o.size(), 1<<48))*workPerByte + workAtLeast }

// spend reports whether n more bytes may be read.
func (d *Data) spend(n int) bool {
	d.work -= int64(n)
	return d.work >= 0
}

var errUnsorted = errors.New("addresses are not sorted")

// Frames finds the functions and lines at the sorted addresses. It calls yield, in no particular order,
// with the index of each address that the debugging information covers and its frames, innermost first,
// which yield must not keep. The error joins the errors about all parts that could not be read; the frames
// that were yielded are right nevertheless.
func (d *Data) Frames(addrs []uint64, yield func(i int, frames []Frame)) error {
	if !slices.IsSorted(addrs) {
		return errUnsorted
	}
	d.problems, d.granted = problems{}, make(map[string]bool)
	d.work = 64 * int64(len(addrs))
	for _, o := range []*object{d.main, d.main.alt, d.dwp} {
		if o != nil {
			d.work += workFor(o)
		}
	}
	if err := d.indexUnits(d.main); err != nil {
		d.problems.add(err)
	}
	p := pass{d: d, addrs: addrs, yield: yield, done: make([]bool, len(addrs)), paths: make(map[string]string)}
	var unsaid []uint64 // the offsets of units that do not say where their code is
	for _, off := range d.main.starts {
		if p.ends() {
			break
		}
		p.unit(off, &unsaid)
	}
	for _, off := range unsaid {
		if p.ends() {
			break
		}
		p.unit(off, nil)
	}
	if d.work < 0 {
		d.problems.add(&Error{d.main.name, d.main.info.name, 0, "given up", errWork})
	}
	err := d.problems.err()
	d.problems = problems{}
	return err
}

// pass is one call of Frames.
type pass struct {
	d     *Data
	addrs []uint64
	yield func(int, []Frame)
	done  []bool // yielded, by the index of the address
	found int
	paths map[string]string // one copy of each file's path
}

// ends reports whether no more units are looked at.
func (p *pass) ends() bool {
	return p.found == len(p.addrs) || p.d.work < 0 || p.d.options.Stop != nil && p.d.options.Stop()
}

// unit yields the addresses in the unit at off. If unsaid is not nil, a unit that does not say where its code
// is is added to it; if it is nil, the unit is one of these, and all addresses that are left are looked up.
func (p *pass) unit(off uint64, unsaid *[]uint64) {
	d := p.d
	u, err := d.main.parseUnit(off)
	if err == nil {
		err = d.readRoot(u)
	}
	if err != nil {
		d.problems.add(err)
		return
	}
	if u.tag != dwarf.TagCompileUnit && u.tag != dwarf.TagSkeletonUnit {
		return // type units and partial units have no code
	}
	d.index, d.walk.pcs = d.index[:0], d.walk.pcs[:0]
	switch {
	case unsaid == nil:
		p.claim(0, ^uint64(0))
	case !u.pc.hasRanges && !u.pc.hasHigh:
		*unsaid = append(*unsaid, off)
		return
	default:
		if err := d.each(u, &u.pc, p.claim); err != nil {
			d.problems.add(err)
		}
	}
	if len(d.index) == 0 {
		return
	}
	slices.Sort(d.index)
	d.index = slices.Compact(d.index)
	for _, i := range d.index {
		d.walk.pcs = append(d.walk.pcs, p.addrs[i])
	}
	if err := p.walk(u); err != nil {
		d.problems.add(err)
	}
}

// claim adds those addresses from lo up to hi that are not done to the addresses of the unit.
func (p *pass) claim(lo, hi uint64) {
	d := p.d
	for i := search(p.addrs, lo); i < len(p.addrs) && p.addrs[i] < hi && d.spend(1); i++ {
		if !p.done[i] {
			d.index = append(d.index, int32(i))
		}
	}
}

// walk yields the addresses in d.walk.pcs, which are those of the unit.
func (p *pass) walk(u *unit) error {
	d, w := p.d, &p.d.walk
	n := len(w.pcs)
	w.d, w.u = d, u
	w.deepest = resize(w.deepest, n)
	d.rows = resize(d.rows, n)
	clear(d.rows)
	lines, err := d.lineTable(u)
	if err == nil {
		err = d.runLines(lines, w.pcs, d.rows)
	}
	if err != nil {
		d.problems.add(err)
		lines = &lineTable{u: u}
	}
	if u.dwoName != "" {
		split, err := d.split(u)
		if err != nil {
			d.problems.add(err)
		} else {
			defer split.obj.close()
			w.u = split
		}
	}
	err = p.calls()
	for k, i := range d.index {
		innermost := w.deepest[k]
		if innermost < 0 && !d.rows[k].found {
			continue
		}
		p.done[i] = true
		p.found++
		p.yield(int(i), p.chain(innermost, d.rows[k], lines))
	}
	return err
}

// calls walks the unit's DIEs; if addresses are left, it walks all of them a second time.
func (p *pass) calls() error {
	w := &p.d.walk
	info := &w.u.obj.info
	var err error
	if w.data, err = info.keep(w.u.off, w.u.end-w.u.off); err != nil {
		for i := range w.deepest {
			w.deepest[i] = -1
		}
		return err
	}
	if err = w.run(false); err == nil && w.skipped && slices.Contains(w.deepest, -1) {
		err = w.run(true)
	}
	return err
}

// chain returns the frames of an address whose innermost function is given.
func (p *pass) chain(innermost int32, at row, lines *lineTable) []Frame {
	d, w := p.d, &p.d.walk
	d.frames = d.frames[:0]
	place := Frame{File: p.path(lines, at), Line: number(at.line), Column: number(at.column)}
	if innermost < 0 {
		return append(d.frames, place)
	}
	for i := innermost; i >= 0; {
		c := &w.calls[i]
		if !c.named {
			c.subprogram, c.named = d.subprogram(w.u, reference{w.u.obj, c.die}, maxOrigins), true
		}
		place.Func, place.Start = c.name, c.start
		d.frames = append(d.frames, place)
		at = row{c.file, c.line, c.column, true}
		if i = c.parent; i >= 0 {
			place = Frame{File: p.path(lines, at), Line: number(at.line), Column: number(at.column)}
		}
	}
	return d.frames
}

func (p *pass) path(lines *lineTable, at row) string {
	if !at.found {
		return ""
	}
	name, ok := lines.paths[at.file]
	if !ok {
		name = p.d.file(lines, at.file)
		if same, ok := p.paths[name]; ok {
			name = same
		} else {
			p.paths[name] = name
		}
		if lines.paths == nil {
			lines.paths = make(map[uint64]string)
		}
		lines.paths[at.file] = name
		p.d.spend(workPerChar * len(name))
	}
	return name
}

// number is a line or column; a number larger than that of any source file counts as not known.
func number(n uint64) int {
	if n > 1<<31-1 {
		return 0
	}
	return int(n)
}

// search is the index of the first of the sorted values that is not below v.
func search(sorted []uint64, v uint64) int {
	i, _ := slices.BinarySearch(sorted, v)
	return i
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
