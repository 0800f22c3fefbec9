package flamegraph

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/profile/difference"
	"unspool/capture/profile/profiletest"
	"unspool/testdata/browser"
)

// change is a stack of functions below main, and the samples that it has before and after a change.
type stackChange struct {
	thread        profile.Thread
	functions     []string
	before, after uint64
}

// changed makes two recordings of a second and of two, whose samples are a millisecond of CPU time each and
// come evenly.
func changed(t *testing.T, stacks []stackChange) [2]difference.Run {
	t.Helper()
	var both [2]difference.Run
	for side := range both {
		p := profiletest.New(&profile.Profile{
			Images: []profile.Image{{Name: "program"}, {Name: "other"}},
			Frames: []profile.Frame{{Name: "main", Known: true}},
			Events: []profile.Event{{Name: "cpu-clock", Clock: true}},
		})
		names := map[string]int32{}
		for _, s := range stacks {
			frames := []int32{0}
			for _, name := range s.functions {
				if _, ok := names[name]; !ok {
					names[name] = p.Frame(profile.Frame{Name: name, Known: true, Addr: uint64(len(names)<<8 + side)})
				}
				frames = append(frames, names[name])
			}
			if n := []uint64{s.before, s.after}[side]; n > 0 {
				thread, node := p.Thread(s.thread), p.Stack(frames...)
				p.Sample(profile.Sample{Thread: thread, Node: node, CPU: -1, Count: n, Period: n * 1e6})
			}
		}
		count := int(p.Count())
		line := timeline(t, p.Profile, func(_ profile.Thread, n int) time.Duration {
			_, part := math.Modf(float64(n) * math.Phi)
			return time.Duration(part*float64(count)) * time.Millisecond
		})
		both[side] = difference.Run{Profile: p.Profile, Timeline: line}
	}
	return both
}

var (
	mainThread   = profile.Thread{PID: 10, TID: 10, Comm: "program"}
	helperThread = profile.Thread{PID: 11, TID: 11, Comm: "helper"}
)

// work is what a change did: most got slower, one function is gone, another is new, and one has hardly
// changed. A quarter less of the samples are of a helper.
var work = []stackChange{
	{mainThread, []string{"work"}, 500, 1340},
	{mainThread, []string{"steady"}, 270, 480},
	{helperThread, []string{"steady"}, 50, 80},
	{mainThread, []string{"gone"}, 180, 0},
	{mainThread, []string{"fresh"}, 0, 100},
}

func mergedOf(t *testing.T, both [2]difference.Run) *difference.Merged {
	t.Helper()
	m, err := difference.Merge(both[:1], both[1:], difference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func openDifference(t *testing.T, m *difference.Merged, o DifferencePage) opened {
	t.Helper()
	var b bytes.Buffer
	if err := WriteDifference(&b, m, o); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "difference.html")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	page := opened{t, browser.Open(t, file, 1200, 1000)}
	page.Until("document.documentElement.dataset.ready")
	t.Cleanup(func() {
		if c := page.Complaints(); len(c) > 0 {
			t.Errorf("the page complains: %q", c)
		}
	})
	return page
}

// functionRows compares functions: by themselves, and with what they call.
func functionRows(m *difference.Merged) (self, total difference.Rows) {
	self = difference.Rows{N: len(m.Frames), Of: func(_, leaf int32, add func(int32)) {
		add(m.Nodes[leaf].Frame)
	}}
	total = difference.Rows{N: len(m.Frames), Of: func(_, leaf int32, add func(int32)) {
		var on []int32
		for ; leaf > 0; leaf = m.Nodes[leaf].Parent {
			if f := m.Nodes[leaf].Frame; !slices.Contains(on, f) {
				on = append(on, f)
				add(f)
			}
		}
	}}
	return self, total
}

// Two recordings of A and one of B: samples are added up, and CPU time is the mean of a side. That of A is of 2,000
// samples, 1.96 √(2000 + 1) + 1.96² / 2 of which are half a millisecond each: with B's, ±0.097 s.
func TestDifferencePageOfSeveral(t *testing.T) {
	both := changed(t, work)
	m, err := difference.Merge([]difference.Run{both[0], both[0]}, both[1:], difference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.Runs[difference.A][1].Name = hostile
	p := openDifference(t, m, DifferencePage{})
	p.text("#sum", "CPU time 1.00 s → 2.00 s +1.00 ±0.10 (+100.0 %)")
	p.text("#changes .runs", "2 of A and 1 of B added up, CPU time being the mean of a side’s recordings: the spread "+
		"between them is in no interval here, so that nothing is called significant. ‘unspool report A1,A2,… B1,B2,…’ "+
		"prints the intervals that have it.")
	p.text("#recordings section:nth-child(2) h2", "A2: "+human.Printable(hostile))
	if n := browser.Eval[int](p.Page, `document.querySelectorAll('#recordings section').length`); n != 3 {
		t.Errorf("%d recordings", n)
	}
	if !browser.Eval[bool](p.Page, `[...document.querySelectorAll('.strip')].every(s => s.hidden)`) {
		t.Error("recordings that have no common time have a strip")
	}
	rows := browser.Eval[[][]string](p.Page,
		`[...document.querySelectorAll('#changes tbody tr')].map(r => [...r.cells].slice(0, 3).map(c => c.textContent))`)
	want := [][]string{
		{"gone program", "18.0 %", "·"}, {"work program", "50.0 %", "67.0 %"}, {"fresh program", "·", "5.00 %"},
	}
	if !slices.EqualFunc(rows, want, slices.Equal[[]string]) {
		t.Errorf("%q\nwant %q", rows, want)
	}
}

// nodeChanges compares the nodes, each with those below it.
func nodeChanges(t *testing.T, m *difference.Merged) []difference.Delta {
	t.Helper()
	lists, err := m.Changes(0, difference.Rows{N: len(m.Nodes), Of: func(_, leaf int32, add func(int32)) {
		for ; leaf > 0; leaf = m.Nodes[leaf].Parent {
			add(leaf)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return lists[0]
}

// written is a difference as the page has it.
func written(e difference.Estimate, scale float64) string {
	digits := 3
	for i, least := range []float64{9.5, 0.95, 0.02} {
		if e.Error()*scale >= least {
			digits = i
			break
		}
	}
	text := fmt.Sprintf("%+.*f ±%.*f", digits, e.Value*scale, digits, e.Error()*scale)
	return strings.Replace(text, "-", "−", 1)
}

func TestDifferencePage(t *testing.T) {
	m := mergedOf(t, changed(t, work))
	m.Runs[difference.B][0].Name = hostile
	p := openDifference(t, m, DifferencePage{Title: hostile})
	p.text("h1", human.Printable(hostile))
	p.text("#changes .runs", "One run of each: the spread between runs is in no interval, so that nothing here is called "+
		"significant. Record each several times: unspool report A1,A2,… B1,B2,…")
	p.text("#recordings section:nth-child(2) h2", "B: "+human.Printable(hostile))

	// 1.00 s ± and 2.00 s ±: 1 + 1.96² / 2 ± 1.96 √(1000 + 1) ms and so on, by which 1 s differs by 0.107 s
	// less.
	p.text("#sum", "CPU time 1.00 s → 2.00 s +1.00 ±0.11 (+100.0 %)")
	self, total := functionRows(m)
	lists, err := m.Changes(0, self, total)
	if err != nil {
		t.Fatal(err)
	}
	row := func(name, selfA, selfB string) []string {
		f := slices.IndexFunc(m.Frames, func(f profile.Frame) bool { return f.Name == name })
		s, c := lists[0][f], lists[1][f]
		return []string{name + " program", selfA, selfB, written(s.Share, 100), written(s.Amount, 1),
			written(c.Share, 100)}
	}
	rows := browser.Eval[[][]string](p.Page,
		`[...document.querySelectorAll('#changes tbody tr')].map(r => [...r.cells].map(c => c.textContent))`)
	want := [][]string{row("gone", "18.0 %", "·"), row("work", "50.0 %", "67.0 %"), row("fresh", "·", "5.00 %")}
	if !slices.EqualFunc(rows, want, slices.Equal[[]string]) {
		t.Errorf("%q\nwant %q", rows, want)
	}
	p.text("#rest", "2 functions may differ by chance, by up to 4.0 points")

	p.text("#total", "total points")

	// Widths of both: 67 for work, 32, 18 and 5 of 122.
	nodes := nodeChanges(t, m)
	tip := func(name, a, b string, node int) {
		t.Helper()
		p.text("#tip .name", name)
		p.text("#tip tbody tr", strings.Join([]string{"here", a, b, written(nodes[node].Share, 100),
			written(nodes[node].Amount, 1)}, ""))
	}
	node := func(name string) int {
		return slices.IndexFunc(m.Nodes, func(n profile.Node) bool {
			return n.Frame >= 0 && m.Frames[n.Frame].Name == name
		})
	}
	p.MoveTo(p.frame(2, 0.3))
	tip("work", "50.0 %", "67.0 %", node("work"))
	p.MoveTo(p.frame(2, 0.9))
	tip("gone", "18.0 %", "0 %", node("gone"))
	p.MoveTo(p.frame(2, 0.98))
	tip("fresh", "0 %", "5.00 %", node("fresh"))
	p.MoveTo(5, 5)

	// Red is more, blue is less, grey may be chance; that of CPU time, which doubled, is red for all but one.
	scale := func(i int) string {
		return browser.Eval[string](p.Page, fmt.Sprintf(
			`getComputedStyle(document.documentElement).getPropertyValue('--diff%d').trim()`, i))
	}
	colours := func(want map[float64]int) {
		t.Helper()
		for _, dark := range []bool{false, true} {
			p.Dark(dark)
			p.frame(0, 0)
			for at, colour := range want {
				if have, want := p.colourAt(2, at), scale(colour); have != want {
					t.Errorf("dark %v, at %.2f: %s, not %s", dark, at, have, want)
				}
			}
		}
		p.Dark(false)
	}
	colours(map[float64]int{0.1: 9, 0.7: 5, 0.9: 1, 0.98: 8})
	p.Press("c")
	p.text("#sum", "CPU time 1.00 s → 2.00 s +1.00 ±0.11 (+100.0 %)")
	p.text("#total", "total CPU s")
	slower := slices.IndexFunc(m.Frames, func(f profile.Frame) bool { return f.Name == "work" })
	p.text("#changes tbody tr:nth-child(1) td:last-child", written(lists[1][slower].Amount, 1))
	// In seconds: 1.34 for work, 0.56, 0.18 and 0.1 of 2.18; changes of 0.84, 0.24, −0.18 and 0.1 of 1.
	colours(map[float64]int{0.1: 10, 0.8: 9, 0.9: 1, 0.98: 9})
	p.Press("c")

	// Widths of A and of B.
	p.Press("w")
	p.MoveTo(p.frame(2, 0.9))
	tip("gone", "18.0 %", "0 %", node("gone"))
	p.Press("w")
	p.MoveTo(p.frame(2, 0.98))
	tip("fresh", "0 %", "5.00 %", node("fresh"))
	p.Press("w")
	p.MoveTo(p.frame(2, 0.9))
	tip("gone", "18.0 %", "0 %", node("gone"))

	// Leaf first: the samples of both processes are together.
	p.Press("r")
	p.MoveTo(p.frame(1, 0.7))
	p.text("#tip .name", "steady")
	f := slices.IndexFunc(m.Frames, func(f profile.Frame) bool { return f.Name == "steady" })
	c := lists[1][f]
	p.text("#tip tbody tr:nth-child(2)", "everywhere32.0 %28.0 %"+written(c.Share, 100)+written(c.Amount, 1))
	p.MoveTo(p.frame(2, 0.7))
	p.text("#tip .name", "main")
	p.Press("r")

	// Search, and from the table.
	p.PressCtrl("f")
	p.Press("e")
	p.text("#found", "A 50.0 %, B 33.0 % of samples · 3 functions")
	p.Press(browser.Escape)
	p.Click("#changes tbody tr:nth-child(1) .fn")
	p.text("#found", "A 18.0 %, B 0 % of samples · 1 function")
	p.text("#detail .name", "gone")
	p.text("#detail .figures", "A 18.0 %   B 0 %   "+written(nodes[node("gone")].Share, 100)+" points   "+
		written(nodes[node("gone")].Amount, 1)+" CPU s")
	p.Press(browser.Escape)
	p.Press(browser.Escape)

	// A program.
	p.pick("helper")
	p.text("#sum", "CPU time 0.05 s → 0.08 s +0.03 ±0.02 (+60.0 %)")
	p.pick("")
	p.Press("?")
	p.Until("document.querySelector('#help').open")
	if title := browser.Eval[string](p.Page, "document.title"); title != human.Printable(hostile) {
		t.Errorf("title %q", title)
	}
}

// colourAt is the colour of the graph's row at a share of its width.
func (p opened) colourAt(row int, share float64) string {
	p.Helper()
	return browser.Eval[string](p.Page, fmt.Sprintf(`(() => {
		const canvas = document.querySelector('#graph canvas'),
			c = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
		c.drawImage(canvas, 0, 0);
		return '#' + [...c.getImageData(canvas.width * %f, 19 * %d + 2, 1, 1).data.slice(0, 3)]
			.map(v => v.toString(16).padStart(2, '0')).join('');
	})()`, share, row))
}

// Each recording has its own strip of time, which narrows what is counted of it.
func TestDifferenceOfTimes(t *testing.T) {
	both := changed(t, work)
	both[1].CPUs = 1
	m := mergedOf(t, both)
	p := openDifference(t, m, DifferencePage{})
	strip := func(side string) []float64 {
		return browser.Eval[[]float64](p.Page, `(() => {
			const b = document.querySelector('#strip-`+side+` canvas').getBoundingClientRect();
			return [b.left, b.top, b.width];
		})()`)
	}
	a, b := strip("A"), strip("B")
	if ratio := a[2] / b[2]; ratio < 0.49 || ratio > 0.51 {
		t.Errorf("A has half of B's time, and %.2f of its width", ratio)
	}
	p.text("#strip-A .when", "998 ms in bars of 20.5 ms, full height 1 CPU · draw a range to see its part, "+
		"exact to 975 µs")
	p.text("#strip-A .programs", "program95.0 %helper5.00 %")
	p.text("#strip-B .programs", "program96.0 %helper4.00 %")
	// How many samples are in a part depends on where a pixel ends.
	sum := func(want string) {
		t.Helper()
		p.Until("document.querySelector('#sum').textContent.startsWith(" + browser.Quote("CPU time "+want) + ")")
	}
	p.Drag(a[0]+a[2]/2, a[1]+20, a[0]+a[2]+5, a[1]+20)
	p.text("#strip-A .when", "499 ms to 998 ms · 49.9 % of 1,000 samples")
	sum("0.50 s → 2.00 s +1.50 ±0.10 (+300.8 %)")
	p.Drag(b[0], b[1]+20, b[0]+b[2]/4, b[1]+20)
	sum("0.50 s → 0.50 s ")
	p.text("#strip-B .programs", "program95.8 %helper4.17 %")
	p.Press(browser.Escape)
	sum("1.00 s → 0.50 s −0.50 ±0.08")
	p.Press(browser.Escape)
	sum("1.00 s → 2.00 s +1.00 ±0.11 (+100.0 %)")
}

// The page finds the same as package difference, for samples that come in bursts, too.
func TestPageJudgesAsGoDoes(t *testing.T) {
	source := rand.New(rand.NewPCG(3, 4))
	var both [2]difference.Run
	for side := range both {
		p := generated(400)
		for i := range p.Samples {
			s := &p.Samples[i]
			if s.Count = 1 + uint64(source.IntN(12)); side == 1 && i%9 == 0 {
				s.Count *= 8
			}
			s.Period = s.Count * 1e6
		}
		burst := time.Duration(0)
		line := timeline(t, p, func(_ profile.Thread, n int) time.Duration {
			if n%7 == 0 {
				burst = time.Duration(source.Int64N(int64(time.Minute)))
			}
			return burst + time.Duration(n%7)*time.Millisecond
		})
		both[side] = difference.Run{Profile: p, Timeline: line}
	}
	m := mergedOf(t, both)
	self, total := functionRows(m)
	lists, err := m.Changes(0, self, total)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for i, f := range m.Frames {
		s, c := lists[0][i], lists[1][i]
		if !s.Share.ExcludesZero() && !c.Share.ExcludesZero() {
			continue
		}
		text := written(s.Share, 100) + " " + written(s.Amount, 1)
		if s.Samples == [2]uint64{} {
			text = "· ·"
		}
		want[f.Name] = text + " " + written(c.Share, 100)
	}
	p := openDifference(t, m, DifferencePage{})
	have := browser.Eval[map[string]string](p.Page, `Object.fromEntries(
		[...document.querySelectorAll('#changes tbody tr')].map(r => [r.querySelector('.fn').textContent,
			[3, 4, 5].map(i => r.cells[i].textContent).join(' ')]))`)
	if len(want) < 10 || len(have) != len(want) {
		t.Errorf("%d functions have changed, by Go %d", len(have), len(want))
	}
	for name, text := range want {
		if have[name] != text {
			t.Errorf("%s: %q, by Go %q", name, have[name], text)
		}
	}
	// By CPU time, so is what may be chance.
	most, others := 0.0, uint64(0)
	for i := range m.Frames {
		s, c := lists[0][i].Amount, lists[1][i].Amount
		if !s.ExcludesZero() && !c.ExcludesZero() && lists[1][i].Judged() {
			others++
			most = max(most, math.Abs(s.Value), math.Abs(c.Value))
		}
	}
	p.Press("c")
	p.text("#rest span", fmt.Sprintf("%s may differ by chance, by up to %.2f s",
		human.Plural(others, "function"), most))
	for tests, z := range map[int]float64{1: 1.959964, 1000: 4.055627} {
		if got := browser.Eval[float64](p.Page, fmt.Sprintf("quantile(%d)", tests)); got < z-1e-5 || got > z+1e-5 {
			t.Errorf("quantile(%d) is %v", tests, got)
		}
	}
}

// A program that was built anew after A is one frame, which the page says at its top.
func TestDifferencePageOfAProgramWithoutNames(t *testing.T) {
	both := changed(t, work)
	for i := range both[0].Frames {
		both[0].Frames[i].Known, both[0].Frames[i].Name = false, "[program]"
	}
	both[0].Images[0] = profile.Image{Name: "program", Path: "/program", BuildID: []byte{1}}
	p := openDifference(t, mergedOf(t, both), DifferencePage{})
	p.text("#changes .names", "program is not here as A recorded it: its functions count as one, [program]. "+
		"Keep a program before you build it anew: perf buildid-cache --add FILE, or build it under another name")
	p.text("#changes tbody", "[program] program100 %100 %+0.00 ±0.25+1.00 ±0.12+0.00 ±0.25")
}

// The page has functions in the order of 'unspool report': see its TestDifferenceOrder.
func TestDifferencePageOrder(t *testing.T) {
	p := openDifference(t, mergedOf(t, changed(t, []stackChange{
		{mainThread, []string{"run"}, 100, 570},
		{mainThread, []string{"run", "parse"}, 1000, 1010},
		{mainThread, []string{"run", "parse", "copy"}, 100, 104},
		{mainThread, []string{"run", "extra", "copy"}, 0, 400},
		{mainThread, []string{"run", "extra", "inner"}, 0, 60},
		{mainThread, []string{"done"}, 0, 700},
	})), DifferencePage{})
	order := func(want string) {
		t.Helper()
		p.Until("[...document.querySelectorAll('#changes .fn')].map(f => f.textContent).join(' ') === " +
			browser.Quote(want))
	}
	order("parse done extra run copy inner")
	p.Press("c")
	order("done extra run copy inner main")
}

// Where one recording is much longer, nine samples that it has none of seem to be much, but are too few.
func TestDifferencePageOfFewSamples(t *testing.T) {
	m := mergedOf(t, changed(t, []stackChange{
		{mainThread, []string{"steady"}, 4000, 88}, {mainThread, []string{"few"}, 0, 9},
	}))
	p := openDifference(t, m, DifferencePage{})
	changes := browser.Eval[[]string](p.Page,
		`[...document.querySelectorAll('#changes .fn')].map(f => f.textContent)`)
	if want := []string{"steady"}; !slices.Equal(changes, want) {
		t.Errorf("%q have changed, not %q", changes, want)
	}
	p.MoveTo(p.frame(2, 0.97))
	p.text("#tip .name", "few")
	grey := "getComputedStyle(document.documentElement).getPropertyValue('--diff5').trim()"
	if have, want := p.colourAt(2, 0.97), browser.Eval[string](p.Page, grey); have != want {
		t.Errorf("%s, not %s", have, want)
	}
	few := slices.IndexFunc(m.Nodes, func(n profile.Node) bool {
		return n.Frame >= 0 && m.Frames[n.Frame].Name == "few"
	})
	c := nodeChanges(t, m)[few]
	p.text("#tip tbody tr", "here0 %9.28 %"+written(c.Share, 100)+written(c.Amount, 1))
}

func TestDifferencePageOfNothing(t *testing.T) {
	empty := func() difference.Run {
		return difference.Run{Profile: profiletest.New(&profile.Profile{}).Profile}
	}
	p := openDifference(t, mergedOf(t, [2]difference.Run{empty(), empty()}), DifferencePage{})
	p.MoveTo(p.frame(0, 0.5))
	p.text("#tip .name", "all")
	p.text("#rest", "No function differs by more than the error of sampling. The largest of 0 differences are shown.")

	// Times that are made up.
	both := changed(t, work)
	both[0].First, both[0].Duration = 0, -1
	p = openDifference(t, mergedOf(t, both), DifferencePage{})
	p.text("#sum", "CPU time 1.00 s → 2.00 s +1.00 ±0.11 (+100.0 %)")

	// One without samples, and times that only one has.
	both = changed(t, work)
	both[0].Samples, both[0].Timeline = nil, nil
	p = openDifference(t, mergedOf(t, both), DifferencePage{})
	p.text("#sum", "CPU time 0.00 s → 2.00 s +2.00 ±0.09")
}

// Nothing that the recorded system says becomes part of the page.
func TestDifferencePageIsEscaped(t *testing.T) {
	a, b := example(), example()
	for _, p := range []*profile.Profile{a, b} {
		p.Events[1].Name, p.Threads[0].Program, p.Threads[1].Program = hostile, hostile, hostile
	}
	m := mergedOf(t, [2]difference.Run{{Profile: a}, {Profile: b}})
	var out bytes.Buffer
	m.Runs[difference.A][0].Name, m.Runs[difference.B][0].Name = hostile, hostile
	o := DifferencePage{Title: hostile}
	if err := WriteDifference(&out, m, o); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d scripts", n)
	}
	if strings.Contains(page, "<img") || !utf8.ValidString(page) || strings.Contains(page, "http:") ||
		strings.Contains(page, " style=") ||
		strings.ContainsFunc(page, func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' }) {
		t.Error("an element, an address, a control character or an invalid byte of a name is in the page")
	}
	// Of two events, either can be shown.
	p := openDifference(t, m, DifferencePage{})
	p.text("#sum", "amount 1,000 → 1,000 +0 ±88 (+0.0 %)")
	p.choose("#event", "1")
	p.text("#sum", "amount 8 → 8 +0.0 ±8.7 (+0.0 %)")
}

// BenchmarkDifferencePage opens a page of two million samples of 100,000 distinct stacks. open and range are
// the times until the result is on the screen.
func BenchmarkDifferencePage(b *testing.B) {
	var both [2]difference.Run
	for side := range both {
		p := generated(100000)
		for i := range p.Samples {
			p.Samples[i].Count += uint64(i % 3 * side)
			p.Samples[i].Period = p.Samples[i].Count * 1e6
		}
		line := timeline(b, p, func(profile.Thread, int) time.Duration { return rand.N(time.Minute) })
		both[side] = difference.Run{Profile: p, Timeline: line}
	}
	file := filepath.Join(b.TempDir(), "page.html")
	for b.Loop() {
		m, err := difference.Merge(both[:1], both[1:], difference.Options{})
		if err != nil {
			b.Fatal(err)
		}
		var out bytes.Buffer
		if err := WriteDifference(&out, m, DifferencePage{}); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(out.Len())/1e6, "MB")
	}
	page := browser.Open(b, file, 1400, 900)
	page.Until("document.documentElement.dataset.ready")
	b.ReportMetric(browser.Eval[float64](page, "Number(document.documentElement.dataset.ready)"), "open-ms")
	b.ReportMetric(browser.Eval[float64](page, `(async () => {
		const frame = () => new Promise(requestAnimationFrame);
		const began = performance.now(), canvas = document.querySelector('#strip-A canvas');
		canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
		await frame();
		await frame();
		return performance.now() - began;
	})()`), "range-ms")
}
