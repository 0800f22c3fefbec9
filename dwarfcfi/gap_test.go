package dwarfcfi

import (
	"math"
	"slices"
	"testing"
)

// TestGap asks for gaps around the FDEs of libc, by .eh_frame_hdr and by an index built here.
func TestGap(t *testing.T) {
	readLibc(t)
	table, _, _ := openTable(t, libc)
	var starts, ends []uint64
	for d, err := range table.FDEs() {
		if err == nil && d.Start < d.End {
			starts, ends = append(starts, d.Start), append(ends, d.End)
		}
	}
	slices.Sort(starts)
	slices.Sort(ends)
	last := len(ends) - 1
	for _, hdr := range []bool{true, false} {
		if !hdr {
			table.hdr.count = 0
		}
		check := func(pc, wantStart, wantEnd uint64) {
			t.Helper()
			start, end, ok := table.Gap(pc)
			if want := wantStart < wantEnd; ok != want || ok && (start != wantStart || end != wantEnd) {
				t.Errorf("search table %v: at %#x %#x to %#x, %v, want %#x to %#x", hdr, pc, start, end, ok, wantStart,
					wantEnd)
			}
		}
		for i := range last {
			check(ends[i], ends[i], starts[i+1])
		}
		check(ends[last]+10, ends[last], math.MaxUint64)
		check(starts[0]-1, 0, starts[0])
		check(starts[0], starts[0], starts[0])
	}
}
