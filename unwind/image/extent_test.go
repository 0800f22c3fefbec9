package image

import (
	"math/rand/v2"
	"slices"
	"testing"

	"unspool/dwarfcfi"
	"unspool/unwind/rule"
)

// TestRulesOfRanges: whatever is looked up before, the rule for a PC is the one that its row gives, at the
// first and the last bytes of rows and FDEs, too; and many rules of rows that are known are not looked for.
func TestRulesOfRanges(t *testing.T) {
	space, images := mappedAt(t, libc(t), 0x10000000)
	m := firstMapping(space)
	im := images.Lookup(1, m)
	if err := im.Parse(); err != nil {
		t.Fatal(err)
	}
	var functions [][]uint64 // offsets in each
	for d, err := range im.cfi.FDEs() {
		if err != nil {
			t.Fatal(err)
		}
		var offsets []uint64
		for row, err := range d.Rows() {
			if err != nil {
				t.Fatal(err)
			}
			if off, ok := im.offset(row.Start); ok {
				size := row.End - row.Start
				offsets = append(offsets, off, off+size/2, off+size-min(size, 2), off+size-1, off+size)
			}
		}
		rand.Shuffle(len(offsets), func(i, j int) { offsets[i], offsets[j] = offsets[j], offsets[i] })
		functions = append(functions, offsets)
	}
	rand.Shuffle(len(functions), func(i, j int) { functions[i], functions[j] = functions[j], functions[i] })
	known, all := 0, 0
	for _, off := range slices.Concat(functions...) {
		pc := m.Start + off
		if im.ranges.Get(uint32(off)) != rule.None {
			known++
		}
		want, _ := im.compile(m, pc)
		if got := im.Find(m, pc, off); got != want {
			t.Fatalf("%#x: %v, want %v", off, got, want)
		}
		all++
	}
	if t.Logf("%d of %d were in ranges", known, all); known < all/5 {
		t.Error("few")
	}
}

// TestExtents: a rule is not taken to hold elsewhere where an expression gives it, nor beyond a segment.
func TestExtents(t *testing.T) {
	space, images := mappedAt(t, libc(t), 0x10000000)
	im := images.Lookup(1, firstMapping(space))
	if err := im.Parse(); err != nil {
		t.Fatal(err)
	}
	end := uint64(0) // of the code
	for i := range im.loads {
		if l := &im.loads[i]; l.Flags&1 != 0 {
			end = l.Vaddr + l.Filesz
		}
	}
	row := func(start, stop uint64, kind dwarfcfi.CFAKind) *dwarfcfi.Row {
		r := &dwarfcfi.Row{Start: start, End: stop}
		r.CFA.Kind = kind
		return r
	}
	for _, c := range []struct {
		name string
		row  *dwarfcfi.Row
		addr uint64
		want uint64 // bytes
	}{
		{"a row", row(end-100, end-60, dwarfcfi.CFARegister), end - 70, 39},
		{"to its end", row(end-100, end+1, dwarfcfi.CFARegister), end - 70, 100},
		{"beyond it", row(end-100, end+60, dwarfcfi.CFARegister), end - 70, 0},
		{"last byte", row(end-100, end-60, dwarfcfi.CFARegister), end - 61, 0},
		{"of another place", row(end-100, end-60, dwarfcfi.CFARegister), end - 101, 0},
		{"expression", row(end-100, end-60, dwarfcfi.CFAExpression), end - 70, 0},
	} {
		off, ok := im.offset(c.addr)
		if !ok {
			t.Fatal("libc has no code there")
		}
		e := im.extentOf(c.row, c.addr, off)
		if e.to-e.from != c.want || c.want > 0 && off-e.from != c.addr-c.row.Start {
			t.Errorf("%s: %#x to %#x of the file, want %d bytes", c.name, e.from, e.to, c.want)
		}
	}
}
