package dwarfcfi

import (
	"fmt"
	"iter"
	"math"
)

// Section is the contents of one section of an ELF image.
type Section struct {
	Addr uint64 // virtual address in the image; 0 for .debug_frame, which is not mapped
	Data []byte // owned by the caller, read as long as the table is used
	// Fetch, if it is not nil, is called before the bytes Data[from:to] are read, and makes sure that
	// they are there. Its error is returned to the caller and is not remembered: the next lookup calls
	// Fetch again. A table does not call it for .eh_frame_hdr.
	Fetch func(from, to int) error
	// Open means that the section's end is not known: Data goes on to the end of its
	// segment, and a zero length ends the section.
	Open bool
}

// Sections are what a [Table] reads. Those that an image lacks are empty.
type Sections struct {
	EhFrame    Section
	EhFrameHdr Section
	DebugFrame Section

	Text    uint64 // what DW_EH_PE_textrel is relative to
	Data    uint64 // what DW_EH_PE_datarel is relative to in .eh_frame
	PtrSize int    // in bytes: 4 or 8
}

// Table is the unwind table of one ELF image. It fills caches while it answers, so one
// goroutine at a time may use it.
type Table struct {
	eh, debug frames
	hdr       searchTable
}

// frames is a section of CIEs and FDEs.
type frames struct {
	Section
	name       string
	eh         bool // .eh_frame, not .debug_frame
	text, data uint64
	ptrSize    uint8

	cies       [1 << cieCacheBits]*CIE // by hash of the offset; a CIE of the same hash is replaced
	remembered []Rules                 // stack of remember_state, empty between calls
	index      *index                  // nil until it is needed
}

// Linkers merge equal CIEs, so an .eh_frame has a handful; a .debug_frame has one for
// each compilation unit.
const cieCacheBits = 5

// fetch makes sure that the bytes Data[from:to] are there.
func (f *frames) fetch(from, to int) error {
	if f.Fetch == nil || from >= to {
		return nil
	}
	return f.Fetch(from, to)
}

func (f *frames) bad(offset uint64, what string) error {
	return &Error{Section: f.name, Offset: offset, What: what, Err: ErrBadCFI}
}

// New returns the table of sections, which it keeps. It reads .eh_frame_hdr and nothing else; if that
// is missing or useless, the first lookup builds an index instead. The error wraps [ErrBadCFI].
func New(s Sections) (*Table, error) {
	if s.PtrSize != 4 && s.PtrSize != 8 {
		return nil, fmt.Errorf("pointers of %d bytes: %w", s.PtrSize, ErrBadCFI)
	}
	for _, data := range [][]byte{s.EhFrame.Data, s.EhFrameHdr.Data, s.DebugFrame.Data} {
		if len(data) > math.MaxInt32 {
			return nil, fmt.Errorf("section of %d bytes: %w", len(data), ErrBadCFI)
		}
	}
	t := &Table{
		eh:    frames{Section: s.EhFrame, name: ".eh_frame", eh: true},
		debug: frames{Section: s.DebugFrame, name: ".debug_frame"},
	}
	for _, f := range []*frames{&t.eh, &t.debug} {
		f.text, f.data, f.ptrSize = s.Text, s.Data, uint8(s.PtrSize)
	}
	t.hdr = parseHdr(s.EhFrameHdr, uint8(s.PtrSize), s.Text)
	return t, nil
}

// IsEmpty reports whether the image has no CFI at all.
func (t *Table) IsEmpty() bool { return len(t.eh.Data) == 0 && len(t.debug.Data) == 0 }

// FDE finds the FDE that covers pc. The error is [ErrNoFDE] itself, or wraps [ErrBadCFI]
// with its place.
func (t *Table) FDE(pc uint64) (FDE, error) {
	d, err := t.ehFDE(pc)
	if err == nil || len(t.debug.Data) == 0 {
		return d, err
	}
	if d, debugErr := t.debug.find(pc); debugErr == nil {
		if before, behind, err := t.around(&t.eh, pc); err == nil {
			d.from, d.upTo = max(d.from, before.End), min(d.upTo, behind)
		}
		return d, nil
	} else if err == ErrNoFDE {
		err = debugErr
	}
	return FDE{}, err
}

func (t *Table) ehFDE(pc uint64) (FDE, error) {
	if t.hdr.count == 0 {
		return t.eh.find(pc)
	}
	i := t.hdr.search(pc)
	if i == 0 {
		return FDE{}, ErrNoFDE
	}
	start, addr := t.hdr.pair(i - 1)
	if offset := addr - t.eh.Addr; addr >= t.eh.Addr {
		d, err := t.eh.fde(offset)
		if err == nil && d.Start == start {
			switch {
			case d.Covers(pc):
				if d.upTo = math.MaxUint64; i < t.hdr.count {
					d.upTo = t.hdr.value(2 * i)
				}
				return d, nil
			case d.Start < d.End:
				return FDE{}, ErrNoFDE
			}
			// clang makes an empty FDE for a function without instructions, which starts where
			// the next function does. The search table may have the FDE of that function before
			// the empty one, or not at all: BOLT writes one pair for each start.
			return t.eh.find(pc)
		}
	}
	// The search table contradicts .eh_frame: it is not used any more.
	t.hdr.count = 0
	return t.eh.find(pc)
}

// Row fills row with the row of the unwind table that holds at pc, as far as look-ups find no other FDE.
// Errors are those of [Table.FDE]; row is undefined then.
func (t *Table) Row(pc uint64, row *Row) error {
	d, err := t.FDE(pc)
	if err != nil {
		return err
	}
	if err := d.Row(pc, row); err != nil {
		return err
	}
	row.Start, row.End = max(row.Start, d.from), min(row.End, d.upTo)
	return nil
}

// Row fills row with the FDE's row that holds at pc; [ErrNoFDE] when it does not cover pc.
func (d *FDE) Row(pc uint64, row *Row) error {
	if !d.Covers(pc) {
		return ErrNoFDE
	}
	var p program
	if err := p.start(d, row); err != nil {
		return err
	}
	p.until = pc
	next, more, err := p.run(&row.Rules)
	if err != nil {
		return err
	}
	row.Start, row.End = p.loc, d.End
	if more && next < d.End {
		row.End = next
	}
	return nil
}

// Rows yields the FDE's rows in the order of their addresses. The row is reused: copy it
// to keep it. An error ends the iteration.
func (d *FDE) Rows() iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		var (
			row        Row
			p          program
			remembered []Rules // not the table's: the loop's body may ask the table for other rows
		)
		err, more := p.start(d, &row), true
		p.remembered = &remembered
		for more && err == nil && p.loc < d.End {
			row.Start, row.End = p.loc, d.End
			var next uint64
			if next, more, err = p.run(&row.Rules); err != nil {
				break
			}
			if more {
				row.End, p.loc = min(next, d.End), next
			}
			shown := row // a copy, as the loop's body may change it
			if !yield(&shown, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// FDEs yields every FDE in the order in which .eh_frame and then .debug_frame hold them.
// For a bad entry it yields the error and goes on with the next entry, if that can be found.
func (t *Table) FDEs() iter.Seq2[FDE, error] {
	return func(yield func(FDE, error) bool) {
		for _, f := range []*frames{&t.eh, &t.debug} {
			for d, err := range f.all() {
				if !yield(d, err) {
					return
				}
			}
		}
	}
}

func (f *frames) all() iter.Seq2[FDE, error] {
	return func(yield func(FDE, error) bool) {
		if err := f.fetch(0, len(f.Data)); err != nil {
			yield(FDE{}, err)
			return
		}
		for offset := 0; offset < len(f.Data); {
			e, err := f.entry(uint64(offset))
			if e.zero && f.Open {
				return
			}
			if !e.zero && !e.isCIE {
				var d FDE
				if err == nil {
					d, err = f.parseFDE(&e)
				}
				if !yield(d, err) {
					return
				}
			}
			if e.end == 0 {
				return
			}
			offset = e.end
		}
	}
}
