package firefox

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"unspool/capture/profile"
	"unspool/capture/symbols"
)

func (s *synthetic) function(name string, addr uint64) int32 {
	return s.Frame(profile.Frame{Name: name, Known: true, Addr: addr, PC: addr + 4})
}

func TestSamplesKeepTheirTimesAndStacks(t *testing.T) {
	s := newSynthetic(t)
	outer, inner := s.function("outer", 0x10), s.function("inner", 0x20)
	th := s.thread(7, 7, "prog")
	s.Began = time.UnixMilli(1_700_000_000_000)
	s.sample(1*second, th, s.Stack(outer, inner), 0)
	s.sample(1*second+millisecond+1, th, s.Stack(outer), 0)
	s.sample(2*second, th, 0, 0)                // a stack without frames
	s.sample(2*second-5, th, s.Stack(outer), 0) // a clock that goes back
	d := s.written(Options{Name: "perf.data"})
	if d.Meta.PreprocessedProfileVersion != 66 || d.Meta.Interval != 1 ||
		d.Meta.StartTime != 1_700_000_000_000 || d.Meta.Product != "perf.data" || d.Meta.ProfilingEndTime != 1001 {
		t.Errorf("meta: %+v", d.Meta)
	}
	if len(d.Threads) != 1 {
		t.Fatalf("%d threads", len(d.Threads))
	}
	got := d.Threads[0]
	// Between the second sample and the third lies a gap.
	if want := []float64{0, 1.000001, 1, 997.999999, 0}; !slices.EqualFunc(got.Samples.TimeDeltas, want, near) {
		t.Errorf("times %v, want %v", got.Samples.TimeDeltas, want)
	}
	if want := []int{1, 1, 0, 1, 1}; !slices.Equal(got.Samples.Weight, want) ||
		got.Samples.WeightType != "samples" {
		t.Errorf("weights %v of type %s, want %v", got.Samples.Weight, got.Samples.WeightType, want)
	}
	if want := []float64{1e6, 1e6, 0, 1e6, 1e6}; !slices.Equal(got.Samples.ThreadCPUDelta, want) {
		t.Errorf("CPU times %v, want %v", got.Samples.ThreadCPUDelta, want)
	}
	var stacks []string
	for _, stack := range got.Samples.Stack {
		if stack == nil {
			stacks = append(stacks, "none")
			continue
		}
		stacks = append(stacks, strings.Join(d.frames(*stack), " "))
	}
	if want := []string{"inner outer", "outer", "none", "none", "outer"}; !slices.Equal(stacks, want) {
		t.Errorf("stacks %q, want %q", stacks, want)
	}
	if lib := d.Libs[0]; lib.DebugName != "prog" || lib.Path != "/bin/prog" ||
		lib.BreakpadID != "78563412009A000000000000000000000" || lib.CodeID != "123456789a" {
		t.Errorf("library %+v", lib)
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestSamplesThatAreNotTimeHaveNoCPUTime(t *testing.T) {
	s := newSynthetic(t)
	s.Events[0] = profile.Event{Name: "cache-misses"}
	th := s.thread(7, 7, "prog")
	s.sample(1*second, th, 0, 0)
	s.sample(2*second, th, 0, 0)
	d := s.written(Options{})
	if got := d.Threads[0].Samples; got.ThreadCPUDelta != nil || got.Weight != nil || got.Length != 2 {
		t.Errorf("%+v", got)
	}
}

func TestThreadsOfAProcess(t *testing.T) {
	s := newSynthetic(t)
	for i, th := range []int32{
		s.thread(7, 8, "worker"), s.thread(7, 7, "sh"), s.thread(7, 7, "make"), s.thread(9, 10, "alone"),
		s.thread(11, 11, "asleep"),
	} {
		for n := range []int{3, 1, 40, 2, 0}[i] {
			s.sample(second+uint64(n)*millisecond, th, 0, 0)
		}
	}
	d := s.written(Options{Lives: &Lives{threads: map[[2]uint32]life{
		{7, 7}: {began: second + 5*millisecond},
		{7, 8}: {began: second + 6*millisecond, ended: second + 7*millisecond},
		{9, 9}: {ended: second + 8*millisecond},
	}}})
	var got []string
	for i := range d.Threads {
		th := &d.Threads[i]
		got = append(got, fmt.Sprintf("%s %s/%s of %s main %t, %d samples, process %s, thread %s", th.Name, th.PID,
			th.TID, th.ProcessName, th.IsMainThread, th.weight(),
			span(th.ProcessStartupTime, th.ProcessShutdownTime), span(th.RegisterTime, th.UnregisterTime)))
	}
	want := []string{
		"worker 7/8 of make main false, 3 samples, process 5-, thread 6-7",
		"sh 7/7.1 of make main false, 1 samples, process 5-, thread 5-",
		"make 7/7 of make main true, 40 samples, process 5-, thread 5-",
		"alone 9/10 of alone main false, 2 samples, process 0-8, thread 0-",
		"asleep 11/11 of asleep main true, 0 samples, process 0-, thread 0-",
	}
	if !slices.Equal(got, want) {
		t.Errorf("threads\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// Threads with less than a twentieth of the busiest one's samples are not in sight at first.
	if !slices.Equal(d.Meta.InitialVisibleThreads, []int{2, 0, 3}) || d.Meta.InitialSelectedThreads[0] != 2 {
		t.Errorf("visible %v, selected %v", d.Meta.InitialVisibleThreads, d.Meta.InitialSelectedThreads)
	}
}

func span(from float64, to *float64) string {
	if to == nil {
		return fmt.Sprintf("%v-", from)
	}
	return fmt.Sprintf("%v-%v", from, *to)
}

func TestInlinedFunctionsAndSymbols(t *testing.T) {
	s := newSynthetic(t)
	s.Images = append(s.Images, profile.Image{Name: "//anon", Path: "//anon"},
		profile.Image{Name: "[unmapped]", Path: "[unmapped]"}, profile.Image{Name: "[kernel]", Path: "[kernel]"})
	for _, f := range []profile.Frame{
		{Name: "outer", Known: true, Addr: 0x100, PC: 0x140, File: "a.c", Line: 3},
		{Name: "middle", Known: true, Inlined: true, PC: 0x140, File: "a.h", Line: 30},
		{Name: "leaf", Known: true, Inlined: true, PC: 0x140, File: "a.h", Line: 40, Column: 2},
		// a line of a header in the same function
		{Name: "outer", Known: true, Addr: 0x100, PC: 0x150, File: "other.h", Line: 7},
		{Name: "leaf", Known: true, Addr: 0x200, PC: 0x204, File: "a.h", Line: 41}, // the copy that is not inlined
		{Name: "leaf", Known: true, Addr: 0x300, PC: 0x304, File: "b.h", Line: 1},  // another of the name
		{Name: "[prog+0x900]", Addr: 0x900, PC: 0x908},
		{Name: "JS:f", Known: true, Image: 1, Kind: profile.JIT},
		{Name: "[unmapped]", Image: 2, Kind: profile.Unmapped},
		{Name: "vfs_read", Known: true, Image: 3, Kind: profile.Kernel, Addr: 0xffffffff81000000,
			PC: 0xffffffff81000010},
	} {
		s.Frame(f)
	}
	th := s.thread(7, 7, "prog")
	s.sample(second, th, s.Stack(0, 1, 2), 0)
	for f := int32(3); f < 10; f++ {
		s.sample(second+uint64(f)*millisecond, th, s.Stack(0, f), 0)
	}
	d := s.written(Options{})
	value := func(v *int) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	var got []string
	f := &d.Shared.FrameTable
	for i := range f.Length {
		fn := f.Func[i]
		file, symbol, library := "-", "-", "-"
		if source := d.Shared.FuncTable.Source[fn]; source != nil {
			file = d.Shared.StringArray[d.Shared.Sources.Filename[*source]]
		}
		if sym := f.NativeSymbol[i]; sym != nil {
			symbol = fmt.Sprintf("%s@%x", d.Shared.StringArray[d.Shared.NativeSymbols.Name[*sym]],
				d.Shared.NativeSymbols.Address[*sym])
		}
		if resource := d.Shared.FuncTable.Resource[fn]; resource >= 0 {
			library = d.Shared.StringArray[d.Shared.ResourceTable.Name[resource]]
			if d.Shared.ResourceTable.Lib[resource] == nil {
				library += "?"
			}
		}
		got = append(got, fmt.Sprintf("f%d %s %s in %s depth %d %s:%s:%s address %d, category %d.%d", fn,
			d.Shared.StringArray[d.Shared.FuncTable.Name[fn]], symbol, library,
			f.InlineDepth[i], file, value(f.Line[i]), value(f.Column[i]), f.Address[i], f.Category[i],
			f.Subcategory[i]))
	}
	want := []string{
		"f0 outer outer@100 in prog depth 0 a.c:3:- address 320, category 1.0",
		"f1 middle outer@100 in prog depth 1 a.h:30:- address 320, category 1.1",
		"f2 leaf outer@100 in prog depth 2 a.h:40:2 address 320, category 1.1",
		"f0 outer outer@100 in prog depth 0 a.c:-:- address 336, category 1.0",
		"f2 leaf leaf@200 in prog depth 0 a.h:41:- address 516, category 1.0",
		"f3 leaf leaf@300 in prog depth 0 b.h:1:- address 772, category 1.0",
		"f4 [prog+0x900] [prog+0x900]@900 in prog depth 0 -:-:- address 2312, category 1.2",
		"f5 JS:f - in //anon? depth 0 -:-:- address -1, category 3.0",
		"f6 [unmapped] - in - depth 0 -:-:- address -1, category 5.0",
		"f7 vfs_read - in [kernel] depth 0 -:-:- address -1, category 2.0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("frames\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAddressesCountFromTheBeginningOfTheImage(t *testing.T) {
	for _, c := range []struct {
		name string
		code []symbols.CodeSegment
		pc   uint64
		want int
	}{
		{"no file", nil, 0x1234, 0x1234},
		{"position-independent", []symbols.CodeSegment{{Addr: 0x1000, Offset: 0x1000, Size: 0x5000}}, 0x1234, 0x1234},
		{"the same by lld", []symbols.CodeSegment{{Addr: 0x5730, Offset: 0x4730, Size: 0x5000}}, 0x5734, 0x5734},
		{"at a fixed address", []symbols.CodeSegment{{Addr: 0x401000, Offset: 0x1000, Size: 0x5000}}, 0x401234, 0x1234},
		{"the same by lld", []symbols.CodeSegment{{Addr: 0x201730, Offset: 0x730, Size: 0x5000}}, 0x201734, 0x1734},
		{"before the image", []symbols.CodeSegment{{Addr: 0x401000, Offset: 0x1000, Size: 0x5000}}, 0x1234, -1},
		{"far from its beginning", []symbols.CodeSegment{{Addr: 0x1000, Offset: 0x1000, Size: 0x5000}}, 0x80000000, -1},
		{"broken", []symbols.CodeSegment{{Addr: 0x1000, Offset: math.MaxUint64, Size: 0x5000}}, 0x1234, 0x1234},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSynthetic(t)
			s.Images[0].Code = c.code
			f := s.Frame(profile.Frame{Name: "f", PC: c.pc})
			s.sample(second, s.thread(7, 7, "prog"), s.Stack(f), 0)
			if got := s.written(Options{}).Shared.FrameTable.Address[0]; got != c.want {
				t.Errorf("%#x, want %#x", got, c.want)
			}
		})
	}
}

func TestLossesAndOtherEventsAreMarkers(t *testing.T) {
	s := newSynthetic(t)
	s.Events = append([]profile.Event{{Name: "never"}}, append(s.Events, profile.Event{Name: "page-faults"})...)
	main := s.function("main", 0x10)
	th := s.thread(7, 7, "prog")
	s.sample(second, th, s.Stack(main), 1)
	s.sample(second+2*millisecond, th, s.Stack(main), 2)
	s.sample(second+3*millisecond, th, 0, 2)
	s.Losses = []profile.Loss{{Time: second - millisecond, Count: 12, CPU: 3},
		{Time: second + 4*millisecond, CPU: -1}}
	s.LostRecords, s.Throttled = 12, 1
	s.Problems = []string{"no names at all"}
	s.Samples[0].End = profile.Complete
	s.Began = time.UnixMilli(5000)
	d := s.written(Options{})
	if d.Meta.StartTime != 4999 || d.Meta.ProfilingEndTime != 6 {
		t.Errorf("starts at %v, lasts until %v", d.Meta.StartTime, d.Meta.ProfilingEndTime)
	}
	if len(d.Threads) != 2 || d.Threads[0].Samples.Length != 1 || d.Threads[0].Samples.TimeDeltas[0] != 1 {
		t.Fatalf("threads %+v", d.Threads)
	}
	var got []string
	for i := range d.Threads {
		m := &d.Threads[i].Markers
		for j := range m.Length {
			data, stack, cpu := m.Data[j], "", -1
			if data.Cause != nil {
				stack = strings.Join(d.frames(data.Cause.Stack), " ")
			}
			if data.CPU != nil {
				cpu = *data.CPU
			}
			got = append(got, fmt.Sprintf("%s: %s %s at %v, count %d, period %d, CPU %d, %q", d.Threads[i].Name,
				d.Shared.StringArray[m.Name[j]], data.Type, m.StartTime[j], data.Count, data.Period, cpu, stack))
		}
	}
	want := []string{
		`prog: page-faults Event at 3, count 0, period 1000000, CPU 1, "main"`,
		`prog: page-faults Event at 4, count 0, period 1000000, CPU 1, ""`,
		`[gaps]: Lost samples Lost at 0, count 12, period 0, CPU 3, ""`,
		`[gaps]: Throttled Throttled at 5, count 0, period 0, CPU -1, ""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("markers\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(d.Meta.InitialVisibleThreads, []int{0, 1}) {
		t.Errorf("visible: %v", d.Meta.InitialVisibleThreads)
	}
	extra := fmt.Sprint(d.Meta.Extra)
	if extra != "[{User stacks [{complete 1}]} {Lost [{Records 12} {Times throttled 1}]} "+
		"{Missing names and frames [{1 no names at all}]}]" {
		t.Errorf("extra: %s", extra)
	}
}

func TestHostileNames(t *testing.T) {
	s := newSynthetic(t)
	names := []string{"", "\"\\", "</script><img src=x onerror=alert(1)>", "a\x00b", "\xff\xfe broken",
		"line\nbreak\r\u2028", "ключ 😀", "__proto__", "{{constructor}}", strings.Repeat("long", 50_000)}
	th := s.thread(7, 7, "\"},{\xff")
	s.Images[0] = profile.Image{Name: "\xf0lib\"", Path: "/\x01", BuildID: make([]byte, 300)}
	s.Events[0].Name, s.Hostname, s.Command = "\xffe\"", "\x00", []string{"\xff", "\""}
	s.Problems = []string{"\xff\""}
	for i, name := range names {
		f := s.Frame(profile.Frame{Name: name, Known: true, Addr: uint64(i+1) * 16,
			PC: uint64(i+1)*16 + math.MaxUint64/2, File: name, Line: math.MinInt32, Kind: profile.Kind(i)})
		s.sample(math.MaxUint64-uint64(i), th, s.Stack(f), 0)
	}
	s.Losses = []profile.Loss{{Time: math.MaxUint64, Count: math.MaxUint64, CPU: math.MaxInt32}}
	d := s.written(Options{Name: "\xff"})
	for i, name := range names {
		want := strings.ToValidUTF8(strings.ReplaceAll(name, "\xff\xfe", "\ufffd\ufffd"), "\ufffd")
		if got := d.frames(*d.Threads[0].Samples.Stack[i])[0]; got != want || !utf8.ValidString(got) {
			t.Errorf("%q became %q", name, got)
		}
	}
}

func TestWithoutSamples(t *testing.T) {
	s := newSynthetic(t)
	s.Events, s.Frames, s.Images = nil, nil, nil
	d := s.written(Options{})
	if len(d.Threads) != 1 || d.Threads[0].Name != "[gaps]" {
		t.Errorf("threads: %+v", d.Threads)
	}
}

func TestATimelineOfAnotherProfileIsRefused(t *testing.T) {
	s := newSynthetic(t)
	th := s.thread(7, 7, "prog")
	s.sample(second, th, 0, 0)
	s.Samples[0].Count = 2
	if err := Write(io.Discard, s.Profile, s.timeline, Options{}); err == nil ||
		!strings.Contains(err.Error(), "1 samples") {
		t.Errorf("a sample less: %v", err)
	}
	one := s.Samples[0]
	one.Node = 99
	if err := s.timeline.Add(second, &one); err != nil {
		t.Fatal(err)
	}
	if err := Write(io.Discard, s.Profile, s.timeline, Options{}); err == nil ||
		!strings.Contains(err.Error(), "node 99") {
		t.Errorf("a node of nowhere: %v", err)
	}
	if err := Write(io.Discard, s.Profile, nil, Options{}); err == nil {
		t.Error("no timeline is taken")
	}
}

func TestTenThousandThreads(t *testing.T) {
	s := newSynthetic(t)
	main := s.function("main", 0x10)
	for i := range 10_000 {
		th := s.thread(uint32(100+i/100*100), uint32(100+i), "pool")
		s.sample(second+uint64(i), th, s.Stack(main), 0)
	}
	d := s.written(Options{})
	if len(d.Threads) != 10_000 || len(d.Meta.InitialVisibleThreads) != maxVisible {
		t.Errorf("%d threads, %d of them in sight", len(d.Threads), len(d.Meta.InitialVisibleThreads))
	}
	main = 0
	for i := range d.Threads {
		if d.Threads[i].IsMainThread {
			main++
		}
	}
	if main != 100 {
		t.Errorf("%d processes have a main thread", main)
	}
}

func TestMemoryFollowsStacksNotSamples(t *testing.T) {
	allocated := func(samples int) uint64 {
		s := newSynthetic(t)
		stacks := make([]int32, 100)
		for i := range stacks {
			stacks[i] = s.Stack(s.function(fmt.Sprint("f", i), uint64(16*i+16)), s.function("leaf", 8))
		}
		th := s.thread(7, 7, "prog")
		for i := range samples {
			s.sample(second+uint64(i)*millisecond, th, stacks[i%len(stacks)], 0)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := Write(io.Discard, s.Profile, s.timeline, Options{}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := allocated(1000), allocated(1_000_000)
	t.Logf("%d bytes for a thousand samples, %d for a million", few, many)
	if many > few+few/2 {
		t.Errorf("%d bytes for a thousand samples, %d for a million", few, many)
	}
}
