package dwarfcfi

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// hundred returns a section with a hundred FDEs that each cover 16 bytes of code and start 32 bytes
// apart, from 0x1000 on, in an order other than that of their addresses; and the pairs of a search
// table for it.
func hundred(eh bool) (*builder, [][2]uint64) {
	b := &builder{eh: eh}
	if eh {
		b.Addr = 0x8000
	}
	cie := b.cie(cieSpec{program: callSite})
	pairs := make([][2]uint64, 100)
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(100) {
		start := uint64(0x1000 + 32*i)
		pairs[i] = [2]uint64{start, b.Addr + b.fde(cie, b.abs(start, 16), cfaDefCFAOffset, byte(i))}
	}
	return b, pairs
}

// searchHdr writes a .eh_frame_hdr at addr.
func searchHdr(addr uint64, enc byte, pairs [][2]uint64) Section {
	s := Section{Addr: addr}
	s.Data = join(1, peAbsptr, peUdata4, enc)
	s.Data = le.AppendUint64(s.Data, 0x8000)
	s.Data = le.AppendUint32(s.Data, uint32(len(pairs)))
	for _, pair := range pairs {
		for _, v := range pair {
			switch enc & peBase {
			case pePCRel:
				v -= addr + uint64(len(s.Data))
			case peDataRel:
				v -= addr
			}
			s.Data = append(s.Data, le.AppendUint64(nil, v)[:fixedSize(enc, 8)]...)
		}
	}
	return s
}

// checkHundred asks for addresses before, in, between and behind the hundred functions.
func checkHundred(t *testing.T, table *Table) {
	t.Helper()
	for pc := uint64(0xff0); pc < 0x1000+32*100+8; pc++ {
		var row Row
		err := table.Row(pc, &row)
		i, in := (pc-0x1000)/32, pc >= 0x1000 && (pc-0x1000)%32 < 16 && pc < 0x1000+32*100
		switch {
		case in && (err != nil || row.CFA.Offset != int64(i) || row.Start != 0x1000+32*i):
			t.Fatalf("at %#x: %s, %v", pc, show(&row), err)
		case !in && err != ErrNoFDE:
			t.Fatalf("at %#x, where no function is: %v", pc, err)
		}
	}
}

func TestLookupThroughSearchTable(t *testing.T) {
	for _, enc := range []byte{
		peDataRel | peSdata4, peDataRel | peSdata8, peDataRel | peSdata2, peDataRel | peAbsptr,
		peAbsptr, peUdata2, peUdata4, peUdata8, pePCRel | peSdata4,
	} {
		t.Run(fmt.Sprintf("encoding %#x", enc), func(t *testing.T) {
			b, pairs := hundred(true)
			s := b.sections()
			s.EhFrameHdr = searchHdr(0x7000, enc, pairs)
			table, err := New(s)
			if err != nil {
				t.Fatal(err)
			}
			checkHundred(t, table)
			if table.eh.index != nil {
				t.Error("an index was built beside the search table")
			}
		})
	}
}

func TestLookupWithoutSearchTable(t *testing.T) {
	for _, eh := range []bool{true, false} {
		b, _ := hundred(eh)
		checkHundred(t, b.table(t))
	}
}

func TestUselessSearchTableIsReplaced(t *testing.T) {
	_, pairs := hundred(true)
	good := searchHdr(0x7000, peDataRel|peSdata4, pairs)
	change := func(at int, b byte) Section {
		s := Section{Addr: good.Addr, Data: append([]byte(nil), good.Data...)}
		s.Data[at] = b
		return s
	}
	shifted := make([][2]uint64, len(pairs))
	outside := make([][2]uint64, len(pairs))
	reversed, exchanged := slices.Clone(pairs), slices.Clone(pairs)
	slices.Reverse(reversed)
	exchanged[20], exchanged[70] = exchanged[70], exchanged[20]
	for i, pair := range pairs {
		shifted[i] = [2]uint64{pair[0], pairs[(i+1)%len(pairs)][1]}
		outside[i] = [2]uint64{pair[0], 0x10}
	}
	for _, c := range []struct {
		name string
		hdr  Section
	}{
		{"none", Section{}},
		{"short", Section{Data: []byte{1, 2}}},
		{"version 2", change(0, 2)},
		{"no table", change(3, peOmit)},
		{"table of LEB128", change(3, peDataRel|peSLEB128)},
		{"table of function-relative pointers", change(3, peFuncRel|peSdata4)},
		{"no entries", searchHdr(0x7000, peDataRel|peSdata4, nil)},
		{"in the opposite order", searchHdr(0x7000, peDataRel|peSdata4, reversed)},
		{"in the opposite order, absolute", searchHdr(0x7000, peAbsptr, reversed)},
		{"two entries exchanged", searchHdr(0x7000, peDataRel|peSdata4, exchanged)},
		{"cut short", Section{Addr: good.Addr, Data: good.Data[:len(good.Data)-8*40]}},
		{"FDEs of other functions", searchHdr(0x7000, peDataRel|peSdata4, shifted)},
		{"FDEs outside .eh_frame", searchHdr(0x7000, peDataRel|peSdata4, outside)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _ := hundred(true)
			s := b.sections()
			s.EhFrameHdr = c.hdr
			table, err := New(s)
			if err != nil {
				t.Fatal(err)
			}
			var row Row
			table.Row(0x1000+32*50, &row) // finds out that the search table is wrong
			checkHundred(t, table)
		})
	}
}

// TestEmptyFDEHidesNoOther has functions without instructions at the starts of other functions.
func TestEmptyFDEHidesNoOther(t *testing.T) {
	type function struct {
		start, size uint64
		absent      bool // from the search table
	}
	for name, functions := range map[string][]function{
		"behind":             {{0x1000, 16, false}, {0x1000, 0, false}},
		"before":             {{0x1000, 0, false}, {0x1000, 16, false}},
		"inside":             {{0x1000, 16, false}, {0x1008, 0, false}},
		"several":            {{0x1000, 16, false}, {0x1000, 0, false}, {0x1000, 0, false}, {0x1004, 0, false}},
		"one for each start": {{0x1000, 0, false}, {0x1000, 16, true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &builder{eh: true}
			b.Addr = 0x8000
			cie := b.cie(cieSpec{program: callSite})
			var pairs [][2]uint64
			for _, f := range functions {
				if at := b.Addr + b.fde(cie, b.abs(f.start, f.size)); !f.absent {
					pairs = append(pairs, [2]uint64{f.start, at})
				}
			}
			s := b.sections()
			s.EhFrameHdr = searchHdr(0x7000, peDataRel|peSdata4, pairs)
			table, err := New(s)
			if err != nil {
				t.Fatal(err)
			}
			for pc := uint64(0xff8); pc < 0x1018; pc++ {
				d, err := table.FDE(pc)
				if in := pc >= 0x1000 && pc < 0x1010; in && (err != nil || !d.Covers(pc)) || !in && err != ErrNoFDE {
					t.Errorf("%#x: %#x to %#x, %v", pc, d.Start, d.End, err)
				}
			}
		})
	}
}

func TestSearchTableThatClaimsTooManyEntries(t *testing.T) {
	b, pairs := hundred(true)
	s := b.sections()
	s.EhFrameHdr = searchHdr(0x7000, peDataRel|peSdata4, pairs)
	le.PutUint32(s.EhFrameHdr.Data[12:], 0xffffffff)
	table, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	checkHundred(t, table)
}

func TestDebugFrameAnswersWhereEhFrameDoesNot(t *testing.T) {
	eh, debug := &builder{eh: true}, &builder{}
	eh.fde(eh.cie(cieSpec{program: callSite}), eh.abs(0x1000, 16))
	debug.fde(debug.cie(cieSpec{program: callSite}), debug.abs(0x1000, 32), cfaDefCFAOffset, 99)
	s := eh.sections()
	s.DebugFrame = debug.Section
	table, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	for pc, want := range map[uint64]string{0x1008: ".eh_frame", 0x1018: ".debug_frame"} {
		if d, err := table.FDE(pc); err != nil || d.Section() != want {
			t.Errorf("%#x: from %v, %v; want %s", pc, d, err, want)
		}
	}
	if _, err := table.FDE(0x1020); err != ErrNoFDE {
		t.Errorf("outside both: %v", err)
	}
}

func TestImageThatSpansMoreThan4GiB(t *testing.T) {
	b := builder{eh: true}
	cie := b.cie(cieSpec{program: callSite})
	for _, start := range []uint64{1 << 40, 0x1000, 1 << 20} {
		b.fde(cie, b.abs(start, 16))
	}
	table := b.table(t)
	for _, start := range []uint64{0x1000, 1 << 20, 1 << 40} {
		if d, err := table.FDE(start + 15); err != nil || d.Start != start {
			t.Errorf("%#x: %#x, %v", start, d.Start, err)
		}
		if _, err := table.FDE(start + 16); err != ErrNoFDE {
			t.Errorf("behind %#x: %v", start, err)
		}
	}
}

func TestZeroTerminatorEndsOnlyAnOpenSection(t *testing.T) {
	b := builder{eh: true}
	cie := b.cie(cieSpec{program: callSite})
	b.fde(cie, b.abs(0x1000, 16))
	b.Data = append(b.Data, 0, 0, 0, 0)
	b.fde(cie, b.abs(0x2000, 16))
	if _, err := b.table(t).FDE(0x2000); err != nil {
		t.Errorf("behind the terminator of a section whose end is known: %v", err)
	}
	b.Open = true
	table := b.table(t)
	if _, err := table.FDE(0x2000); err != ErrNoFDE {
		t.Errorf("behind the terminator of an open section: %v", err)
	}
	if _, err := table.FDE(0x1000); err != nil {
		t.Error(err)
	}
}

func TestBadEntryCostsOnlyItself(t *testing.T) {
	b := builder{eh: true}
	cie := b.cie(cieSpec{program: callSite})
	b.fde(cie, []byte{1, 2, 3})
	b.fde(cie, b.abs(0x1000, 16))
	b.fde(cie, b.abs(^uint64(7), 16)) // wraps around
	b.fde(cie, b.abs(0x3000, 0))      // empty
	b.fde(cie, b.abs(0x2000, 16))
	b.Data = append(b.Data, 0xff, 0xff, 0xff, 0x7f) // runs past the end
	table := b.table(t)
	for _, pc := range []uint64{0x1000, 0x200f} {
		if _, err := table.FDE(pc); err != nil {
			t.Errorf("%#x: %v", pc, err)
		}
	}
	if _, err := table.FDE(0x3000); !errors.Is(err, ErrBadCFI) {
		t.Errorf("an address that a bad entry may have covered: %v", err)
	}
	good, bad := 0, 0
	for _, err := range table.FDEs() {
		if err != nil {
			bad++
		} else {
			good++
		}
	}
	if good != 3 || bad != 3 {
		t.Errorf("%d good and %d bad FDEs", good, bad)
	}
}

func TestThirtyTwoBitImage(t *testing.T) {
	b := builder{eh: true, ptrSize: 4}
	b.Addr = 0xfffff000
	cie := b.cie(cieSpec{augmentation: "zR", data: []byte{pePCRel | peSdata4}, ra: 8, dataAlign: -4,
		program: []byte{cfaDefCFA, 4, 4, cfaOffset | 8, 1}})
	at := uint32(b.Addr) + uint32(len(b.Data)) + 8
	b.fde(cie, le.AppendUint32(le.AppendUint32(nil, 0x1000-at), 0x100), cfaDefCFAOffset, 8, cfaOffset|5, 2)
	var row Row
	if err := b.table(t).Row(0x1000, &row); err != nil {
		t.Fatal(err)
	}
	if got, want := show(&row), "1000-1100 r4+8 r5=c-8 r8=c-4"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPointerSizeIsChecked(t *testing.T) {
	if _, err := New(Sections{}); !errors.Is(err, ErrBadCFI) {
		t.Errorf("got %v", err)
	}
	table, err := New(Sections{PtrSize: 8})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.FDE(1); err != ErrNoFDE {
		t.Errorf("image without CFI: %v", err)
	}
}
