package unwind

import (
	"slices"
	"testing"

	"unspool/unwind/link"
)

// A frame of a result that links are made of, and how it was found.
type linked struct {
	sp, pc uint64
	by     Source
	exact  bool
}

func resultOf(end Reason, frames ...linked) *Result {
	r := &Result{End: end}
	for _, f := range frames {
		r.IPs = append(r.IPs, f.pc)
		r.Frames = append(r.Frames, Frame{SP: f.sp, pc: f.pc, Source: f.by, exact: f.exact})
	}
	if end == DumpTooShort {
		r.Open = len(frames)
	}
	return r
}

// Callers are joined along calls only, and as the kernel found them where it has.
func TestJoin(t *testing.T) {
	t.Parallel()
	leaf, last := linked{sp: 0x1000, pc: 1, by: BySample, exact: true}, linked{sp: 0x1100, pc: 2, by: ByCFI}
	caller, root := linked{sp: 0x1200, pc: 3, by: ByCFI}, linked{sp: 0x1300, pc: 4, by: ByCFI}
	with := func(f linked, change func(*linked)) linked {
		change(&f)
		return f
	}
	whole := resultOf(Root, leaf, last, caller, root)
	known := resultOf(DumpTooShort, leaf, last, with(caller, func(f *linked) { f.sp, f.by = 0, ByKernel }))
	known.Open = 2
	other := resultOf(DumpTooShort, leaf, last, with(root, func(f *linked) { f.sp, f.by = 0, ByKernel }))
	other.Open = 2
	for _, c := range []struct {
		name string
		seen *Result
		cut  *Result
		want link.LookupOutcome
	}{
		{"by calls", whole, resultOf(DumpTooShort, leaf, last), link.Joined},
		{"by frame pointers and guesses", resultOf(Root, leaf, last,
			with(caller, func(f *linked) { f.by = ByFramePointer }),
			with(root, func(f *linked) { f.by = ByHeuristic })),
			resultOf(DumpTooShort, leaf, last), link.Joined},
		{"of the sampled frame", whole, resultOf(DumpTooShort, leaf), link.Joined},
		{"over a signal frame", resultOf(Root, leaf, last, with(caller, func(f *linked) { f.exact = true }), root),
			resultOf(DumpTooShort, leaf, last), link.Unseen},
		{"to another stack", resultOf(Root, leaf, last, with(caller, func(f *linked) { f.sp = 0x900 }), root),
			resultOf(DumpTooShort, leaf, last), link.Unseen},
		{"by a stack that was read later", resultOf(Root, leaf, last,
			with(caller, func(f *linked) { f.by = ByLive }), root), resultOf(DumpTooShort, leaf, last), link.Unseen},
		{"by a walk that did not come to the root", resultOf(NoCFI, leaf, last, caller, root),
			resultOf(DumpTooShort, leaf, last), link.Unseen},
		{"as the kernel has it, too", whole, known, link.Joined},
		{"as the kernel does not have it", whole, other, link.Disagree},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := link.Log{Before: 1000, After: 1000}
			for time := uint64(1000); time < 1200; time += 10 {
				c.seen.Links(&l, 7, time, nil)
			}
			before := slices.Clone(c.cut.IPs)
			_, outcome := c.cut.Join(&l, 7, 1100, 100, nil)
			if outcome != c.want {
				t.Fatalf("outcome %d, want %d", outcome, c.want)
			}
			if outcome != link.Joined {
				if !slices.Equal(c.cut.IPs, before) || c.cut.End != DumpTooShort {
					t.Errorf("changed to %v, %s", c.cut.IPs, c.cut.End)
				}
				return
			}
			if !slices.Equal(c.cut.IPs, []uint64{1, 2, 3, 4}) || c.cut.End != Root ||
				len(c.cut.Frames) != 4 || c.cut.Frames[3].Source != ByLinks || c.cut.Frames[0].Source != BySample {
				t.Errorf("%v, %s, %v", c.cut.IPs, c.cut.End, c.cut.Frames)
			}
		})
	}
}
