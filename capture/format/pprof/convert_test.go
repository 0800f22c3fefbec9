package pprof

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	proto "github.com/google/pprof/profile"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/capture/symbols"
	"unspool/unwind"
)

// small is a profile of two images at the same addresses, with functions inlined in one, and code without an
// address.
func small() *profile.Profile {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{
			{Name: "libm.so.6", Path: "/lib/libm.so.6",
				Code: []symbols.CodeSegment{{Addr: 0x1000, Offset: 0x1000, Size: 0x800}}},
			{Name: "tool", Path: "/bin/tool", BuildID: []byte{0xab, 0x01},
				Code: []symbols.CodeSegment{{Addr: 0x2040, Offset: 0x1040, Size: 0x1000}}},
			{Name: symbols.KernelImage, Path: symbols.KernelImage},
			{Name: "[anon]", Path: "//anon"},
		},
		Frames: []profile.Frame{
			{Name: "main", Symbol: "main", Image: 1, Known: true, Addr: 0x2040, PC: 0x2050, File: "main.c", Line: 7,
				Column: 3},
			{Name: "middle", Symbol: "middle", Image: 1, Known: true, Inlined: true, PC: 0x2050, File: "main.c",
				Line: 3},
			{Name: "leaf<int>(int)", Symbol: "_Z4leafIiEvi", Image: 1, Known: true, Inlined: true, PC: 0x2050,
				File: "leaf.h", Line: 1},
			{Name: "sin", Symbol: "sin", Image: 0, Known: true, Addr: 0x1100, PC: 0x1104},
			{Name: "ksys_read", Symbol: "ksys_read", Image: 2, Kind: profile.Kernel, Known: true,
				PC: 0xffffffff81000123},
			{Name: "compiled", Symbol: "compiled", Image: 3, Kind: profile.JIT, Known: true},
			{Name: "[libm.so.6]", Image: 0, PC: 0x9000}, // in no segment
		},
		Events: []profile.Event{{Name: "cpu-clock:u", Clock: true}, {Name: "page-faults"}, {Name: "cycles"}},
		Began:  time.Unix(1700000000, 5), Duration: 3 * time.Second,
		Hostname: "box", OSRelease: "6.1", Arch: "x86_64", Command: []string{"unspool", "record"}, LostSamples: 4,
		Throttled: 1,
		Problems:  []string{"libm.so.6: stripped"},
	})
	tool := p.Thread(profile.Thread{PID: 7, TID: 8, Comm: "tool"})
	swapper := p.Thread(profile.Thread{Comm: "swapper"})
	main := []int32{0, 1, 2} // with the functions inlined there
	for _, s := range []struct {
		thread, cpu int32
		count       uint64
		end         profile.End
		stack       []int32
	}{
		{tool, 0, 3, profile.Complete, append(main, 3)},
		{tool, 1, 2, profile.Ended(unwind.DumpTooShort), append(main, 4)},
		{tool, -1, 1, profile.Unsaid, main},
		{swapper, 0, 1, profile.Unsaid, append(main, 5)},
		{swapper, 0, 1, profile.Unsaid, []int32{6}},
	} {
		p.Sample(profile.Sample{Thread: s.thread, Node: p.Stack(s.stack...), CPU: s.cpu, End: s.end,
			Count: s.count, Period: 1_000_000 * s.count})
	}
	return p.Profile
}

func TestConverted(t *testing.T) {
	_, p := write(t, small())
	first := p.Sample[0]
	if len(first.Location) != 2 {
		t.Fatalf("%d locations of sin and main with what is inlined there", len(first.Location))
	}
	sin, main := first.Location[0], first.Location[1]
	if main.Address != 0x2050 || main.Mapping.ID != 1 || sin.Address != stride+0x1104 {
		t.Errorf("main at %#x in mapping %d, sin at %#x", main.Address, main.Mapping.ID, sin.Address)
	}
	var lines []string
	for _, l := range main.Line {
		lines = append(lines, l.Function.Name+" "+l.Function.SystemName+" "+l.Function.Filename)
	}
	wantLines := []string{"leaf<int>(int) _Z4leafIiEvi leaf.h", "middle middle main.c", "main main main.c"}
	if !slices.Equal(lines, wantLines) || main.Line[2].Line != 7 || main.Line[2].Column != 3 {
		t.Errorf("lines %q, %+v", lines, main.Line)
	}
	if p.Sample[1].Location[1] != main || p.Sample[2].Location[0] != main {
		t.Error("one address is several locations")
	}
	type mapped struct {
		start, limit, offset   uint64
		file, id               string
		functions, names, line bool
	}
	var have []mapped
	for _, m := range p.Mapping {
		have = append(have, mapped{m.Start, m.Limit, m.Offset, m.File, m.BuildID, m.HasFunctions, m.HasFilenames,
			m.HasLineNumbers && m.HasInlineFrames})
	}
	want := []mapped{
		{0x2000, 0x4000, 0x1000, "/bin/tool", "ab01", true, true, true},
		{stride + 0x1000, stride + 0x2000, 0x1000, "/lib/libm.so.6", "", true, false, false},
		{0, 0, 0, "[libm.so.6]", "", false, false, false},
		{0xffffffff81000000, 0xffffffff81001000, 0xffffffff81000000, "[kernel.kallsyms]", "", true, false, false},
		{0, 0, 0, "[anon]", "", true, false, false},
	}
	if !slices.Equal(have, want) {
		t.Errorf("mappings\n%v, not\n%v", have, want)
	}
	if got := p.Sample[1].Location[0]; got.Address != 0xffffffff81000123 ||
		got.Mapping.File != "[kernel.kallsyms]" {
		t.Errorf("ksys_read at %#x", got.Address)
	}
	if p.TimeNanos != 1700000000_000000005 || p.DurationNanos != 3e9 || p.Period != 1e6 ||
		p.PeriodType.Unit != "nanoseconds" {
		t.Errorf("time %d, %d ns, period %d %v", p.TimeNanos, p.DurationNanos, p.Period, p.PeriodType)
	}
	if c := strings.Join(p.Comments, "\n"); c != "host: box 6.1 x86_64\ncommand: unspool record\n"+
		"lost samples: 4\nthrottled by the kernel: 1 times\nlibm.so.6: stripped" {
		t.Errorf("comments %q", c)
	}
	if c := comments(new(profile.Profile)); len(c) != 0 {
		t.Errorf("comments on a profile that lacks nothing: %q", c)
	}
	number := func(s *proto.Sample, name string) int64 {
		if len(s.NumLabel[name]) != 1 {
			return -1
		}
		return s.NumLabel[name][0]
	}
	if s := first; number(s, "pid") != 7 || number(s, "tid") != 8 || number(s, "cpu") != 0 ||
		s.Label["comm"][0] != "tool" || s.Label["unwind"][0] != "complete" {
		t.Errorf("labels %v %v", s.Label, s.NumLabel)
	}
	if s := p.Sample[1]; s.Label["unwind"][0] != "dump_too_short" {
		t.Errorf("labels %v", s.Label)
	}
	if s := p.Sample[2]; number(s, "cpu") != -1 || s.Label["unwind"] != nil {
		t.Errorf("labels %v %v", s.Label, s.NumLabel)
	}
	if s := p.Sample[3]; number(s, "pid") != 0 || s.Location[0].Address != 0 {
		t.Errorf("labels %v, compiled code at %#x", s.NumLabel, s.Location[0].Address)
	}
}

// -tagroot process puts the programs above the stacks; of one program, every sample would say the same.
func TestProgramsAreLabels(t *testing.T) {
	for want, programs := range map[string][]string{
		"server\ufffd": {"server\x1b"}, // the other thread is of its own program, swapper
		"":             {"swapper", "swapper"},
	} {
		p := small()
		for i, program := range programs {
			p.Threads[i].Program = program
		}
		out, err := Convert(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(out.Sample[0].Label["process"], ""); got != want {
			t.Errorf("%q: %q", programs, got)
		}
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct {
		name    string
		events  []int32 // of the samples, which count 2 and stand for 10 each
		types   string
		shown   string
		values  [][]int64
		renamed string // of event 1
	}{
		{"nothing", nil, "samples/count", "", nil, ""},
		{"a clock", []int32{0}, "samples/count cpu/nanoseconds", "cpu", [][]int64{{2, 20}}, ""},
		{"no clock", []int32{1}, "samples/count", "samples", [][]int64{{2}}, ""},
		{"several", []int32{0, 1, 2}, "samples/count cpu-clock:u/count cpu-clock:u-time/nanoseconds " +
			"page-faults/count cycles/count", "cpu-clock:u-time",
			[][]int64{{2, 2, 20, 0, 0}, {2, 0, 0, 2, 0}, {2, 0, 0, 0, 2}}, ""},
		{"no clock first", []int32{1, 2}, "samples/count page-faults/count cycles/count", "page-faults",
			[][]int64{{2, 2, 0}, {2, 0, 2}}, ""},
		{"names that meet", []int32{1, 2}, "samples/count samples'/count cycles/count", "samples'",
			[][]int64{{2, 2, 0}, {2, 0, 2}}, "samples"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := small()
			in.Samples = nil
			if c.renamed != "" {
				in.Events[1].Name = c.renamed
			}
			for _, e := range c.events {
				in.Samples = append(in.Samples, profile.Sample{Node: 4, Event: e, CPU: -1, Count: 2, Period: 20})
			}
			_, p := write(t, in)
			var types []string
			for _, v := range p.SampleType {
				types = append(types, v.Type+"/"+v.Unit)
			}
			var values [][]int64
			for _, s := range p.Sample {
				values = append(values, s.Value)
			}
			if have := strings.Join(types, " "); have != c.types || p.DefaultSampleType != c.shown ||
				!slices.EqualFunc(values, c.values, slices.Equal) {
				t.Errorf("%s, %s shown, %v", have, p.DefaultSampleType, values)
			}
		})
	}
}

// TestHostile has names, addresses and segments that no real system has.
func TestHostile(t *testing.T) {
	in := small()
	in.Frames[0].Name, in.Frames[0].Symbol = "ma\x1b[2Jin\n\xff\x00<(", "ma\x1b[2Jin\n\xff\x00<("
	in.Frames[1].Name = strings.Repeat("huge", 1<<20)
	in.Frames[2].File = "\xc3\x28/\n.c"
	in.Frames[3].Name, in.Frames[3].Symbol = "", ""
	in.Frames[6].PC = math.MaxUint64
	in.Images[0].Path, in.Images[0].Name = "\xff\n", ""
	in.Images[0].Code = []symbols.CodeSegment{{Addr: math.MaxUint64 - 10, Size: 100},
		{Addr: 0x1000, Offset: 0x1000, Size: 1 << 62}, {Addr: 0x1800, Offset: 0x1800, Size: 1 << 62},
		{Addr: 0x7, Offset: 0x9, Size: 1 << 20}}
	in.Images[1].Code = []symbols.CodeSegment{{Addr: 0x2000, Offset: 0x2000, Size: 1<<63 - 0x3000}}
	in.Threads[0].Comm = "to\ro\xe2\x82l\x7f\u009b1m\u202e\u200b"
	in.Events[0].Name = "\xffcpu\n"
	in.Samples[0].Count, in.Samples[0].Period = math.MaxUint64, math.MaxUint64
	in.Command = []string{"a\nb", "\xff"}
	in.Problems = []string{"\x1b]0;title\a"}
	file, p := write(t, in)
	p.Mapping[0].File = "" // not looked at below
	for _, s := range texts(p) {
		if human.Printable(s) != s {
			t.Errorf("%.100q", s)
		}
	}
	if !strings.Contains(tool(t, file, "-top", "-symbolize=none"), "hugehuge") {
		t.Error("the huge name is missing")
	}
	in.Images[0].Code = nil // and what lies in it does not fit
	write(t, in)
}

// texts returns all that a reader of p may show.
func texts(p *proto.Profile) []string {
	all := slices.Clone(p.Comments)
	for _, f := range p.Function {
		all = append(all, f.Name, f.SystemName, f.Filename)
	}
	for _, m := range p.Mapping {
		all = append(all, m.File)
	}
	for _, v := range p.SampleType {
		all = append(all, v.Type)
	}
	for _, s := range p.Sample {
		for _, l := range s.Label {
			all = append(all, l...)
		}
	}
	return all
}

// TestImagesDoNotMeet puts many images of all sorts side by side.
func TestImagesDoNotMeet(t *testing.T) {
	in := profiletest.New(&profile.Profile{}).Profile
	for i := range 300 {
		im := profile.Image{Name: "lib", Path: "/lib"}
		addr := uint64(i%7) << (12 + 5*(i%9))
		if i%3 > 0 {
			im.Code = []symbols.CodeSegment{{Addr: addr, Offset: uint64(i) << 12, Size: 0x1001},
				{Addr: addr + 1<<30, Offset: 1 << 30, Size: 5}}
		}
		in.Images = append(in.Images, im)
		for _, pc := range []uint64{addr + 0x10, addr + 1<<30 + 4} {
			in.Frames = append(in.Frames, profile.Frame{Name: "f", Image: int32(i), PC: pc})
		}
	}
	out := &proto.Profile{}
	places := newPlaces(in, out)
	for i, m := range out.Mapping {
		if i > 0 && m.Start < out.Mapping[i-1].Limit || m.Start >= m.Limit || m.Start%page != 0 ||
			m.Limit%page != 0 || m.Limit > userLimit {
			t.Errorf("mapping %d: %#x to %#x, after %#x", i, m.Start, m.Limit, out.Mapping[max(i-1, 0)].Limit)
		}
	}
	for _, f := range in.Frames {
		if m, addr := places[f.Image].at(f.PC); addr < m.Start || addr >= m.Limit || (addr-f.PC)%stride != 0 {
			t.Errorf("%#x of image %d is at %#x", f.PC, f.Image, addr)
		}
	}
}

// TestTitle looks at the first mapping, after which pprof names its page.
func TestTitle(t *testing.T) {
	for _, c := range []struct {
		name   string
		counts [3]uint64 // of samples of three programs, the last not of its first thread
		want   string
	}{
		{"one program", [3]uint64{9, 0, 0}, "/bin/first"},
		{"mostly one program", [3]uint64{5, 3, 2}, "/bin/first"},
		{"the last", [3]uint64{1, 0, 5}, "/bin/third"},
		{"many programs", [3]uint64{4, 3, 2}, "[3 programs on box]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := profiletest.New(&profile.Profile{Hostname: "box", Events: []profile.Event{{Name: "cpu-clock"}}})
			for i, name := range []string{"first", "second", "third"} {
				p.Images = append(p.Images, profile.Image{Name: name, Path: "/bin/" + name,
					Code: []symbols.CodeSegment{{Addr: 0x1000, Offset: 0x1000, Size: 0x1000}}})
				p.Frames = append(p.Frames, profile.Frame{Name: "main", Symbol: "main", Image: int32(i), Known: true,
					Addr: 0x1100, PC: 0x1110})
			}
			for i, n := range c.counts {
				pid := uint32(10 * (i + 1))
				thread := p.Thread(profile.Thread{PID: pid, TID: pid + uint32(i)/2, Comm: p.Images[i].Name})
				if n > 0 {
					p.Sample(profile.Sample{Thread: thread, Node: p.Stack(int32(i)), CPU: -1, Count: n, Period: n})
				}
			}
			out, err := Convert(p.Profile)
			if err != nil {
				t.Fatal(err)
			}
			if got := out.Mapping[0].File; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestNamesWithoutSymbols(t *testing.T) {
	for _, c := range []struct {
		name  string
		known bool
		want  string
	}{
		{"[libcrypto.so.3.1+0x11170]", false, "[libcrypto+0x11170]"},
		{"[libc.so]", false, "[libc]"},
		{"[perfdata.test+0x10]", false, "[perfdata_test+0x10]"},
		{"[tool+0x10]", false, "[tool+0x10]"},
		{"runtime.mcall", true, "runtime.mcall"},
	} {
		if got := shown(&profile.Frame{Name: c.name, Known: c.known}); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
