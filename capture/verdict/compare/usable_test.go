package compare

import (
	"strings"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/unwind"
)

// TestJudge has pairs of stacks, and what they are good for. Frames are letters, the leaf first; a and A are two places
// of one function; - is memory that is not code. What is behind | is start code.
func TestJudge(t *testing.T) {
	const complete = profile.Complete
	short, noCFI := profile.Ended(unwind.DumpTooShort), profile.Ended(unwind.NoCFI)
	const none, limit, copied, off = unwind.NoFrame, unwind.KernelLimit, unwind.CopyEnds, unwind.OffStack
	yes, no, unknown := PairState{Usable: Yes, Reaches: true}, PairState{Reaches: true}, PairState{Usable: Unknown}
	lost := func(s PairState, frames int) PairState {
		s.Lost = frames
		return s
	}
	wrong := func(s PairState, frames int) PairState {
		s.False = true
		return lost(s, frames)
	}
	noCode := func(s PairState, frames int) PairState {
		s.NoCode = true
		return lost(s, frames)
	}
	for _, c := range []struct {
		name     string
		dwarf    string
		dwarfEnd profile.End
		fp       string
		fpEnd    unwind.FrameWalkEnd
		want     PairState
	}{
		{"equal", "abm|st", complete, "abmst", none, yes},
		{"start code is missing", "abm|st", complete, "abm", none, yes},
		{"some of it is", "abm|st", complete, "abms", none, yes},
		{"no code in the place of start code", "abm|st", complete, "abm-", none, yes},
		{"code that is not on the stack in its place", "abm|st", complete, "abmx", none, yes},
		{"code that is not on the stack behind it", "abm|st", complete, "abmsx", none, yes},
		{"the first frame of start code is skipped", "abm|st", complete, "abmt", none, yes},
		{"full behind main", "abm|st", complete, "abm", limit, yes},
		{"main is the leaf", "m|st", complete, "m", none, yes},
		{"main is the leaf and its caller is skipped", "m|st", complete, "mt", none, yes},
		{"the program's own entry", "abe", complete, "abe", none, yes},
		{"the program's own entry is the leaf", "e", complete, "e", none, yes},
		{"off the stack behind main", "abm|st", complete, "abm", off, yes},

		{"the leaf's caller", "abcm|s", complete, "acms", none, wrong(no, 1)},
		{"the leaf's caller, which is main", "am|st", complete, "ast", none, wrong(no, 1)},
		{"the leaf's caller, which is the entry", "ae", complete, "a", none, lost(no, 1)},
		{"frames in the middle", "abcdm|", complete, "abm", none, wrong(no, 2)},
		{"a leaf without a frame, and early", "abcm|s", complete, "ac", none, wrong(no, 2)},

		{"early", "abcm|st", complete, "ab", none, lost(no, 2)},
		{"nothing but the leaf", "abcm|st", complete, "a", none, lost(no, 3)},
		{"main alone is missing", "abm|", complete, "ab", none, lost(no, 1)},
		{"127 frames, and more", "abcm|s", complete, "ab", limit, lost(no, 2)},
		{"a skip, and 127 frames", "abcdm|s", complete, "acd", limit, wrong(no, 2)},

		{"astray to code", "abm|s", complete, "ax", none, wrong(no, 2)},
		{"astray to data", "abm|s", complete, "a-", none, noCode(no, 2)},
		{"astray to data and to code", "abm|s", complete, "a-x", none, noCode(no, 2)},
		{"astray to data and back", "abcm|s", complete, "a-cm", none, noCode(no, 3)},
		{"astray to a word that is 0", "abm|s", complete, "a0b", none, noCode(no, 2)},
		{"astray to code and data", "abm|s", complete, "ax-", none, noCode(wrong(no, 2), 2)},
		{"another leaf", "abm|s", complete, "xbm", none, wrong(no, 3)},

		{"the same pair many times", "arrrm|s", complete, "arrrm", none, yes},
		{"one of many is missing", "arrrm|s", complete, "arrm", none, lost(no, 1)},
		{"all of many are", "arrrm|s", complete, "am", none, wrong(no, 3)},
		{"all but one are", "arrrm|s", complete, "arm", none, lost(no, 2)},
		{"a leaf that recurses skips its caller", "rrrm|s", complete, "rrm", none, lost(no, 1)},
		{"two that call each other", "abABm|s", complete, "aBm", none, lost(no, 2)},
		{"two that call each other, one missing", "abABm|s", complete, "aABm", none, wrong(no, 1)},
		{"a thread begins with recursion", "lrrr|st", complete, "lrx", none, wrong(no, 2)},
		{"a thread begins with recursion, and its caller is wrong", "lrrr|st", complete, "lrrrx", none, yes},
		{"in a circle", "arm|s", complete, "arrrr", limit, wrong(no, 1)},

		{"a tail call, which no stack has", "acm|s", complete, "acm", none, yes},
		{"generated code with frame pointers", "jkm|s", complete, "jkm", none, yes},

		{"DWARF ends early, and both are equal", "ab", noCFI, "ab", none, unknown},
		{"DWARF ends early, and FP goes on", "ab", noCFI, "abcm", none, unknown},
		{"DWARF ends early, and FP goes on to data", "ab", noCFI, "ab-", none, noCode(PairState{}, 0)},
		{"DWARF ends early, and FP earlier", "abc", noCFI, "a", none, lost(PairState{}, 2)},
		{"DWARF ends early behind a skip", "abc", noCFI, "acd", none, wrong(PairState{}, 1)},
		{"DWARF ends early in a recursion", "aba", noCFI, "aax", none, wrong(PairState{}, 1)},
		{"DWARF ends early, and FP goes on in recursion", "abc", noCFI, "abcaz", none, unknown},
		{"DWARF ends early, and FP goes on behind a skip", "abc", noCFI, "acaz", none, wrong(PairState{}, 1)},
		{"DWARF ends early, and FP skips its end", "abc", noCFI, "abx", none, wrong(PairState{}, 1)},
		{"DWARF is cut in start code", "abm|s", short, "abms", none, yes},
		{"DWARF is cut in start code, and FP is lost", "abm|s", short, "am", none, wrong(no, 1)},

		{"off the stack, and the rest is not known", "abm|s", complete, "ab?", off,
			PairState{Usable: Unknown, Reaches: true}},
		{"beyond the copy, and the rest is not known", "abm|s", complete, "ab?", copied,
			PairState{Usable: Unknown, Reaches: true}},
		{"a skip, and off the stack", "abcm|s", complete, "ac?", off, wrong(no, 2)},
		{"off a stack that is known whole", "abm|s", complete, "ab", off, lost(no, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			dwarf, _, whole := strings.Cut(c.dwarf, "|")
			entry := len(dwarf) - 1
			if !whole && c.dwarfEnd != complete {
				entry = -1
			}
			open := strings.HasSuffix(c.fp, "?")
			got, _ := judgeLetters(strings.Replace(c.dwarf, "|", "", 1), c.dwarfEnd, strings.TrimSuffix(c.fp, "?"), c.fpEnd,
				entry, open)
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestClassWithoutStartCode has stacks that lose frames, and that differ in start code, too: it does not count.
func TestClassWithoutStartCode(t *testing.T) {
	for _, c := range []struct {
		name, dwarf, fp string
		fpEnd           unwind.FrameWalkEnd
		want            Class
	}{
		{"equal", "abm|st", "abmst", unwind.NoFrame, Same},
		{"start code is missing", "abm|st", "abm", unwind.NoFrame, StartCode},
		{"start code is missing, and full", "abm|st", "abm", unwind.KernelLimit, StartCode},
		{"start code is skipped", "abm|st", "abmt", unwind.NoFrame, StartCode},
		{"data in the place of start code", "abm|st", "abms-", unwind.NoFrame, StartCode},
		{"main alone", "m|st", "m", unwind.NoFrame, StartCode},
		{"the leaf's caller and start code", "abcm|st", "acm", unwind.NoFrame, LeafCaller},
		{"the leaf's caller and a part of it", "abcm|st", "acms", unwind.NoFrame, LeafCaller},
		{"the leaf's caller, and astray behind main", "abcm|st", "acm-", unwind.NoFrame, LeafCaller},
		{"the leaf's caller in recursion", "arrrm|st", "arrm", unwind.NoFrame, LeafCaller},
		{"the leaf's caller, which is main", "am|st", "ast", unwind.NoFrame, LeafCaller},
		{"frames in the middle and start code", "abcdm|st", "abm", unwind.NoFrame, Middle},
		{"all but main", "abcdm|st", "am", unwind.NoFrame, Middle},
		{"main is not reached", "abcm|st", "ab", unwind.NoFrame, Early},
		{"a skip, and main is not reached", "abcdm|st", "acd", unwind.NoFrame, Early},
		{"astray before main", "abcm|st", "ab-", unwind.NoFrame, Astray},
		{"full before main", "abcm|st", "ab", unwind.KernelLimit, Cut},
	} {
		dwarf, fp := strings.Replace(c.dwarf, "|", "", 1), c.fp
		s := stacks{dwarf: addresses(dwarf), dwarfEnd: profile.Complete, fp: addresses(fp), fpEnd: c.fpEnd,
			code: func(i int) bool { return fp[i] != '-' }}
		v := classify(&s)
		pair := chains{dwarf: []rune(dwarf), fp: []rune(fp), entry: strings.Index(c.dwarf, "|") - 1, complete: true,
			parted: v.parted}
		if got := pair.class(v.class); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// judgeLetters judges stacks that are written as letters.
func judgeLetters(dwarf string, dwarfEnd profile.End, fp string, fpEnd unwind.FrameWalkEnd, entry int,
	open bool) (PairState, Class) {
	s := stacks{dwarf: addresses(dwarf), dwarfEnd: dwarfEnd, fp: addresses(fp), fpEnd: fpEnd}
	s.code = func(i int) bool { return s.fp[i] != 0 && s.fp[i] != perfdata.NotCode }
	v := classify(&s)
	c := chains{
		dwarf: []rune(dwarf), fp: []rune(fp), entry: entry, complete: dwarfEnd == profile.Complete, open: open,
		parted: v.parted,
		function: func(frame int32) int32 {
			switch {
			case frame == '-' || frame == '0':
				return -1
			case frame >= 'A' && frame <= 'Z':
				return frame - 'A' + 'a'
			}
			return frame
		},
	}
	state, _ := c.judge()
	return state, c.class(v.class)
}

// FuzzJudge checks what is true of any two stacks.
func FuzzJudge(f *testing.F) {
	f.Add("bcd", uint8(profile.Complete), "cd", uint8(unwind.NoFrame), uint8(2), false)
	f.Add("rrr", uint8(profile.Unsaid), "r-", uint8(unwind.OffStack), uint8(9), true)
	f.Fuzz(inputs.Many(f, func(t *testing.T, dwarf string, dwarfEnd uint8, fp string, fpEnd, entry uint8, open bool) {
		defer costs.For(len(dwarf) + len(fp)).Check(t)()
		frames := len(addresses("a" + dwarf))
		end, at := profile.End(dwarfEnd), int(entry)%(frames+1)-1
		if end == profile.Complete {
			at = max(at, 0)
		}
		s, class := judgeLetters("a"+dwarf, end, "a"+fp, unwind.FrameWalkEnd(fpEnd), at, open)
		switch {
		case s.Usable == Yes && (s.False || s.NoCode || s.Lost > 0 || !s.Reaches):
			t.Errorf("usable, and %+v", s)
		case s.Usable == Unknown && s.False:
			t.Errorf("not known, and %+v", s)
		case s.Lost < 0 || s.Lost >= frames || s.Reaches != (at >= 0):
			t.Errorf("%+v of %d frames", s, frames)
		case end == profile.Complete && (s.Usable == Yes) != (class == Same || class == StartCode):
			t.Errorf("%q, and %+v", class, s)
		case dwarf == fp && s.Usable == No:
			t.Errorf("equal, and %+v", s)
		}
	}))
}

// TestEntry finds where the start code of stacks begins: by its names, and where these are not known by where it lies.
func TestEntry(t *testing.T) {
	type frame struct {
		image, name string // a name in brackets is not known
	}
	program := func(name string) frame { return frame{"program", name} }
	libc := func(name string) frame { return frame{"libc.so.6", name} }
	musl := func(name string) frame { return frame{"ld-musl-x86_64.so.1", name} }
	work, root := program("work"), program("main")
	for _, c := range []struct {
		name   string
		frames []frame
		end    profile.End
		want   int
	}{
		{"glibc", []frame{work, root, libc("__libc_start_call_main"), libc("__libc_start_main_impl"), program("_start")},
			profile.Complete, 1},
		{"glibc, with versions", []frame{work, root, libc("__libc_start_main@@GLIBC_2.34"), program("_start")},
			profile.Complete, 1},
		{"glibc without its names", []frame{work, root, libc("[libc.so.6+0x29d90]"), libc("__libc_start_main"),
			program("_start")}, profile.Complete, 1},
		{"no names at all", []frame{program("[program+0x10]"), program("[program+0x20]"), libc("[libc.so.6+0x1]"),
			libc("[libc.so.6+0x2]"), program("[program+0x30]")}, profile.Complete, 1},
		{"a static program", []frame{work, root, program("__libc_start_call_main"), program("__libc_start_main"),
			program("_start")}, profile.Complete, 1},
		{"a thread", []frame{work, program("worker"), libc("start_thread"), libc("clone3")}, profile.Complete, 1},
		{"a thread without names", []frame{work, program("worker"), libc("[libc.so.6+0x3]"), libc("[libc.so.6+0x4]")},
			profile.Complete, 1},
		{"a thread in libc alone", []frame{libc("[libc.so.6+0x5]"), libc("[libc.so.6+0x6]"), libc("[libc.so.6+0x7]"),
			libc("[libc.so.6+0x8]")}, profile.Complete, 1},
		{"musl", []frame{work, root, musl("libc_start_main_stage2"), musl("__libc_start_main"), program("_start_c"),
			program("_start")}, profile.Complete, 1},
		{"a thread of musl", []frame{work, program("worker"), musl("start"), musl("__clone")}, profile.Complete, 1},
		{"a function called start", []frame{work, program("start")}, profile.Complete, 1},
		{"Go", []frame{work, program("main.main"), program("runtime.main"), program("runtime.goexit.abi0")},
			profile.Complete, 1},
		{"the program's own entry", []frame{work, root}, profile.Complete, 1},
		{"_start that is a program", []frame{work, program("_start")}, profile.Complete, 0},
		{"nothing but start code", []frame{program("_start")}, profile.Complete, 0},
		{"nothing but start code of libc", []frame{libc("start_thread"), libc("clone3")}, profile.Complete, 0},

		{"cut in start code", []frame{work, root, libc("__libc_start_call_main")}, profile.Ended(unwind.DumpTooShort), 1},
		{"cut at main", []frame{work, root}, profile.Ended(unwind.DumpTooShort), 1},
		{"cut before main", []frame{work, program("run")}, profile.Ended(unwind.DumpTooShort), -1},
		{"cut in code without names", []frame{work, libc("[libc.so.6+0x9]")}, profile.Ended(unwind.NoCFI), -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &profile.Profile{}
			var stack []int32
			for i, f := range c.frames {
				p.Images = append(p.Images, profile.Image{Name: f.image})
				p.Frames = append(p.Frames, profile.Frame{Name: f.name, Image: int32(i), Known: f.name[0] != '['})
				stack = append(stack, int32(i))
			}
			if got := newStarts(p).entry(stack, c.end == profile.Complete); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
