package folded

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

func newStacks(frames ...profile.Frame) *profiletest.Builder {
	return profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "demo", Path: "/bin/demo"}},
		Frames: frames,
		Events: []profile.Event{{Name: "cycles"}, {Name: "cpu-clock", Clock: true}},
	})
}

func write(t testing.TB, p *profile.Profile, o Options) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, p, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func example() *profiletest.Builder {
	p := newStacks(
		profile.Frame{Name: "main", Known: true, PC: 0x1000},
		profile.Frame{Name: "main", Known: true, PC: 0x1010}, // another place of it
		profile.Frame{Name: "std::array<int, 5>::fill", Known: true, Inlined: true, PC: 0x1010},
		profile.Frame{Name: "write", Known: true, PC: 0x2000},
		profile.Frame{Name: "do_syscall_64", Known: true, Kind: profile.Kernel, PC: 0x3000},
		profile.Frame{Name: "syscall_enter", Known: true, Kind: profile.Kernel, Inlined: true, PC: 0x3000},
		profile.Frame{Name: "LazyCompile:~fib /app/fib.js:2", Known: true, Kind: profile.JIT},
		profile.Frame{Name: "main (2)", Known: true, PC: 0x1020},
	)
	one, other := profile.Thread{PID: 10, TID: 10, Comm: "V8 Worker"},
		profile.Thread{PID: 10, TID: 11, Comm: "V8 Worker"}
	p.Add(one, 1, 5, 0, 3, 4)
	p.Add(one, 1, 1, 0, 3, 4, 5)
	p.Add(other, 1, 7, 1, 3, 4)
	p.Add(other, 1, 2, 1, 2)
	p.Add(other, 1, 3, 7)
	p.Add(one, 1, 4, 0)
	p.Add(one, 0, 100, 0)
	p.Add(one, 1, 1, 6)
	p.Add(profile.Thread{PID: 2, TID: 2, Comm: "V8"}, 1, 9)
	p.Add(profile.Thread{PID: 2, TID: 2, Comm: "V8"}, 1, 1, 4)
	return p
}

func TestLines(t *testing.T) {
	const marked = `V8 9
V8;do_syscall_64_[k] 1
V8_Worker;LazyCompile:~fib /app/fib.js:2_[j] 1
V8_Worker;main 4
V8_Worker;main (2) 3
V8_Worker;main;std::array<int, 5>::fill_[i] 2
V8_Worker;main;write;do_syscall_64_[k] 12
V8_Worker;main;write;do_syscall_64_[k];syscall_enter_[k] 1
`
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"of an event", Options{Event: "cpu-clock"}, marked},
		{"plain", Options{Event: "cpu-clock", Plain: true},
			regexp.MustCompile(`_\[[kji]]`).ReplaceAllString(marked, "")},
		{"of the first event", Options{}, "V8_Worker;main 100\n"},
		{"without comms", Options{Event: "cpu-clock", NoComms: true}, `LazyCompile:~fib /app/fib.js:2_[j] 1
do_syscall_64_[k] 1
main 4
main (2) 3
main;std::array<int, 5>::fill_[i] 2
main;write;do_syscall_64_[k] 12
main;write;do_syscall_64_[k];syscall_enter_[k] 1
V8 9
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := write(t, example().Profile, c.o); got != c.want {
				t.Errorf("have\n%swant\n%s", got, c.want)
			}
		})
	}
	if err := Write(&strings.Builder{}, example().Profile, Options{Event: "faults"}); err == nil {
		t.Error("an event that was not recorded is not reported")
	}
	if got := write(t, profiletest.New(&profile.Profile{}).Profile, Options{}); got != "" {
		t.Errorf("no samples, but %q", got)
	}
}

// Lines begin as those of stackcollapse-perf.pl do. Two names stay two.
func TestSpacesInNamesOfThreads(t *testing.T) {
	p := newStacks()
	for i, name := range []string{"Web Content", "GPU Process 1", "tmux: server", "a b c", "a_b c", "a_b", "plain"} {
		p.Add(profile.Thread{PID: 1, TID: uint32(i), Comm: name}, 0, 1)
	}
	const want = `GPU_Process_1 1
Web_Content 1
a b c 1
a_b 1
a_b c 1
plain 1
tmux:_server 1
`
	if got := write(t, p.Profile, Options{}); got != want {
		t.Errorf("have\n%swant\n%s", got, want)
	}
}

// speedscope takes a file that begins like this for one of callgrind.
func TestFirstWords(t *testing.T) {
	p := newStacks(profile.Frame{Name: "# callgrind format"}, profile.Frame{Name: "fn=main"})
	p.Add(profile.Thread{PID: 1, TID: 1, Comm: "fn=x"}, 0, 3, 0, 1)
	if got, want := write(t, p.Profile, Options{}), "_fn=x;# callgrind format;fn=main 3\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := write(t, p.Profile, Options{NoComms: true}), "_# callgrind format;fn=main 3\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The lines of any tree are in order and have its weights.
func TestOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "a b", "a;b", "a:b", "a~", "a(int)", "b", "b 2", "", "é"}
	var frames []profile.Frame
	for _, n := range names {
		frames = append(frames, profile.Frame{Name: n})
	}
	p := newStacks(frames...)
	var total uint64
	for range 2000 {
		var path []int32
		for range r.IntN(5) {
			path = append(path, int32(r.IntN(len(frames))))
		}
		count := 1 + r.Uint64N(20)
		p.Add(profile.Thread{PID: 1, TID: uint32(r.IntN(2)), Comm: names[r.IntN(4)]}, 0, count, path...)
		total += count
	}
	text := write(t, p.Profile, Options{})
	var stacks []string
	var sum uint64
	for line := range strings.Lines(text) {
		stack, count := parse(t, line)
		stacks = append(stacks, stack)
		sum += count
	}
	if !slices.IsSorted(stacks) || len(slices.Compact(slices.Clone(stacks))) != len(stacks) {
		t.Error("not in order, or a stack twice")
	}
	if sum != total {
		t.Errorf("%d of %d samples", sum, total)
	}
	r.Shuffle(len(p.Samples), func(i, j int) { p.Samples[i], p.Samples[j] = p.Samples[j], p.Samples[i] })
	if write(t, p.Profile, Options{}) != text {
		t.Error("the order of the samples matters")
	}
}

var (
	foldedLine   = regexp.MustCompile(`^([^;\s].*) ([1-9][0-9]*)$`)
	endsInNumber = regexp.MustCompile(`\s[0-9]+(\.[0-9]*)?$`)
	hasTime      = regexp.MustCompile(`\s+(\d+\.\d+):\s+`)
)

// parse reads a line as the strictest readers do, and checks that the others read the same.
func parse(t testing.TB, line string) (stack string, count uint64) {
	t.Helper()
	line, ended := strings.CutSuffix(line, "\n")
	m := foldedLine.FindStringSubmatch(line)
	if !ended || m == nil || strings.TrimSpace(line) != line ||
		strings.ContainsFunc(line, func(r rune) bool {
			return r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 ||
				r == 0xfffd
		}) {
		t.Fatalf("%q is no line of folded stacks", line)
	}
	if endsInNumber.MatchString(m[1]) {
		t.Errorf("%q has two weights", line)
	}
	if hasTime.MatchString(line) {
		t.Errorf("%q is from perf script", line)
	}
	count, err := strconv.ParseUint(m[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return m[1], count
}

var hostile = []string{
	"f;g", ";", "line\nbreak 7", "carriage\r", "tab\there", "esc\x1b[31m", "nul\x00", "bad\xff utf-8", "\u2028",
	"\u00a05", "\u202egnp.exe",
	"foo 12", "foo 1.5", "foo 12.", "foo 1 2 ", "12", " 3", "", " ", "x 1.5: 2.5: y", "# callgrind format",
	"fn=main", "events: 1",
	"</text><script>alert(1)</script>", `"quoted" & 'so'`, "_[k]", "--", "{", "[1,", "$(id)",
	strings.Repeat("long ", 1000) + "9",
}

func TestHostileNames(t *testing.T) {
	var frames []profile.Frame
	for _, name := range hostile {
		frames = append(frames, profile.Frame{Name: name})
	}
	p := newStacks(frames...)
	for i, name := range hostile {
		p.Add(profile.Thread{PID: 1, TID: uint32(i), Comm: name}, 0, 1)
		p.Add(profile.Thread{PID: 1, TID: uint32(i), Comm: name}, 0, 1, int32(i))
		p.Add(profile.Thread{PID: 1, TID: uint32(i), Comm: name}, 0, 1, int32(i), 0, int32(i))
	}
	text := write(t, p.Profile, Options{})
	depths := make(map[int]uint64)
	for line := range strings.Lines(text) {
		stack, count := parse(t, line)
		depths[strings.Count(stack, ";")] += count
	}
	n := uint64(len(hostile))
	if len(depths) != 3 || depths[0] != n || depths[1] != n || depths[3] != n {
		t.Errorf("samples by depth: %v", depths)
	}
}

func TestHarmless(t *testing.T) {
	for name, want := range map[string]string{
		"operator new(unsigned long)": "operator new(unsigned long)",
		"std::array<int, 5>":          "std::array<int, 5>",
		"Lorg/Box;.get":               "Lorg/Box:.get",
		"line\nbreak 7":               "line?break_7",
		"bad\xff\u2028":               "bad??",
		" foo 12. ":                   "foo_12.",
		"foo 1 2":                     "foo 1_2",
		"x 1.5: 2.5: y":               "x_1.5:_2.5: y",
		"12":                          "12",
		" ":                           "?",
		"größer":                      "größer",
	} {
		if got := harmless(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range hostile {
		f.Add(name, "main")
		f.Add("bash", name)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, comm, name string) {
		defer costs.For(len(comm) + len(name)).Check(t)()
		p := newStacks(profile.Frame{Name: name}, profile.Frame{Name: "leaf " + name, Kind: profile.Kernel})
		p.Add(profile.Thread{PID: 1, TID: 1, Comm: comm}, 0, 3, 0)
		p.Add(profile.Thread{PID: 1, TID: 1, Comm: comm}, 0, 4, 0, 1)
		var sum uint64
		for line := range strings.Lines(write(t, p.Profile, Options{})) {
			stack, count := parse(t, line)
			if n := strings.Count(stack, ";"); n != int(count)-2 {
				t.Errorf("%q has %d semicolons", line, n)
			}
			sum += count
		}
		if sum != 7 {
			t.Errorf("%d samples", sum)
		}
	}))
}

// flamegraphPL finds flamegraph.pl. Debian has it for the profiler of Perl programs.
func flamegraphPL(t *testing.T) string {
	for _, name := range []string{"flamegraph.pl", "/usr/share/perl5/Devel/NYTProf/flamegraph.pl"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("flamegraph.pl is missing")
	return ""
}

// The picture of flamegraph.pl has the samples of the profile, and it refuses no line.
func TestFlamegraphPL(t *testing.T) {
	path := flamegraphPL(t)
	p := example()
	for i, name := range hostile {
		at := p.Frame(profile.Frame{Name: name})
		p.Add(profile.Thread{PID: 1, TID: uint32(i), Comm: name}, 1, 10, at, 0, at)
	}
	cmd := exec.Command(path, "--color=java", "--minwidth=0")
	var complaints strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(write(t, p.Profile, Options{Event: "cpu-clock"})), &complaints
	svg, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Fatalf("%v: %s", err, complaints.String())
	}
	// Old ones, as Debian's, show the marks and have parentheses for angle brackets.
	old := strings.NewReplacer("<", "(", ">", ")", "_[k] ", " ", "_[i] ", " ")
	drawn := make(map[string]bool)
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "title" {
			var title string
			if err := d.DecodeElement(&title, &e); err != nil {
				t.Fatal(err)
			}
			frame, _, _ := strings.Cut(title, " samples, ")
			drawn[old.Replace(frame)] = true
		}
	}
	for _, want := range []string{
		fmt.Sprintf("all (%d", 33+10*len(hostile)),
		"do_syscall_64 (13",
		"std::array<int, 5>::fill (2",
		"foo_12 (10",
		"</text><script>alert(1)</script> (10",
	} {
		if !drawn[old.Replace(want)] {
			t.Errorf("no %q among %q", want, slices.Sorted(maps.Keys(drawn)))
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	p := newStacks()
	for i := range 2000 {
		p.Frames = append(p.Frames, profile.Frame{Name: "function" + strconv.Itoa(i)})
	}
	r := rand.New(rand.NewPCG(1, 2))
	p.Threads = []profile.Thread{{PID: 1, TID: 1, Comm: "bench"}}
	for i := range int32(100_000) {
		p.Nodes = append(p.Nodes, profile.Node{Parent: r.Int32N(i + 1), Frame: i % 2000})
		p.Samples = append(p.Samples, profile.Sample{Node: i + 1, Count: 1})
	}
	p.Profile = p.Regroup(p.Frames, func() (same []int32) {
		for i := range p.Frames {
			same = append(same, int32(i))
		}
		return same
	}())
	b.ReportAllocs()
	for b.Loop() {
		if err := Write(io.Discard, p.Profile, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
