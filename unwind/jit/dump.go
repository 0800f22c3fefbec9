package jit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"unspool/dwarfcfi"
	"unspool/unwind/jit/jitdump"
	"unspool/vmas"
)

// A dump is the CFI that one process's jitdump holds.
type dump struct {
	file File
	err  error // why the file is not read any more

	reader  *jitdump.Reader // belongs to the job while one is under way
	reading Job             // nil unless one is under way
	batch   *batch          // the result of that job

	codes []generatedCode // in order of address, for each the youngest only
	fresh []generatedCode // not merged into codes yet
	seq   uint32
}

// A generatedCode is a piece of code with CFI.
type generatedCode struct {
	addr, size uint64
	frameAddr  uint64 // of .eh_frame, relative to addr
	frame      []byte
	table      *dwarfcfi.Table // of frame, once it was needed
	seq        uint32          // age: later ones replace earlier ones
}

const (
	// maxGenerated is how many pieces of code are kept.
	maxGenerated = 1 << 18
	// maxDumpRead is how many bytes of a jitdump are read at once. Adding so many takes a few milliseconds,
	// in which the rings are not read.
	maxDumpRead = 8 << 20
)

// A batch is what one job reads of a jitdump.
type batch struct {
	records []jitdump.Entry
	more    bool
	err     error
}

// readDump reads on in the jitdump of a process, if it has mapped one. It reports whether there is more to be
// read, and whether that is still being read.
func (c *ProcessCode) readDump(files Inputs, space *vmas.Space) (more, late bool) {
	if !c.asked || c.maps != space.Generation() {
		file, late := files.Dump(space)
		c.asked, c.maps = !late, space.Generation()
		if file == nil {
			c.dump = nil
		} else if c.dump == nil || c.dump.file != file {
			c.dump = &dump{file: file}
		}
	}
	d := c.dump
	if d == nil || d.err != nil {
		return false, !c.asked
	}
	more, late = d.read()
	if d.err != nil {
		files.Report(d.file.Path(), fmt.Errorf("%s: %w", d.file.Path(), d.err))
	}
	return more, late
}

// readWholeDump reads the jitdump of a recorded process, once for as long as its mappings stay the same: the
// result depends on the recording alone.
func (c *ProcessCode) readWholeDump(files Inputs, space *vmas.Space) {
	if c.asked && c.maps == space.Generation() {
		return
	}
	clear(c.now.rules)
	clear(c.now.calls)
	for more, late := true, false; more && !late; {
		more, late = c.readDump(files, space)
	}
}

// read adds what the runtime has written since the last time, which a job reads on another goroutine. late
// says that the job has not ended in time.
func (d *dump) read() (more, late bool) {
	if d.reading == nil {
		d.batch = new(batch)
		b := d.batch
		d.reading = d.file.Begin(func() { d.readBatch(b) })
	}
	if !d.reading() {
		return true, true
	}
	b := d.batch
	d.reading, d.batch = nil, nil
	for i := range b.records {
		d.add(&b.records[i])
	}
	d.merge()
	d.err = b.err
	return b.more, false
}

// readBatch reads records into b, on a goroutine of its own: it uses only the file and the reader of d.
func (d *dump) readBatch(b *batch) {
	if d.reader == nil {
		if d.reader, b.err = jitdump.NewReader(d.file); b.err != nil {
			d.reader, b.err = nil, notEOF(b.err)
			return
		}
	}
	before := d.reader.Looked()
	var r jitdump.Entry
	for b.err == nil && !b.more {
		if b.err = d.reader.Next(&r); b.err == nil {
			r.Name = nil
			b.records = append(b.records, r)
			b.more = d.reader.Looked()-before >= maxDumpRead
		}
	}
	b.err = notEOF(b.err)
}

// notEOF is err unless it means that a file ends.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (d *dump) add(r *jitdump.Entry) {
	d.seq++
	c := generatedCode{addr: r.Addr, size: r.Size, seq: d.seq}
	switch r.Kind {
	case jitdump.CodeLoad:
		// Code without CFI is kept, too: it may have replaced other code.
		c.frame, c.frameAddr = r.Frame, r.FrameAddr()
	case jitdump.CodeMove:
		d.merge()
		old := d.find(r.From)
		if old == nil || old.addr != r.From {
			return
		}
		c.frame, c.frameAddr = old.frame, old.frameAddr
	}
	d.fresh = append(d.fresh, c)
	if len(d.fresh) >= maxGenerated {
		d.merge()
	}
}

// merge merges fresh into codes, and drops the oldest if there are too many.
func (d *dump) merge() {
	if len(d.fresh) == 0 {
		return
	}
	order := func(a, b generatedCode) int {
		return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.seq, b.seq))
	}
	slices.SortFunc(d.fresh, order)
	all := make([]generatedCode, 0, len(d.codes)+len(d.fresh))
	put := func(c generatedCode) {
		if n := len(all); n > 0 && all[n-1].addr == c.addr {
			all[n-1] = c
		} else {
			all = append(all, c)
		}
	}
	old := d.codes
	for _, c := range d.fresh {
		for len(old) > 0 && order(old[0], c) < 0 {
			put(old[0])
			old = old[1:]
		}
		put(c)
	}
	d.codes = append(all, old...)
	d.fresh = d.fresh[:0]
	if len(d.codes) > maxGenerated {
		limit := d.seq - maxGenerated/2
		d.codes = slices.DeleteFunc(d.codes, func(c generatedCode) bool { return c.seq < limit })
	}
}

// find gives the youngest code at pc. Code that was dropped long ago may still overlap younger code, so a few
// pieces that start before are looked at.
func (d *dump) find(pc uint64) *generatedCode {
	const across = 8
	i, ok := slices.BinarySearchFunc(d.codes, pc, func(c generatedCode, pc uint64) int {
		return cmp.Compare(c.addr, pc)
	})
	if ok {
		i++
	}
	var found *generatedCode
	for n := 0; n < across && i > 0; n++ {
		i--
		c := &d.codes[i]
		if pc-c.addr < c.size && (found == nil || c.seq > found.seq) {
			found = c
		}
	}
	return found
}

// row gives the CFI row for pc.
func (d *dump) row(pc uint64, row *dwarfcfi.Row) error {
	c := d.find(pc)
	if c == nil || c.frame == nil {
		return dwarfcfi.ErrNoFDE
	}
	if c.table == nil {
		table, err := dwarfcfi.New(dwarfcfi.Sections{
			EhFrame: dwarfcfi.Section{Addr: c.frameAddr, Data: c.frame},
			PtrSize: 8,
		})
		if err != nil {
			return err
		}
		c.table = table
	}
	return c.table.Row(pc-c.addr, row)
}
