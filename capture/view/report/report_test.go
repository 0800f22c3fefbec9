package report

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"unspool/capture/profile"
	"unspool/capture/profile/difference"
	"unspool/capture/profile/profiletest"
	"unspool/unwind"
)

var update = flag.Bool("update", false, "write the golden files")

// example is a profile with a kernel part, recursion, a long C++ name, two threads, and characters that
// must not reach a terminal.
func example() *profile.Profile {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "[kernel]"}, {Name: "libc.so.6", Path: "/lib/libc.so.6"},
			{Name: "demo", Path: "/bin/demo"}, {Name: "[anon]"}},
		Frames: []profile.Frame{
			{Name: "_start", Image: 2, Known: true, Addr: 0x1000},
			{Name: "__libc_start_main", Image: 1, Known: true, Addr: 0x2000},
			{Name: "main", Image: 2, Known: true, Addr: 0x1100},
			{Name: "recurse", Image: 2, Known: true, Addr: 0x1200},
			{Name: "std::__introsort_loop<__gnu_cxx::__normal_iterator<int*, std::vector<int, std::allocator<int> > " +
				">, long, __gnu_cxx::__ops::_Iter_less_iter>", Image: 2, Known: true, Addr: 0x1300},
			{Name: "[libc.so.6]", Image: 1},
			{Name: "do_syscall_64", Image: 0, Kind: profile.Kernel, Known: true},
			{Name: "ksys_read", Image: 0, Kind: profile.Kernel, Known: true},
			{Name: "kthread", Image: 0, Kind: profile.Kernel, Known: true},
			{Name: "evil\x1b[31m\nname", Image: 3, Kind: profile.JIT, Known: true},
		},
		Events:   []profile.Event{{Name: "cpu-clock", Clock: true}},
		Hostname: "debian", OSRelease: "6.18.0", Arch: "x86_64",
		Command:  []string{"unspool", "record", "--", "./demo", "a b"},
		Duration: 2500 * time.Millisecond, LostRecords: 3, Throttled: 1,
		Problems: []string{"/lib/libc.so.6: stripped, it names no function"},
	})
	p.Kinds = map[string]string{p.Problems[0]: "stripped"}
	demo := profile.Thread{PID: 10, TID: 10, Comm: "demo"}
	p.Add(demo, 0, 500, 0, 1, 2, 4)
	p.Add(demo, 0, 200, 0, 1, 2, 3, 3, 3)
	p.Add(demo, 0, 50, 0, 1, 2, 3)
	p.Add(demo, 0, 150, 0, 1, 2, 5, 6, 7)
	p.Add(demo, 0, 20, 0, 1, 2, 5, 6)
	p.Add(demo, 0, 4, 0, 1, 2, 5)
	p.Add(demo, 0, 6, 0, 1, 2, 9)
	p.Add(demo, 0, 6, 0, 1, 2, 6)
	p.Add(profile.Thread{PID: 2, TID: 2, Comm: "kthreadd"}, 0, 64, 8)
	return p.Profile
}

// withLines is the example with source lines, an inlined function and the reasons for which walks ended.
func withLines() *profile.Profile {
	p := profiletest.New(example())
	p.Images = append(p.Images, profile.Image{Name: "libc.so.6", Path: "/lib32/libc.so.6",
		BuildID: []byte{0xab, 0xcd}})
	for i := range p.Frames {
		f := &p.Frames[i]
		if f.Image == 2 {
			f.PC, f.File, f.Line = f.Addr+4, "/src/demo.cc", int32(10*i+1)
		}
	}
	recurse := p.Frames[3]
	again := recurse
	again.PC, again.Line = recurse.PC+8, 35
	hot := recurse
	hot.Name, hot.Inlined, hot.Addr, hot.File, hot.Line = "hot\x1b", true, 0, "/src/hot\x1b.h", 7
	recurseAgain, inlined := p.Frame(again), p.Frame(hot)
	write32 := p.Frame(profile.Frame{Name: "write32", Image: 4, Known: true, Addr: 0x10})
	for i := range p.Samples {
		p.Samples[i].End = profile.Complete
	}
	p.Samples[len(p.Samples)-1].End = profile.Unsaid
	pool := p.Thread(profile.Thread{PID: 10, TID: 11, Comm: "pool", Program: "demo"})
	sh := p.Thread(profile.Thread{PID: 10, TID: 10, Comm: "sh"})
	inHot, onRecurse := p.Stack(0, 1, 2, 3, inlined), p.Stack(0, 1, 2, 3, recurseAgain)
	for _, s := range []profile.Sample{
		{Thread: pool, Node: inHot, Count: 100, End: profile.Complete},
		{Thread: pool, Node: onRecurse, Count: 50, End: profile.Ended(unwind.NoCFI)},
		{Thread: sh, Node: p.Stack(write32), Count: 50, End: profile.Ended(unwind.DumpTooShort)},
		{Thread: sh, Node: p.Stack(write32), CPU: 3, Count: 1, End: profile.Ended(unwind.NoCFI)},
	} {
		s.Period = s.Count
		p.Sample(s)
	}
	return p.Profile
}

// withProcesses is the example below the names of its processes, as a recording is loaded for the tree.
func withProcesses() *profile.Profile {
	p := profiletest.New(example())
	p.Images = append(p.Images, profile.Image{Path: "[process]"})
	samples := p.Samples
	nodes := p.Nodes
	p.Nodes, p.Samples = p.Nodes[:1:1], nil
	p = profiletest.New(p.Profile)
	frames := make(map[string]int32)
	for _, s := range samples {
		name := p.Threads[s.Thread].Comm
		if _, ok := frames[name]; !ok {
			frames[name] = p.Frame(profile.Frame{Name: name + "\x1b", Image: 4, Kind: profile.Process, Known: true})
		}
		var stack []int32
		for node := s.Node; node > 0; node = nodes[node].Parent {
			stack = append(stack, nodes[node].Frame)
		}
		stack = append(stack, frames[name])
		slices.Reverse(stack)
		s.Node = p.Stack(stack...)
		p.Sample(s)
	}
	return p.Profile
}

func write(t *testing.T, p *profile.Profile, o Options) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, p, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReport(t *testing.T) {
	type golden struct {
		of func() *profile.Profile
		o  Options
	}
	for name, c := range map[string]golden{
		"default":    {example, Options{File: "perf.data"}},
		"narrow":     {example, Options{File: "perf.data", Width: 60, Top: 3, PercentLimit: 10}},
		"nokernel":   {example, Options{NoKernel: true, Top: -1}},
		"colour":     {example, Options{Colour: true}},
		"all":        {example, Options{PercentLimit: -1, Top: 100}},
		"programs":   {withProcesses, Options{NoKernel: true, Top: 3, Programs: true}},
		"inline":     {withLines, Options{Top: 3}},
		"comm":       {withLines, Options{By: Comm, Filter: "comm *; pid 10"}},
		"process":    {withLines, Options{By: Process, PercentLimit: 10, Top: 2}},
		"thread":     {withLines, Options{By: Thread, Top: -1}},
		"image":      {withLines, Options{By: Image, NoKernel: true, Width: 60}},
		"source":     {withLines, Options{By: Source}},
		"coloured":   {withLines, Options{By: Source, Colour: true, Top: 2}},
		"everything": {withLines, Options{By: Image, PercentLimit: -1, Top: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.o
			got := write(t, c.of(), o)
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.MkdirAll("testdata", 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s (go test -update writes it anew):\n%s", golden, got)
			}
			checkLines(t, got, o)
		})
	}
}

// checkLines checks that lines fit, and that nothing of the recorded system is an escape sequence.
func checkLines(t *testing.T, text string, o Options) {
	t.Helper()
	limit := o.Width // 0 for none
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); !o.Colour && limit > 0 && n > limit {
			t.Errorf("%d columns: %s", n, line)
		}
		if !o.Colour && strings.Contains(line, "\x1b") {
			t.Errorf("escape sequence: %q", line)
		}
	}
}

// Processes are no functions: the tables are those of the same recording without them.
func TestProcessesAreInTheTreeOnly(t *testing.T) {
	for _, o := range []Options{{}, {NoKernel: true}, {By: Image}} {
		with, _, _ := strings.Cut(write(t, withProcesses(), o), "call tree")
		without, _, _ := strings.Cut(write(t, example(), o), "call tree")
		if with != without {
			t.Errorf("%+v: with processes\n%s\nwithout\n%s", o, with, without)
		}
	}
}

func TestRecursionCountsOncePerStack(t *testing.T) {
	v := newView(example(), 0, false)
	for _, f := range v.sums(functionTable(v.p)) {
		if f.row == 3 && (f.self != 250 || f.total != 250) {
			t.Errorf("recurse: self %d, total %d", f.self, f.total)
		}
		if f.row == 6 && (f.self != 26 || f.total != 176) {
			t.Errorf("do_syscall_64: self %d, total %d", f.self, f.total)
		}
	}
}

func TestEventsAreReportedOneByOne(t *testing.T) {
	p := example()
	p.Events = []profile.Event{{Name: "cpu-clock", Clock: true}, {Name: "page-faults", Recorded: 4},
		{Name: "never"}}
	p.Samples = append(p.Samples, profile.Sample{Thread: 0, Node: 3, Event: 1, Count: 1, Period: 1})
	got := write(t, p, Options{})
	for _, want := range []string{"\ncpu-clock: 1,000 samples\n", "\npage-faults: 1 sample\n" +
		"100 % is  25.0 % of the recording's 4 samples\n",
		"events    cpu-clock, page-faults\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "never:") {
		t.Error("an event without samples is reported")
	}
}

func TestRunsOfUnknownFunctionsAreOneLine(t *testing.T) {
	p := example()
	p.Nodes = []profile.Node{{Parent: -1, Frame: -1}, {Parent: 0, Frame: 5}, {Parent: 1, Frame: 5},
		{Parent: 2, Frame: 7}, {Parent: 1, Frame: 7}}
	p.Problems = nil
	p.Samples = []profile.Sample{{Node: 3, Count: 1}, {Node: 4, Count: 2}, {Node: 2, Count: 1}}
	_, tree, _ := strings.Cut(write(t, p, Options{Top: -1}), "call tree")
	want := " (from 1% up)\n100.0%   25.0%  [libc.so.6]\n 75.0%   75.0%  ksys_read  [kernel]\n"
	if tree != want {
		t.Errorf("%q, want %q", tree, want)
	}
}

func TestEmptyAndInvalidProfiles(t *testing.T) {
	p := profiletest.New(&profile.Profile{Events: []profile.Event{{Name: "cycles"}}}).Profile
	if got := write(t, p, Options{}); !strings.Contains(got, "no samples") {
		t.Error(got)
	}
	p.Samples = []profile.Sample{{Node: 1, Count: 1}}
	if err := Write(&strings.Builder{}, p, Options{}); err == nil {
		t.Error("an invalid profile is printed")
	}
}

func TestDeepStacksStayWithinTheWidth(t *testing.T) {
	p := example()
	p.Nodes, p.Samples = p.Nodes[:1], nil
	for i := range int32(5000) { // a chain with a second child at each node
		parent := 2*i - 1
		if i == 0 {
			parent = 0
		}
		p.Nodes = append(p.Nodes, profile.Node{Parent: parent, Frame: 3}, profile.Node{Parent: parent, Frame: 4})
		p.Samples = append(p.Samples, profile.Sample{Node: 2*i + 2, Count: 1})
	}
	const widest = 142 // a name of the example
	for width, most := range map[int]int{90: 90, 0: mostLines + widest + 30} {
		for line := range strings.Lines(write(t, p, Options{PercentLimit: -1, Width: width})) {
			if n := utf8.RuneCountInString(line); n > most+1 {
				t.Fatalf("width %d: %d columns: %s", width, n, line)
			}
		}
	}
}

// Without a width, as in a pipe, no name is cut.
func TestTextIsWhole(t *testing.T) {
	p := withLines()
	for name, text := range map[string]string{
		"report": write(t, p, Options{}), "groups": write(t, p, Options{By: Image}), "difference": func() string {
			var b strings.Builder
			m := mergeTwo(t, inNanoseconds(withLines()), inNanoseconds(after(withLines())), difference.Options{})
			if err := WriteDifference(&b, m, Difference{}); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}(),
	} {
		const long = "__gnu_cxx::__normal_iterator<int*, std::vector<int, std::allocator<int> > >, long"
		if n := strings.Count(text, "std::__introsort"); n == 0 || strings.Count(text, long) != n {
			t.Errorf("%s: names are cut:\n%s", name, text)
		}
	}
}

// TestSumsOfGroups adds groups up in the simplest way, and compares.
func TestSumsOfGroups(t *testing.T) {
	p := withLines()
	for _, by := range []By{Comm, Process, Thread, Image, Source} {
		v := newView(p, 0, false)
		if by != Source {
			v = newView(p.ByFunction(), 0, false)
		}
		groups, rows := v.groups(by)
		for _, g := range groups {
			var self, total uint64
			lines := make(map[int32]sum)
			for _, s := range v.p.Samples {
				th := &p.Threads[s.Thread]
				member := by.partsSamples() &&
					(by == Comm && th.Comm == g.thread.Comm || by == Process && th.PID == g.thread.PID ||
						by == Thread && th.TID == g.thread.TID && th.Comm == g.thread.Comm)
				onStack := make(map[int32]bool)
				in := false
				for node := v.shown[s.Node]; node > 0; node = v.nodes[node].Parent {
					frame := v.nodes[node].Frame
					f, first := &v.p.Frames[frame], &v.p.Frames[g.frame]
					if !by.partsSamples() {
						member = f.Image == first.Image && by == Image ||
							f.File == first.File && by == Source && (f.File != "" || f.Image == first.Image)
					}
					if !member {
						continue
					}
					r := rows.row[frame]
					l := lines[r]
					if node == v.shown[s.Node] {
						self += s.Count
						l.self += s.Count
					}
					if !onStack[r] {
						l.total += s.Count
					}
					lines[r] = l
					onStack[r], in = true, true
				}
				if in {
					total += s.Count
				}
			}
			if self != g.self || total != g.total || len(lines) != len(g.rows) {
				t.Errorf("%s %s: %d and %d in %d rows, want %d and %d in %d", by, g.name, g.self, g.total, len(g.rows),
					self, total, len(lines))
			}
			for _, r := range g.rows {
				if l := lines[r.row]; l.self != r.self || l.total != r.total {
					t.Errorf("%s %s, %s: %+v, want %+v", by, g.name, rows.rows[r.row].name, r, l)
				}
			}
		}
	}
}

func TestCompleteIsNeverRoundedUp(t *testing.T) {
	for _, c := range []struct {
		complete, short, image uint64
		want                   string
	}{
		{0, 0, 0, ""},
		{5, 0, 0, "all complete"},
		{99999, 1, 0, "> 99.9 % complete; 1 dump too short"},
		{4900, 98, 2, "98.0 % complete; 98 dump too short, 2 file not readable"},
		{0, 0, 1200, "0.0 % complete; 1,200 file not readable"},
	} {
		p := example()
		p.Samples = nil
		for e, n := range map[profile.End]uint64{
			profile.Unsaid: 7, profile.Complete: c.complete,
			profile.Ended(unwind.DumpTooShort): c.short, profile.Ended(unwind.NoImage): c.image,
		} {
			if n > 0 {
				p.Samples = append(p.Samples, profile.Sample{End: e, Node: 1, Count: n})
			}
		}
		if got := stacks(p); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestMissingNamesAreOneLineInFront(t *testing.T) {
	// without adds images without names to the example, with as many samples; it has 4 of 1000 in libc.so.6.
	without := func(images map[string]uint64) *profile.Profile {
		p := profiletest.New(example())
		for path, n := range images {
			image := int32(len(p.Images))
			p.Images = append(p.Images, profile.Image{Name: filepath.Base(path), Path: path})
			p.Add(profile.Thread{PID: 10, TID: 10, Comm: "demo"}, 0, n, 0,
				p.Frame(profile.Frame{Name: "[" + path + "+0x10]", Image: image}))
		}
		return p.Profile
	}
	var asked []string
	knowsLib := func(files []profile.Image) (how string, of []bool) {
		asked = nil
		for _, im := range files {
			asked = append(asked, im.Path)
			of = append(of, strings.HasPrefix(im.Path, "/lib/"))
		}
		return "`apt install libx-dbgsym`\x1b", of
	}
	const notes = ": see the notes at the end" // there is one about libc.so.6
	const some = "33.7 % of the stacks go through code without names, 20.1 % end in it; "
	for _, c := range []struct {
		images map[string]uint64
		advice Advice
		asked  []string
		want   string
	}{
		{map[string]uint64{"/lib/libx.so": 246}, knowsLib, []string{"/lib/libx.so", "/lib/libc.so.6"},
			some + "33.7 % in libx.so, libc.so.6: `apt install libx-dbgsym`?"},
		{map[string]uint64{"/lib/libx.so": 246}, nil, nil,
			some + "33.7 % in libx.so, libc.so.6" + notes},
		{map[string]uint64{"/lib/libx.so": 100, "/tmp/go-build1/b": 80, "/tmp/go-build1/a": 120, "[anon]": 90,
			"/tmp/c": 20},
			knowsLib, []string{"/lib/libc.so.6", "/tmp/go-build1/a", "/lib/libx.so"},
			"41.4 % of the stacks go through code without names, 29.4 % end in it; 20.6 % in a, [anon], b; " +
				"19.4 % in libc.so.6, libx.so: `apt install libx-dbgsym`?"},
	} {
		asked = nil
		o := Options{Advice: c.advice, Width: 1000}
		got := write(t, without(c.images), o)
		if !strings.Contains(got, "\nnames     "+c.want+"\n") || !slices.Equal(asked, c.asked) {
			t.Errorf("no %q in\n%s\nasked for %q", c.want, got, asked)
		}
	}
	p := example()
	p.Frames[5].Known = true
	p.Frames[9].Known = false
	if got := write(t, p, Options{}); strings.Contains(got, "\nnames") {
		t.Errorf("0.6 %% are worth a line:\n%s", got)
	}
}

func TestNotesComeBehindTheAnswer(t *testing.T) {
	p := example()
	p.Problems = []string{"the rest is lost"}
	for kind := range 9 {
		for file := range 50 - kind {
			text := fmt.Sprintf("/lib/%d/%d: kind %d", kind, file, kind)
			p.Problems = append(p.Problems, text)
			p.Kinds[text] = fmt.Sprint("kind ", kind)
		}
	}
	got := write(t, p, Options{})
	head, rest, _ := strings.Cut(got, " total    self  call tree")
	if strings.Count(head, "note ") != 1 || !strings.Contains(head, "note      the rest is lost\n") {
		t.Errorf("notes before the answer:\n%s", head)
	}
	for _, want := range []string{"\n\nnote      /lib/0/0: kind 0 (and 49 more)\nnote      /lib/1/0",
		"note      … and 5 notes of other kinds (-v lists them)\n"} {
		if !strings.Contains(rest, want) {
			t.Errorf("no %q in\n%s", want, rest)
		}
	}
	if n := strings.Count(rest, "note "); n != profile.MostNotes {
		t.Errorf("%d notes", n)
	}
	if n := strings.Count(write(t, p, Options{AllNotes: true}), "note "); n != len(p.Problems) {
		t.Errorf("%d of %d notes", n, len(p.Problems))
	}
}

// TestProgramsAreOneLine has the line in terminals of all sizes, with names that are not safe to print.
func TestProgramsAreOneLine(t *testing.T) {
	p := profiletest.New(&profile.Profile{Events: []profile.Event{{Name: "cycles"}, {Name: "faults"}}})
	add := func(pid uint32, comm, program string, event int32, n uint64) {
		thread := p.Thread(profile.Thread{PID: pid, TID: pid, Comm: comm, Program: program})
		p.Sample(profile.Sample{Thread: thread, Event: event, Count: n})
	}
	add(1, "pool-1", "server", 0, 300)
	add(2, "server", "server", 0, 300)
	add(3, "cc1\x1b[31m", "cc1\x1b[31m", 0, 390)
	add(4, "ld", "ld", 0, 9)
	add(5, "as", "as", 0, 1)
	add(6, "a name that is too long", "a name that is too long", 1, 5)
	add(7, "pool-1", "other", 1, 5)
	for columns, want := range map[int]string{
		100: "server 60.0 %, cc1?[31m 39.0 %, 2 others (--by comm)",
		52:  "server 60.0 %, cc1?[31m 39.0 %, 2 others (--by comm)",
		51:  "server 60.0 %, 3 others (--by comm)",
		34:  "server 60.0 %, 3 others",
		10:  "serve…hers",
	} {
		if got := programs(p.Profile, 0, columns); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
	want := "a name t…o long 50.0 %, other 50.0 % (--by comm)"
	if got := programs(p.Profile, 1, 100); got != want {
		t.Errorf("of the other event: %q, want %q", got, want)
	}
	p.Events = append(p.Events, profile.Event{Name: "one comm"}, profile.Event{Name: "one program"})
	add(8, "pool-2", "server", 2, 5)
	add(9, "pool-2", "other", 2, 5)
	add(10, "pool-3", "server", 3, 5)
	add(10, "server", "server", 3, 5)
	for event := range int32(2) {
		if got := programs(p.Profile, 2+event, 100); got != "" {
			t.Errorf("of %s: %q", p.Events[2+event].Name, got)
		}
	}
}

type broken struct{}

var errBroken = errors.New("pipe is closed")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestAWriteErrorComesBack(t *testing.T) {
	if err := Write(broken{}, example(), Options{}); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if err := WriteJSON(broken{}, example(), Options{}); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}
