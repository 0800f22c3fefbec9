package jit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"unspool/dwarfcfi"
	"unspool/unwind/jit/jitdump"
	"unspool/vmas"
)

// A dump is the CFI that one process's jitdump holds.
type dump struct {
	file   *os.File // whoever found it opens it and closes it
	path   string
	reader *jitdump.Reader
	err    error // of the file, for good

	codes []generatedCode // by address, then age; of one address the youngest only
	fresh []generatedCode // read, but not in codes yet
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
	// maxDumpRead is how many bytes of a jitdump are read at once: a few
	// milliseconds, in which nothing else is read from the rings.
	maxDumpRead = 8 << 20
)

// readDump reads on in the jitdump of a process, if it has mapped one. It
// reports whether there is more to be read.
func (c *Code) readDump(files Files, space *vmas.Space) (more bool) {
	if !c.asked || c.maps != space.Generation() {
		c.asked, c.maps = true, space.Generation()
		if file, path := files.Dump(space); file == nil {
			c.dump = nil
		} else if c.dump == nil || c.dump.file != file {
			c.dump = &dump{file: file, path: path}
		}
	}
	d := c.dump
	if d == nil || d.err != nil {
		return false
	}
	more, d.err = d.read()
	if d.err != nil {
		files.Report(d.path, fmt.Errorf("%s: %w", d.path, d.err))
	}
	return more
}

// readWholeDump reads the jitdump of a recorded process, once for as long as its
// mappings stay the same: the outcome depends on the recording alone.
func (c *Code) readWholeDump(files Files, space *vmas.Space) {
	if c.asked && c.maps == space.Generation() {
		return
	}
	clear(c.now.rules)
	clear(c.now.calls)
	for c.readDump(files, space) {
	}
}

// read reads what the runtime has written since the last time.
func (d *dump) read() (more bool, err error) {
	if d.reader == nil {
		if d.reader, err = jitdump.NewReader(d.file); err != nil {
			return false, notEOF(err)
		}
	}
	before := d.reader.Looked()
	var r jitdump.Record
	for err == nil && !more {
		if err = d.reader.Next(&r); err == nil {
			d.add(&r)
			more = d.reader.Looked()-before >= maxDumpRead
		}
	}
	d.merge()
	return more, notEOF(err)
}

// notEOF is err unless it says that a file ends.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (d *dump) add(r *jitdump.Record) {
	d.seq++
	c := generatedCode{addr: r.Addr, size: r.Size, seq: d.seq}
	switch r.Kind {
	case jitdump.CodeLoad:
		// Code without CFI is noted, too: it may lie where other code was.
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

// merge moves what is fresh among the rest.
func (d *dump) merge() {
	if len(d.fresh) == 0 {
		return
	}
	order := func(a, b generatedCode) int { return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.seq, b.seq)) }
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

// find gives the youngest code at pc. What was dropped long ago may still lie
// across younger code, so some that start further down are looked at.
func (d *dump) find(pc uint64) *generatedCode {
	const across = 8
	i, ok := slices.BinarySearchFunc(d.codes, pc, func(c generatedCode, pc uint64) int { return cmp.Compare(c.addr, pc) })
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
