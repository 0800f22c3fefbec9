package speedscope

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
)

// example is a profile of three threads, with two places of main.
func example() *profiletest.Builder {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "demo", Path: "/bin/demo"}, {Name: "[kernel]"}},
		Frames: []profile.Frame{
			{Name: "main", Known: true, PC: 0x1000, File: "demo.cc", Line: 20, Column: 3},
			{Name: "main", Known: true, PC: 0x1010, File: "demo.cc", Line: 30, Column: 5},
			{Name: "std::array<int, 5>::fill", Known: true, Inlined: true, PC: 0x1010, File: "array", Line: 7},
			{Name: "write", Known: true, PC: 0x2000},
			{Name: "do_syscall_64", Image: 1, Known: true, Kind: profile.Kernel, PC: 0x3000},
		},
		Events:      []profile.Event{{Name: "cpu-clock", Clock: true}, {Name: "faults"}},
		Command:     []string{"perf", "record", "./demo"},
		LostSamples: 3,
	})
	one, other := profile.Thread{PID: 10, TID: 10, Comm: "demo"},
		profile.Thread{PID: 10, TID: 11, Comm: "worker"}
	p.Add(one, 0, 5, 0, 3, 4)
	p.Add(one, 0, 1, 0, 3)
	p.Add(other, 0, 9, 1, 3, 4)
	p.Add(other, 0, 20, 1, 2)
	p.Add(other, 0, 2, 1)
	p.Add(profile.Thread{PID: 2, TID: 2, Comm: "kthreadd"}, 0, 4, 4)
	p.Add(other, 0, 1)
	return p
}

// file is a file of speedscope, by the fields that we write and those that it exports.
type file struct {
	Schema string `json:"$schema"`
	Name   string
	Active int `json:"activeProfileIndex"`
	Shared struct {
		Frames []struct {
			Name, File string
			Line, Col  int
		}
	}
	Profiles []struct {
		Type, Name, Unit string
		Start            uint64 `json:"startValue"`
		End              uint64 `json:"endValue"`
		Samples          [][]int
		Weights          []uint64
		Events           []struct {
			Type  string
			Frame int
			At    uint64
		}
	}
}

func decode(t testing.TB, text string) *file {
	t.Helper()
	var f file
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return &f
}

// stacks are the stacks of a profile and their weights: "name|file:line:col", a line for each frame.
func (f *file) stacks(t testing.TB, i int) map[string]uint64 {
	t.Helper()
	all := make(map[string]uint64)
	add := func(stack []int, weight uint64) {
		var lines []string
		for _, n := range stack {
			at := f.Shared.Frames[n]
			line := at.Name + "|"
			if at.File != "" {
				line += at.File
			}
			for _, n := range []int{at.Line, at.Col} {
				if n != 0 {
					line += ":" + strconv.Itoa(n)
				}
			}
			lines = append(lines, line)
		}
		all[strings.Join(lines, "\n")] += weight
	}
	p := &f.Profiles[i]
	if len(p.Samples) != len(p.Weights) {
		t.Fatalf("%d stacks, %d weights", len(p.Samples), len(p.Weights))
	}
	for j, s := range p.Samples {
		add(s, p.Weights[j])
	}
	var stack []int
	var at uint64
	for _, e := range p.Events { // what speedscope exports
		if e.At > at {
			add(stack, e.At-at)
		}
		if at = e.At; e.Type == "O" {
			stack = append(stack, e.Frame)
		} else {
			stack = stack[:len(stack)-1]
		}
	}
	if len(p.Events) > 0 && p.End > at {
		add(nil, p.End-at)
	}
	return all
}

func equal(t *testing.T, have, want map[string]uint64) {
	t.Helper()
	if !maps.Equal(have, want) {
		t.Errorf("have %v\nwant %v", have, want)
	}
}

func write(t testing.TB, p *profile.Profile, o Options) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, p, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFile(t *testing.T) {
	const want = `{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"unspool",` +
		`"name":"perf record ./demo","activeProfileIndex":0,"shared":{"frames":[
{"name":"main","file":"demo.cc","line":30,"col":5},
{"name":"std::array<int, 5>::fill","file":"array","line":7},
{"name":"write","file":"/bin/demo"},
{"name":"do_syscall_64","file":"[kernel]"}
]},"profiles":[
{"type":"sampled","name":"all threads, 3 lost","unit":"none","startValue":0,"endValue":42,"samples":[
[0,1],
[0,2,3],
[0,2],
[0],
[3],
[]
],"weights":[20,14,1,2,4,1]},
{"type":"sampled","name":"worker (10/11)","unit":"none","startValue":0,"endValue":32,"samples":[
[0,1],
[0,2,3],
[0],
[]
],"weights":[20,9,2,1]},
{"type":"sampled","name":"demo (10/10)","unit":"none","startValue":0,"endValue":6,"samples":[
[0,2,3],
[0,2]
],"weights":[5,1]},
{"type":"sampled","name":"kthreadd (2/2)","unit":"none","startValue":0,"endValue":4,"samples":[
[3]
],"weights":[4]}
]}
`
	if got := write(t, example().Profile, Options{}); got != want {
		t.Errorf("have\n%s", got)
	}
}

func TestProfiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      Options
		change func(p *profiletest.Builder)
		want   []string
	}{
		{"few threads", Options{Threads: 1}, nil, []string{"all threads, 3 lost: 42", "worker (10/11): 32",
			"2 more threads: 10"}},
		{"a thread", Options{}, func(p *profiletest.Builder) { p.Samples, p.LostSamples = p.Samples[:2], 0 },
			[]string{"demo (10/10): 6"}},
		{"nothing", Options{}, func(p *profiletest.Builder) { p.Samples = nil }, []string{"no samples: 0"}},
		{"two events", Options{Threads: 2}, func(p *profiletest.Builder) { p.Add(p.Threads[2], 1, 7, 4) }, []string{
			"cpu-clock: all threads, 3 lost: 42", "cpu-clock: worker (10/11): 32", "cpu-clock: demo (10/10): 6",
			"cpu-clock: kthreadd (2/2): 4",
			"faults: kthreadd (2/2), 3 lost: 7",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := example()
			if c.change != nil {
				c.change(p)
			}
			f := decode(t, write(t, p.Profile, c.o))
			var have []string
			for i, part := range f.Profiles {
				have = append(have, fmt.Sprintf("%s: %d", part.Name, part.End))
				var sum uint64
				for _, n := range f.stacks(t, i) {
					sum += n
				}
				if sum != part.End || part.Unit != "none" || part.Start != 0 {
					t.Errorf("%+v", part)
				}
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("have %q\nwant %q", have, c.want)
			}
		})
	}
}

// TestOrderOfTime writes samples of two threads one by one.
func TestOrderOfTime(t *testing.T) {
	p := example()
	timeline, err := profile.NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	defer timeline.Close()
	p.Samples = nil
	const demo, worker = 0, 1
	write42, write1, fill := p.Stack(0, 3, 4), p.Stack(0, 3), p.Stack(1, 2)
	for i, s := range []profile.Sample{
		{Thread: demo, Node: write42}, {Thread: worker, Node: fill}, {Thread: demo, Node: write42},
		{Thread: demo, Node: write1}, {Thread: worker, Node: fill}, {Thread: demo, Node: write42},
		{Thread: demo, Node: fill, Event: 1},
	} {
		s.Count = 1
		p.Sample(s)
		if err := timeline.Add(uint64(100+10*i), &s); err != nil {
			t.Fatal(err)
		}
	}
	f := decode(t, write(t, p.Profile, Options{Timeline: timeline}))
	var have []string
	for _, part := range f.Profiles {
		have = append(have, fmt.Sprint(part.Name, " ", part.Samples, part.Weights))
	}
	want := []string{
		"cpu-clock: all threads, 3 lost [[0 2 3] [0 1] [0 2 3] [0 2] [0 1] [0 2 3]] [1 1 1 1 1 1]",
		"cpu-clock: demo (10/10) [[0 2 3] [0 2] [0 2 3]] [2 1 1]",
		"cpu-clock: worker (10/11) [[0 1]] [2]",
		"faults: demo (10/10), 3 lost [[0 1]] [1]",
	}
	if !slices.Equal(have, want) {
		t.Errorf("have %q\nwant %q", have, want)
	}
}

func TestLines(t *testing.T) {
	f := decode(t, write(t, example().Profile, Options{Lines: true}))
	equal(t, f.stacks(t, 0), map[string]uint64{
		"main|demo.cc:20:3\nwrite|/bin/demo\ndo_syscall_64|[kernel]": 5,
		"main|demo.cc:20:3\nwrite|/bin/demo":                         1,
		"main|demo.cc:30:5\nwrite|/bin/demo\ndo_syscall_64|[kernel]": 9,
		"main|demo.cc:30:5\nstd::array<int, 5>::fill|array:7":        20,
		"main|demo.cc:30:5":      2,
		"do_syscall_64|[kernel]": 4,
		"":                       1,
	})
}

// A function some of whose addresses have no line is one frame.
func TestPlacesWithoutLines(t *testing.T) {
	p := example()
	p.Frames = append(p.Frames, profile.Frame{Name: "main", Known: true, PC: 0x1020})
	p.Add(p.Threads[0], 0, 1000, 5)
	equal(t, decode(t, write(t, p.Profile, Options{Threads: 1})).stacks(t, 0), map[string]uint64{
		"main|demo.cc:30:5": 1002,
		"main|demo.cc:30:5\nstd::array<int, 5>::fill|array:7":        20,
		"main|demo.cc:30:5\nwrite|/bin/demo\ndo_syscall_64|[kernel]": 14,
		"main|demo.cc:30:5\nwrite|/bin/demo":                         1,
		"do_syscall_64|[kernel]":                                     4,
		"":                                                           1,
	})
}

func BenchmarkWrite(b *testing.B) {
	p := example()
	p.Samples = nil
	for i := range 2000 {
		p.Frames = append(p.Frames, profile.Frame{Name: "function" + strconv.Itoa(i)})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range int32(100_000) {
		n := profile.Node{Parent: r.Int32N(i/10 + 1), Frame: 5 + r.Int32N(2000)}
		p.Nodes = append(p.Nodes, n)
	}
	now := make([]int32, len(p.Frames))
	for i := range now {
		now[i] = int32(i)
	}
	for node := range p.Nodes {
		p.Samples = append(p.Samples, profile.Sample{Node: int32(node), Count: 1})
	}
	p.Profile = p.Regroup(p.Frames, now)
	b.ReportAllocs()
	for b.Loop() {
		if err := Write(io.Discard, p.Profile, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
