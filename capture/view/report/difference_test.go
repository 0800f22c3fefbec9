package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/capture/profile/difference"
	"unspool/capture/profile/profiletest"
)

// after is a profile after a change: of 2,000 samples, those below recurse are three times as many as before,
// the kernel was not asked to read, and a function is new.
func after(p *profile.Profile) *profile.Profile {
	for i := range p.Frames {
		p.Frames[i].Addr += 0x40 // it was built anew
	}
	fresh := int32(len(p.Frames))
	p.Frames = append(p.Frames, profile.Frame{Name: "fresh\x1b", Image: 2, Known: true, Addr: 0x9000})
	var below int32
	for i, n := range p.Nodes {
		if n.Parent >= 0 && p.Frames[n.Frame].Name == "main" {
			below = int32(i)
		}
	}
	p.Nodes = append(p.Nodes, profile.Node{Parent: below, Frame: fresh})
	samples := p.Samples[:0]
	for _, s := range p.Samples {
		switch name := p.Frames[p.Nodes[s.Node].Frame].Name; name {
		case "ksys_read":
			continue
		case "recurse":
			s.Count *= 6
		default:
			s.Count *= 2
		}
		s.Period = s.Count
		samples = append(samples, s)
	}
	p.Samples = append(samples, profile.Sample{Node: int32(len(p.Nodes) - 1), CPU: -1, Count: 100, Period: 100})
	p.Duration = 4 * time.Second
	return p
}

// inNanoseconds has each sample stand for a millisecond of CPU time.
func inNanoseconds(p *profile.Profile) *profile.Profile {
	for i := range p.Samples {
		p.Samples[i].Period = p.Samples[i].Count * 1e6
	}
	return p
}

// replaced is a profile of a program that is not there any more as it was recorded.
func replaced(p *profile.Profile) *profile.Profile {
	for i := range p.Frames {
		if f := &p.Frames[i]; f.Image == 2 {
			f.Known, f.Name = false, "[demo]"
		}
	}
	p.Images[2].BuildID = []byte{1}
	return p
}

func mergeTwo(t *testing.T, a, b *profile.Profile, o difference.Options) *difference.Merged {
	t.Helper()
	o.Processes = true
	m, err := difference.Merge([]difference.Run{{Name: "old.data", Profile: a}},
		[]difference.Run{{Name: "new\x1b.data", Profile: b}}, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDifference(t *testing.T) {
	timed := func(of func() *profile.Profile) func() *profile.Profile {
		return func() *profile.Profile { return inNanoseconds(of()) }
	}
	then := func(of func() *profile.Profile) func() *profile.Profile {
		return func() *profile.Profile { return inNanoseconds(after(of())) }
	}
	untimed := func() *profile.Profile {
		p := after(example())
		p.Events[0].Clock = false
		return p
	}
	for name, c := range map[string]struct {
		a, b func() *profile.Profile
		o    Difference
	}{
		"default": {timed(example), then(example), Difference{}},
		"narrow": {timed(example), then(example), Difference{
			Options: Options{Width: 70, Top: 2, PercentLimit: 20},
		}},
		"nokernel": {timed(example), then(example), Difference{Options: Options{NoKernel: true}}},
		"colour":   {timed(example), then(example), Difference{Options: Options{Colour: true}}},
		"absolute": {timed(example), then(example), Difference{Options: Options{Top: 3}, Amounts: true}},
		"same": {timed(example), timed(example), Difference{
			Options: Options{Filter: "comm demo"}}},
		"events":    {example, untimed, Difference{Options: Options{Top: 2}}},
		"narrowest": {timed(example), then(example), Difference{Options: Options{Width: 60}, Amounts: true}},
		"replaced": {
			func() *profile.Profile { return replaced(inNanoseconds(example())) }, then(example),
			Difference{},
		},
		"programs": {timed(withProcesses), then(withProcesses), Difference{Options: Options{Top: -1}}},
		"inline":   {timed(withLines), then(withLines), Difference{Options: Options{Top: 4}}},
		"comm":     {timed(withLines), then(withLines), Difference{Options: Options{By: Comm, Top: 2}}},
		"process":  {timed(withProcesses), then(withProcesses), Difference{Options: Options{By: Process}}},
		"image":    {timed(withLines), then(withLines), Difference{Options: Options{By: Image, PercentLimit: 10}}},
		"source": {timed(withLines), then(withLines), Difference{
			Options: Options{By: Source, Top: 3, Colour: true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := WriteDifference(&b, mergeTwo(t, c.a(), c.b(),
				difference.Options{Lines: c.o.By == Source, NoKernel: c.o.NoKernel}), c.o); err != nil {
				t.Fatal(err)
			}
			got := b.String()
			golden := filepath.Join("testdata", "difference", name+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(golden), 0o777); err != nil {
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
			checkLines(t, got, c.o.Options)
		})
	}
}

// threeRuns are recordings of three runs before a change and of three after it. Of so many ms, f has 280, 300 and 320
// before, and 580, 600 and 620 after it; g has 80, 100 and 120, and h the rest.
func threeRuns(t *testing.T) *difference.Merged {
	t.Helper()
	var sides [2][]difference.Run
	for side, functions := range [2][][2]uint64{{{280, 100}, {300, 120}, {320, 80}}, {{580, 120}, {600, 80}, {620, 100}}} {
		for run, n := range functions {
			p := profiletest.New(&profile.Profile{
				Command: []string{"unspool", "record", "--", "app"}, Duration: time.Second, CPUs: 2,
				Events: []profile.Event{{Name: "cpu-clock", Clock: true}}, Images: []profile.Image{{Name: "app", Path: "/app"}},
			})
			for i, name := range []string{"main", "f", "g", "h"} {
				p.Frames = append(p.Frames, profile.Frame{Name: name, Known: true, Addr: uint64(0x1000 + 0x100*i)})
			}
			app := profile.Thread{PID: uint32(1 + run), TID: uint32(1 + run), Comm: "app"}
			p.Add(app, 0, n[0], 0, 1)
			p.Add(app, 0, n[1], 0, 2)
			p.Add(app, 0, 1000-n[0]-n[1], 0, 3)
			sides[side] = append(sides[side], difference.Run{
				Name: fmt.Sprintf("%c%d.data", "ab"[side], 1+run), Profile: inNanoseconds(p.Profile),
			})
		}
	}
	m, err := difference.Merge(sides[0], sides[1], difference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Of three runs each, what is more than their spread is significant. Seven rows have samples enough: f, g and h by
// themselves, and these and main with what they call. So each has 1 / 140 outside of its interval. With four degrees of
// freedom that is 1 − sin θ · (1 + cos² θ / 2), tan θ = t / 2: t is 5.0675.
func TestDifferenceOfRuns(t *testing.T) {
	m := threeRuns(t)
	for name, o := range map[string]Difference{
		"runs": {}, "runsnarrow": {Options: Options{Width: 70, Colour: true}}, "runscomm": {Options: Options{By: Comm}},
	} {
		var text strings.Builder
		if err := WriteDifference(&text, m, o); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "difference", name+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(text.String()), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if text.String() != string(want) {
			t.Errorf("%s (go test -update writes it anew):\n%s", golden, &text)
		}
		checkLines(t, text.String(), o.Options)
	}

	type side struct {
		File    string
		Samples uint64
		Threads int
		Seconds float64 `json:"duration_s"`
		Runs    []struct {
			File    string
			Samples uint64
		}
	}
	type whole struct {
		Samples uint64
		Amount  float64
		Runs    []struct {
			Samples uint64
			Amount  float64
		}
	}
	var got struct {
		A, B   side
		Events []struct {
			A, B      whole
			Functions []struct {
				Name string
				Self struct {
					A, B          uint64
					Share, Amount jsonEstimate
				}
			}
		}
	}
	var text strings.Builder
	if err := WriteDifferenceJSON(&text, m, Difference{}); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text.String()), &got); err != nil {
		t.Fatal(err)
	}
	near := func(x, y float64) bool { return math.Abs(x-y) < 0.00005 }
	e := got.Events[0]
	if got.A.File != "a1.data,a2.data,a3.data" || got.A.Samples != 3000 || got.A.Threads != 3 || got.A.Seconds != 3 ||
		len(got.B.Runs) != 3 || got.B.Runs[2].File != "b3.data" || got.B.Runs[2].Samples != 1000 ||
		e.A.Samples != 3000 || !near(e.A.Amount, 1) || len(e.B.Runs) != 3 || e.B.Runs[0].Samples != 1000 ||
		!near(e.B.Runs[0].Amount, 1) {
		t.Errorf("%+v and %+v, of %+v", got.A, got.B, e)
	}
	for _, f := range e.Functions {
		switch f.Name {
		case "f": // shares have a variance of 0.0004: 0.3 ± 5.0675 · √(0.0008 / 3)
			for _, by := range []jsonEstimate{f.Self.Share, f.Self.Amount} {
				if f.Self.A != 900 || f.Self.B != 1800 || !near(by.Difference, 0.3) || !by.ExcludesZero || !by.BetweenRuns ||
					!by.Significant || !near(by.Low, 0.21725) || !near(by.High, 0.38275) {
					t.Errorf("%+v", f)
				}
			}
		case "g":
			if s := f.Self; s.A != 300 || s.B != 300 || s.Share.ExcludesZero || s.Share.Difference != 0 {
				t.Errorf("%+v", f)
			}
		}
	}
}

// addedFunction is a profile before and after a function was added that calls another one often. What its
// callers have besides has hardly changed.
func addedFunction() (before, after *profile.Profile) {
	profileOf := func(run, parse, copied uint64, added ...uint64) *profile.Profile {
		p := profiletest.New(&profile.Profile{
			Events: []profile.Event{{Name: "cpu-clock", Clock: true}}, Images: []profile.Image{{Name: "app", Path: "/app"}},
		})
		for i, name := range []string{"main", "run", "parse", "copy", "extra", "inner", "done", "fresh"} {
			p.Frames = append(p.Frames, profile.Frame{Name: name, Known: true, Addr: uint64(0x1000 + 0x100*i)})
		}
		app := profile.Thread{PID: 1, TID: 1, Comm: "app"}
		p.Add(app, 0, run, 0, 1)
		p.Add(app, 0, parse, 0, 1, 2)
		p.Add(app, 0, copied, 0, 1, 2, 3)
		for i, n := range added {
			p.Add(app, 0, n, [][]int32{{0, 1, 4, 3}, {0, 1, 4, 5}, {0, 6}, {0, 7, 3}}[i]...)
		}
		return inNanoseconds(p.Profile)
	}
	return profileOf(100, 1000, 100), profileOf(570, 1010, 104, 400, 60, 700, 200)
}

// Rows are in the order of what has changed most by itself, then by what it calls alone. What was added counts with
// what it calls, and stands above its callers.
func TestDifferenceOrder(t *testing.T) {
	a, b := addedFunction()
	for _, c := range []struct {
		o    Difference
		want string
	}{
		// By themselves, in ms: done +700, copy +604, run +470, inner +60; extra, of 460 in all, is called by run, and
		// fresh, of 200, by main.
		{Difference{Amounts: true}, "done copy extra run fresh inner main"},
		{Difference{}, "parse done extra copy run fresh inner"},
	} {
		m := mergeTwo(t, a, b, difference.Options{})
		v, err := newPairView(m, 0, &c.o)
		if err != nil {
			t.Fatal(err)
		}
		table := functionTable(m.Profile)
		list, err := v.changes(table, everyThread)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for i := range list {
			if x := &list[i]; v.changed(x) {
				names = append(names, table.rows[x.row].name)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("amounts %v: %s, want %s", c.o.Amounts, got, c.want)
		}
		// Each number has its own error beside it.
		var text strings.Builder
		if err := WriteDifference(&text, m, c.o); err != nil {
			t.Fatal(err)
		}
		table1, _, _ := strings.Cut(text.String(), "call tree")
		for line := range strings.Lines(table1) {
			if strings.Contains(line, " extra ") && strings.Count(line, "±") != 1 ||
				strings.Contains(line, " copy ") && strings.Count(line, "±") != 3 {
				t.Errorf("amounts %v: %s", c.o.Amounts, line)
			}
		}
	}
}

// The JSON has all functions and the whole tree; the numbers are those of the two profiles.
func TestDifferenceJSON(t *testing.T) {
	a, b := inNanoseconds(example()), inNanoseconds(after(example()))
	var text strings.Builder
	o := Difference{Options: Options{By: Image}}
	if err := WriteDifferenceJSON(&text, mergeTwo(t, a, b, difference.Options{}), o); err != nil {
		t.Fatal(err)
	}
	type estimate struct {
		Difference, Low, High float64
		ExcludesZero          bool `json:"excludes_zero"`
		BetweenRuns           bool `json:"between_runs"`
		Significant           bool
	}
	type change struct {
		A, B          uint64
		Share, Amount estimate
	}
	var got struct {
		Version int
		A, B    struct {
			File    string
			Samples uint64
			Depth   float64  `json:"mean_depth"`
			Unnamed []string `json:"unnamed_images"`
		}
		Events []struct {
			Name, Unit string
			A, B       struct {
				Samples uint64
				Amount  float64
			}
			Whole     estimate
			Functions []struct {
				Name, Image, Kind string
				Self, Total       change
			}
			Tree []struct {
				Parent, Function int
				SelfA            uint64 `json:"self_a"`
				SelfB            uint64 `json:"self_b"`
				Total            change
			}
			By     string
			Groups []struct {
				Name        string
				Self, Total change
			}
		}
	}
	if err := json.Unmarshal([]byte(text.String()), &got); err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	same := func(x, y float64) bool { return math.Abs(x-y) < 1e-9 }
	// Depths by hand: 4 · 500 + 6 · 200 + 4 · 50 + 6 · 150 + 5 · 20 + 4 · 4 + 4 · 6 + 4 · 6 + 64 of 1,000.
	if got.Version != 3 || got.A.File != "old.data" || got.B.File != "new\x1b.data" || got.A.Samples != 1000 ||
		got.B.Samples != 2800 || !same(got.A.Depth, 4.528) {
		t.Errorf("version %d, %+v, %+v", got.Version, got.A, got.B)
	}
	if got.A.Unnamed == nil || len(got.A.Unnamed)+len(got.B.Unnamed) > 0 {
		t.Errorf("unnamed: %q, %q", got.A.Unnamed, got.B.Unnamed)
	}
	text.Reset()
	without := mergeTwo(t, replaced(example()), after(example()), difference.Options{})
	if err := WriteDifferenceJSON(&text, without, o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), `"unnamed_images":["demo"]`) {
		t.Errorf("demo has names in\n%s", &text)
	}
	e := got.Events[0]
	if e.Unit != "s" || !same(e.A.Amount, 1) || !same(e.B.Amount, 2.8) || !e.Whole.ExcludesZero || e.Whole.Significant ||
		e.By != "image" || len(e.Groups) != 4 || e.Groups[0].Name != "demo" {
		t.Errorf("%s in %s: %+v and %+v; groups %+v", e.Name, e.Unit, e.A, e.B, e.Groups)
	}
	fresh := 0
	for _, f := range e.Functions {
		switch f.Name {
		case "recurse":
			s := f.Self
			if by := s.Share; s.A != 250 || s.B != 1500 || f.Total != s || !same(by.Difference, 1500.0/2800-0.25) ||
				!by.ExcludesZero || !same(s.Amount.Difference, 1.25) || by.Low > by.Difference || by.High < by.Difference {
				t.Errorf("%+v", f)
			}
		case "fresh\x1b":
			fresh++
			if f.Self.A != 0 || f.Self.B != 100 || f.Image != "demo" || f.Kind != "user" {
				t.Errorf("%+v", f)
			}
		}
	}
	if len(e.Functions) != 11 || fresh != 1 {
		t.Errorf("%d functions", len(e.Functions))
	}
	// In the tree, what ends in a node is what passes through it less what its children take.
	rest := make([][2]uint64, len(e.Tree))
	var roots [2]uint64
	for i, n := range e.Tree {
		rest[i][0], rest[i][1] = rest[i][0]+n.Total.A, rest[i][1]+n.Total.B
		if n.Parent < 0 {
			roots[0], roots[1] = roots[0]+n.Total.A, roots[1]+n.Total.B
			continue
		}
		rest[n.Parent][0], rest[n.Parent][1] = rest[n.Parent][0]-n.Total.A, rest[n.Parent][1]-n.Total.B
	}
	for i, n := range e.Tree {
		if rest[i] != [2]uint64{n.SelfA, n.SelfB} {
			t.Errorf("node %d, %s: %v, not %d and %d", i, e.Functions[n.Function].Name, rest[i], n.SelfA, n.SelfB)
		}
	}
	if roots != [2]uint64{1000, 2800} {
		t.Errorf("the roots have %v", roots)
	}
}

// Without samples in common there is nothing to compare, and of nothing there is no difference.
func TestDifferenceOfNothing(t *testing.T) {
	a, b := example(), example()
	a.Events = []profile.Event{{Name: "cpu-clock"}, {Name: "faults"}}
	a.Samples = append(a.Samples, profile.Sample{Node: 1, Event: 1, CPU: -1, Count: 1, Period: 1})
	b.Events[0].Name = "cycles\x1b"
	for name, c := range map[string]struct {
		a, b *profile.Profile
		want string
	}{
		"other events": {a, b, "no samples of the same event"},
		"no samples":   {empty(), empty(), "no samples of the same event"},
		"none in A":    {empty(), example(), "No function differs by more than the error of sampling."},
	} {
		for _, write := range []func(io.Writer, *difference.Merged, Difference) error{WriteDifference,
			WriteDifferenceJSON} {
			var text strings.Builder
			if err := write(&text, mergeTwo(t, c.a, c.b, difference.Options{}), Difference{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			s := text.String()
			if !strings.Contains(s, c.want) && !json.Valid([]byte(s)) || strings.Contains(s, "\x1b") ||
				strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
				t.Errorf("%s: %s", name, s)
			}
		}
	}
}

// empty is a recording in which nothing was sampled.
func empty() *profile.Profile {
	p := example()
	p.Samples, p.Threads = nil, nil
	return p
}
