package report

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"unspool/capture/profile"
)

var update = flag.Bool("update", false, "write the golden files")

// example is a profile with a kernel part, recursion, a long C++ name, two threads and what must not reach a terminal.
func example() *profile.Profile {
	p := &profile.Profile{
		Images: []profile.Image{{Name: "[kernel]"}, {Name: "libc.so.6", Path: "/lib/libc.so.6"}, {Name: "demo", Path: "/bin/demo"}, {Name: "[anon]"}},
		Frames: []profile.Frame{
			{Name: "_start", Image: 2, Known: true, Addr: 0x1000},
			{Name: "__libc_start_main", Image: 1, Known: true, Addr: 0x2000},
			{Name: "main", Image: 2, Known: true, Addr: 0x1100},
			{Name: "recurse", Image: 2, Known: true, Addr: 0x1200},
			{Name: "std::__introsort_loop<__gnu_cxx::__normal_iterator<int*, std::vector<int, std::allocator<int> > >, long, __gnu_cxx::__ops::_Iter_less_iter>", Image: 2, Known: true, Addr: 0x1300},
			{Name: "[libc.so.6]", Image: 1},
			{Name: "do_syscall_64", Image: 0, Kind: profile.Kernel, Known: true},
			{Name: "ksys_read", Image: 0, Kind: profile.Kernel, Known: true},
			{Name: "kthread", Image: 0, Kind: profile.Kernel, Known: true},
			{Name: "evil\x1b[31m\nname", Image: 3, Kind: profile.JIT, Known: true},
		},
		Nodes:    []profile.Node{{Parent: -1, Frame: -1}},
		Threads:  []profile.Thread{{PID: 10, TID: 10, Comm: "demo"}, {PID: 2, TID: 2, Comm: "kthreadd"}},
		Events:   []profile.Event{{Name: "cpu-clock", Clock: true}},
		Hostname: "debian", OSRelease: "6.18.0", Arch: "x86_64",
		Command:  []string{"unspool", "record", "--", "./demo", "a b"},
		Duration: 2500 * time.Millisecond, LostRecords: 3, Throttled: 1,
		Problems: []string{"/lib/libc.so.6: stripped, it names no function"},
	}
	add := func(thread int32, count uint64, frames ...int32) {
		node := int32(0)
		for _, f := range frames {
			next := int32(-1)
			for i, n := range p.Nodes {
				if n.Parent == node && n.Frame == f {
					next = int32(i)
				}
			}
			if next < 0 {
				next = int32(len(p.Nodes))
				p.Nodes = append(p.Nodes, profile.Node{Parent: node, Frame: f})
			}
			node = next
		}
		p.Samples = append(p.Samples, profile.Sample{Thread: thread, Node: node, Count: count, Period: count})
	}
	add(0, 500, 0, 1, 2, 4)
	add(0, 200, 0, 1, 2, 3, 3, 3)
	add(0, 50, 0, 1, 2, 3)
	add(0, 150, 0, 1, 2, 5, 6, 7)
	add(0, 20, 0, 1, 2, 5, 6)
	add(0, 4, 0, 1, 2, 5)
	add(0, 6, 0, 1, 2, 9)
	add(0, 6, 0, 1, 2, 6)
	add(1, 64, 8)
	return p
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
	for name, o := range map[string]Options{
		"default":  {File: "perf.data"},
		"narrow":   {File: "perf.data", Width: 60, Top: 3, PercentLimit: 10},
		"nokernel": {NoKernel: true, Top: -1},
		"colour":   {Colour: true},
		"all":      {PercentLimit: -1, Top: 100, Width: -1},
	} {
		t.Run(name, func(t *testing.T) {
			got := write(t, example(), o)
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
			limit := o.Width
			if limit == 0 {
				limit = defaultWidth
			}
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); !o.Colour && limit > 0 && n > limit {
					t.Errorf("%d columns: %s", n, line)
				}
				if !o.Colour && strings.Contains(line, "\x1b") {
					t.Errorf("escape sequence: %q", line)
				}
			}
		})
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
	p.Events = []profile.Event{{Name: "cpu-clock", Clock: true}, {Name: "page-faults"}, {Name: "never"}}
	p.Samples = append(p.Samples, profile.Sample{Thread: 0, Node: 3, Event: 1, Count: 1, Period: 1})
	got := write(t, p, Options{})
	for _, want := range []string{"\ncpu-clock: 1,000 samples\n", "\npage-faults: 1 sample\n", "events    cpu-clock, page-faults\n"} {
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
	p.Nodes = []profile.Node{{Parent: -1, Frame: -1}, {Parent: 0, Frame: 5}, {Parent: 1, Frame: 5}, {Parent: 2, Frame: 7}, {Parent: 1, Frame: 7}}
	p.Samples = []profile.Sample{{Node: 3, Count: 1}, {Node: 4, Count: 2}, {Node: 2, Count: 1}}
	_, tree, _ := strings.Cut(write(t, p, Options{Top: -1}), "call tree")
	want := " (from 1% up)\n100.0%   25.0%  [libc.so.6]\n 75.0%   75.0%  ksys_read  [kernel]\n"
	if tree != want {
		t.Errorf("%q, want %q", tree, want)
	}
}

func TestEmptyAndInvalidProfiles(t *testing.T) {
	p := &profile.Profile{Nodes: []profile.Node{{Parent: -1, Frame: -1}}, Events: []profile.Event{{Name: "cycles"}}}
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
	for line := range strings.Lines(write(t, p, Options{PercentLimit: -1})) {
		if n := utf8.RuneCountInString(line); n > defaultWidth+1 {
			t.Fatalf("%d columns: %s", n, line)
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
}
