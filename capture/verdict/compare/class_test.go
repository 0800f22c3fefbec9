package compare

import (
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/unwind"
)

// TestClassify has each class and its limits. Frames are letters, the leaf first: r calls itself, x is code
// that is not on the stack, and - is memory that is not code.
func TestClassify(t *testing.T) {
	const complete = profile.Complete
	short, deep := profile.Ended(unwind.DumpTooShort), profile.Ended(unwind.DepthLimit)
	noCFI, noImage, badCFI, unmapped := profile.Ended(unwind.NoCFI), profile.Ended(unwind.NoImage),
		profile.Ended(unwind.BadCFI), profile.Ended(unwind.Unmapped)
	const none, limit, copied, off = unwind.NoFrame, unwind.KernelLimit, unwind.CopyEnds, unwind.OffStack
	for _, c := range []struct {
		name     string
		dwarf    string
		dwarfEnd profile.End
		fp       string
		fpEnd    unwind.FrameWalkEnd
		want     verdict
	}{
		{"equal", "abcd", complete, "abcd", none, verdict{Same, -1, 0}},
		{"equal, and full", "abcd", complete, "abcd", limit, verdict{Same, -1, 0}},
		{"equal, and then off the stack", "abcd", complete, "abcd", off, verdict{Same, -1, 0}},
		{"equal, and then beyond the copy", "abcd", complete, "abcd", copied, verdict{Same, -1, 0}},
		{"one frame", "a", complete, "a", none, verdict{Same, -1, 0}},
		{"recursion", "arrrd", complete, "arrrd", none, verdict{Same, -1, 0}},
		{"a function that returns to where it is", "rrrd", complete, "rrrd", none, verdict{Same, -1, 0}},

		{"the leaf's caller", "abcd", complete, "acd", none, verdict{LeafCaller, 1, 1}},
		{"the leaf's caller, and full", "abcd", complete, "acd", limit, verdict{LeafCaller, 1, 1}},
		{"the leaf's caller is the root's callee", "abd", complete, "ad", none, verdict{LeafCaller, 1, 1}},
		{"the leaf's caller is the root", "ad", complete, "a", none, verdict{LeafCaller, 1, 1}},
		{"the root, and full", "ad", complete, "a", limit, verdict{Cut, 1, 1}},
		{"the root, and beyond the copy", "ad", complete, "a", copied, verdict{Cut, 1, 1}},
		{"the root, and off the stack", "ad", complete, "a", off, verdict{Astray, 1, 1}},
		{"the leaf's caller in recursion", "arrrd", complete, "arrd", none, verdict{LeafCaller, 1, 1}},
		{"the leaf's caller under recursion", "abrrd", complete, "arrd", none, verdict{LeafCaller, 1, 1}},
		{"the leaf is a recursive call", "rrrd", complete, "rrd", none, verdict{LeafCaller, 1, 1}},

		{"another in the middle", "abcd", complete, "abd", none, verdict{Middle, 2, 1}},
		{"the leaf's caller and another", "abcde", complete, "ace", none, verdict{Middle, 1, 2}},
		{"the leaf's caller and its caller", "abcd", complete, "ad", none, verdict{Middle, 1, 2}},
		{"all but the root", "abrrrd", complete, "ad", none, verdict{Middle, 1, 4}},
		{"two of a recursion", "arrrrd", complete, "arrd", none, verdict{Middle, 3, 2}},
		{"what a signal has interrupted", "hskd", complete, "hsd", none, verdict{Middle, 2, 1}},

		{"nothing but the leaf", "abcd", complete, "a", none, verdict{Early, 1, 3}},
		{"all but the root ", "abcd", complete, "abc", none, verdict{Early, 3, 1}},
		{"a skip first", "abcde", complete, "acd", none, verdict{Early, 1, 2}},
		{"recursion without its end", "arrrd", complete, "arr", none, verdict{Early, 3, 2}},

		{"data after the leaf", "abcd", complete, "a-", none, verdict{Astray, 1, 3}},
		{"code that is not on the stack", "abcd", complete, "abx", none, verdict{Astray, 2, 2}},
		{"back where it was", "abcd", complete, "abab", none, verdict{Astray, 2, 2}},
		{"beyond the root", "abcd", complete, "abcd-", none, verdict{Astray, 4, 0}},
		{"beyond the root, by a skip", "abcd", complete, "abd-", none, verdict{Astray, 2, 1}},
		{"in a circle, and full", "ard", complete, "arrrr", limit, verdict{Astray, 2, 1}},
		{"off the stack", "abcd", complete, "ab", off, verdict{Astray, 2, 2}},
		{"0 before other words", "abcd", complete, "a0b", none, verdict{Astray, 1, 3}},
		{"another leaf", "abcd", complete, "-bcd", none, verdict{Astray, 0, 4}},

		{"full", "abcd", complete, "abc", limit, verdict{Cut, 3, 1}},
		{"full with a skip", "abcde", complete, "acd", limit, verdict{Cut, 1, 2}},
		{"beyond the copy", "abcd", complete, "abc", copied, verdict{Cut, 3, 1}},
		{"the copy too short", "abc", short, "abc", none, verdict{Cut, -1, 0}},
		{"the copy too short for CFI alone", "ab", short, "abcd", none, verdict{Cut, 2, 0}},
		{"the copy too short, and astray", "abc", short, "a-", none, verdict{Cut, 1, 2}},
		{"--max-stack", "abc", deep, "abcd", none, verdict{Cut, 3, 0}},

		{"no CFI", "a", noCFI, "abcd", none, verdict{DWARFStops, 1, 0}},
		{"no CFI after a skip", "abc", noCFI, "acd", none, verdict{DWARFStops, 1, 1}},
		{"no image", "ab", noImage, "abcd", none, verdict{DWARFStops, 2, 0}},
		{"bad CFI", "ab", badCFI, "abc", none, verdict{DWARFStops, 2, 0}},

		{"nothing on either side", "a", noCFI, "a", none, verdict{BothStop, -1, 0}},
		{"no CFI, and data in BP", "a", noCFI, "a-", none, verdict{BothStop, 1, 0}},
		{"no CFI, and 0", "a", noCFI, "a0b", none, verdict{BothStop, 1, 0}},
		{"frame pointers are lost first", "abc", badCFI, "ab", none, verdict{BothStop, 2, 1}},
		{"frame pointers skip the last", "abc", noCFI, "abx", none, verdict{BothStop, 2, 1}},
		{"a sampled PC in no mapping", "a", unmapped, "-", none, verdict{BothStop, 0, 1}},
		{"nothing told", "ab", profile.Unsaid, "ab", none, verdict{BothStop, -1, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fp := addresses(c.fp)
			got := classify(&stacks{
				dwarf: addresses(c.dwarf), dwarfEnd: c.dwarfEnd, fp: fp, fpEnd: c.fpEnd,
				code: func(i int) bool { return fp[i] != perfdata.NotCode && fp[i] != 0 },
			})
			if got != c.want {
				t.Errorf("%q, parted %d, %d lost, want %q, parted %d, %d lost",
					got.class, got.parted, got.lost, c.want.class, c.want.parted, c.want.lost)
			}
		})
	}
}

// addresses gives each letter an address.
func addresses(frames string) (ips []uint64) {
	for _, f := range frames {
		switch f {
		case '-':
			ips = append(ips, perfdata.NotCode)
		case '0':
			ips = append(ips, 0)
		default:
			ips = append(ips, 0x40_0000+uint64(f)<<4)
		}
	}
	return ips
}

// FuzzClassify checks what is true for any two stacks.
func FuzzClassify(f *testing.F) {
	f.Add("abcd", uint8(profile.Complete), "acd", uint8(unwind.NoFrame))
	f.Add("arrrd", uint8(profile.Complete), "arrd", uint8(unwind.KernelLimit))
	f.Add("a", uint8(profile.Unsaid), "a-", uint8(7))
	f.Fuzz(inputs.Many(f, func(t *testing.T, dwarf string, dwarfEnd uint8, fp string, fpEnd uint8) {
		defer costs.For(len(dwarf) + len(fp)).Check(t)()
		s := &stacks{
			dwarf: addresses("a" + dwarf), dwarfEnd: profile.End(dwarfEnd), fp: addresses("a" + fp),
			fpEnd: unwind.FrameWalkEnd(fpEnd),
		}
		s.code = func(i int) bool { return s.fp[i] != 0 && s.fp[i] != perfdata.NotCode }
		v := classify(s)
		switch {
		case v.class >= NumClasses, v.parted < -1, v.parted == 0, v.parted > len(s.dwarf), v.lost < 0,
			v.lost >= len(s.dwarf):
			t.Errorf("%+v of %d frames", v, len(s.dwarf))
		case v.class == Same && (v.parted >= 0 || v.lost > 0 || len(s.fp) != len(s.dwarf)):
			t.Errorf("same: %+v", v)
		case v.class == LeafCaller && (v.parted != 1 || len(s.fp) != len(s.dwarf)-1),
			v.class == Middle && v.lost == 0:
			t.Errorf("%+v of %d and %d frames", v, len(s.dwarf), len(s.fp))
		case (v.class == DWARFStops || v.class == BothStop) && s.dwarfEnd == profile.Complete:
			t.Errorf("%+v of a complete stack", v)
		}
	}))
}

// TestPairsAreCutAtZeros has zeros at the end of a pair, and zeros that other words follow: a walk may read
// above the outermost frame.
func TestPairsAreCutAtZeros(t *testing.T) {
	for _, c := range []struct {
		name string
		fp   string
		want Class
		most int // frames of the pair that are left
	}{
		{"one", "abc0", Same, 3},
		{"several", "abc000", Same, 3},
		{"in the middle", "a0c", Astray, 3},
		{"nothing but the leaf", "a00", Early, 1},
		{"behind a skip", "ac0", LeafCaller, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLoader(profile.MostNodes)
			frames := func(n int) []int32 { return make([]int32, n) }
			l.first = half{user: addresses("abc"), frames: frames(3), end: profile.Complete}
			l.second = half{user: append(addresses(c.fp), 1), frames: frames(len(c.fp) + 1)}
			l.pair()
			if len(l.groups) != 1 || l.unpaired != 0 {
				t.Fatalf("%d groups, %d samples without a pair", len(l.groups), l.unpaired)
			}
			for g := range l.groups {
				if g.Class != c.want || int(g.FP) != c.most {
					t.Errorf("%q with %d frames", g.Class, g.FP)
				}
			}
		})
	}
}

// TestTooManyStacks leaves out samples for whose stacks there is no room, and those of another process have some.
func TestTooManyStacks(t *testing.T) {
	l := newLoader(100)
	sample := func(pid uint32, frames ...int32) {
		l.first = half{pid: pid, user: addresses("abc"), frames: frames, end: profile.Complete}
		l.second = half{pid: pid, user: append(addresses("abc"), 1), frames: append(frames, 0)}
		l.pair()
	}
	for i := range int32(100) {
		sample(1, 3*i, 3*i+1, 3*i+2)
	}
	sample(2, 1, 2, 1)
	if n := len(l.groups); n != 26 || l.cut != 75 || l.unpaired != 0 || l.c.Samples != 26 {
		t.Errorf("%d groups, %d samples cut off, %d compared", n, l.cut, l.c.Samples)
	}
}

// TestClassKeys finds each class by its key.
func TestClassKeys(t *testing.T) {
	for c := range Class(NumClasses) {
		if got, ok := ClassByKey(c.Key()); !ok || got != c || c.String() == "" {
			t.Errorf("%q is class %d, %v", c.Key(), got, ok)
		}
	}
	if c, ok := ClassByKey("other"); ok {
		t.Errorf("other is %q", c)
	}
}
