package compare_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/capture/symbols"
	"unspool/capture/verdict/compare"
	"unspool/testdata/browser"
)

// hostile is a name that a recorded system could give to its functions and files.
const hostile = "</script><script>document.title='owned'</script><img src=x " +
	"onerror=\"document.title='owned'\">&amp;\x00\x1b[31m\u202e\xff\xfe'\"`${1}]]>"

// Frames of example.
const (
	start = iota
	mainFn
	work
	hash
	hostileFn
	notCode
	syscall
)

// example has 1,000 samples of four classes.
func example() *compare.Comparison {
	base := profile.Profile{
		Images: []profile.Image{{Name: "program", Path: "/nowhere/program"},
			{Name: "libz.so.1", Path: "/nowhere/libz.so.1"}, {Name: "[kernel]"}, {Name: "[unmapped]"},
			{Name: hostile, Path: hostile}},
		Frames: []profile.Frame{
			start: {Name: "_start", Known: true}, mainFn: {Name: "main", Known: true}, work: {Name: "work", Known: true},
			hash:      {Name: "Hash", Image: 1, Known: true},
			hostileFn: {Name: hostile, Image: 4, Known: true},
			notCode:   {Name: compare.NotCode, Image: 3, Kind: profile.Unmapped},
			syscall:   {Name: "do_syscall_64", Image: 2, Kind: profile.Kernel},
		},
		Threads:  []profile.Thread{{Comm: "all", Program: "all"}},
		Events:   []profile.Event{{Name: "cpu-clock", Clock: true}},
		Problems: []string{"no names for " + hostile},
	}
	other := base
	dwarf, fp := profiletest.New(&base), profiletest.New(&other)
	c := &compare.Comparison{DWARF: dwarf.Profile, FP: fp.Profile, Samples: 1000, Others: 7,
		Checked: 900, Agreed: 891,
		Reach: map[int]uint64{2: 600, 7: 390, 20: 7}, Elsewhere: 3}
	for _, g := range []struct {
		group     compare.PairGroup
		dwarf, fp []int32
	}{
		{compare.PairGroup{Class: compare.Same, Parted: -1, Count: 400}, []int32{start, mainFn, work},
			[]int32{start, mainFn, work}},
		{compare.PairGroup{Class: compare.LeafCaller, Parted: 1, Missed: 1, Count: 300},
			[]int32{start, mainFn, work, hash}, []int32{start, mainFn, hash}},
		{compare.PairGroup{Class: compare.Astray, Parted: 1, Missed: 2, Count: 200}, []int32{start, mainFn, hostileFn},
			[]int32{notCode, hostileFn}},
		{compare.PairGroup{Class: compare.Early, Parted: 1, Missed: 2, Kernel: 1, Count: 100},
			[]int32{start, mainFn, work, syscall}, []int32{work, syscall}},
	} {
		g.group.DWARF = dwarf.AddComplete(g.group.Count, g.dwarf...)
		g.group.FP = fp.AddComplete(g.group.Count, g.fp...)
		g.group.End = profile.Complete
		c.Groups = append(c.Groups, g.group)
	}
	c.Judge()
	return c
}

var exampleCosts = compare.Costs{
	StackSize: 65528,
	Chain:     compare.Cost{Bytes: 120, Kernel: 1500 * time.Nanosecond, User: 400 * time.Nanosecond},
	Stack:     compare.Cost{Bytes: 65800, Kernel: 9200 * time.Nanosecond, User: 22340 * time.Nanosecond},
}

// resultOf computes a result.
func resultOf(t *testing.T, c *compare.Comparison, o compare.Options) *compare.Result {
	t.Helper()
	r, err := c.Result(symbols.New(symbols.Options{}), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shown is a page in a browser.
type shown struct {
	*testing.T
	*browser.Page
}

func written(t *testing.T, r *compare.Result, c *compare.Comparison, title string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.WritePage(&b, c, title); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func show(t *testing.T, page []byte, width int) shown {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, page, 0o644); err != nil {
		t.Fatal(err)
	}
	p := shown{t, browser.Open(t, file, width, 900)}
	p.Until("document.documentElement.dataset.ready")
	t.Cleanup(func() {
		if c := p.Complaints(); len(c) > 0 {
			t.Errorf("the page complains: %q", c)
		}
		if n := browser.Eval[int](p.Page,
			"document.querySelectorAll('img, iframe, [onerror], script[src]').length"); n > 0 {
			t.Errorf("%d elements that nobody wrote", n)
		}
		if title := browser.Eval[string](p.Page, "document.title"); title == "owned" {
			t.Error("a name has become a script")
		}
	})
	return p
}

// rows are the texts of the cells of a section's table.
func (p shown) rows(section string) [][]string {
	p.Helper()
	return browser.Eval[[][]string](p.Page,
		`[...document.querySelectorAll('#`+section+` tbody tr')]`+
			`.map(r => [...r.cells].map(c => c.textContent.trim()))`)
}

// frame is the position in the window of a frame in one of the graphs, after the page has stopped moving.
func (p shown) frame(side string, row int, share float64) (x, y float64) {
	p.Helper()
	p.Page.Run("document.querySelector('#graphs').scrollIntoView()")
	left, top, width := p.Box("#" + side + " .graph")
	return left + width*share, top + 19*(float64(row)+0.5)
}

// same compares a table with the expected one.
func (p shown) same(section string, want [][]string) {
	p.Helper()
	have := p.rows(section)
	if len(have) != len(want) {
		p.Errorf("%s: %d rows, not %d", section, len(have), len(want))
		return
	}
	for i := range want {
		if !slices.Equal(have[i], want[i]) {
			p.Errorf("%s, row %d:\nhave %q\nwant %q", section, i, have[i], want[i])
		}
	}
}

// percentOf is a share as the page writes it.
func percentOf(share float64) string {
	switch {
	case share == 0:
		return "·"
	case share < 0.0005:
		return "<0.1\u00a0%"
	case share < 1 && share >= 0.9995:
		return fmt.Sprintf("%.3f\u00a0%%", 100*share)
	}
	return fmt.Sprintf("%.1f\u00a0%%", 100*share)
}

func pointsOf(difference float64) string {
	if difference < 0.0005 && difference > -0.0005 {
		return "0.0"
	}
	return strings.Replace(fmt.Sprintf("%+.1f", 100*difference), "-", "−", 1)
}

// named is a name with the small text beside it.
func named(name, beside string) string {
	return strings.TrimSpace(human.Printable(name) + " " + human.Printable(beside))
}

// tables compares all numbers of the page with those of the result.
func (p shown) tables(r *compare.Result) {
	p.Helper()
	classes := browser.Eval[map[string][]string](p.Page,
		`Object.fromEntries([...document.querySelectorAll('.class')].map(e => [e.dataset.key,
		['words', 'share', 'stacks', 'lost'].map(c => e.querySelector('.' + c).textContent)]))`)
	if len(classes) != compare.NumClasses {
		p.Errorf("%d classes", len(classes))
	}
	for key, c := range r.Classes {
		lost := "·"
		if c.MeanLost > 0 {
			lost = fmt.Sprintf("%.1f", c.MeanLost)
		}
		want := []string{c.Words, percentOf(c.Share), percentOf(float64(c.Stacks) / float64(max(r.Stacks, 1))),
			lost}
		if !slices.Equal(classes[key], want) {
			p.Errorf("%s: %q, not %q", key, classes[key], want)
		}
		if c.Example != nil {
			p.example(key, c.Example)
		}
	}
	p.Shows("#verdict", human.Printable(r.Verdict.Sentence))
	for key, rows := range map[string][]compare.RowResult{
		"program": r.Programs, "comm": r.Comms, "image": r.Images, "package": r.Packages,
	} {
		want := [][]string{}
		for i := range rows {
			row, lost, blame := &rows[i], "·", ""
			if row.Lost > 0 {
				lost = fmt.Sprintf("%.1f", row.Lost)
			}
			if row.Blame != "" {
				blame = human.Printable(row.Blame) + " " + percentOf(row.BlameShare)
			}
			want = append(want, []string{human.Printable(row.Name), percentOf(row.Share), row.Usable.Text(),
				row.False.Text(), lost, blame})
		}
		p.same("by-"+key, want)
	}
	want := [][]string{}
	for _, b := range r.BlameImages {
		want = append(want, []string{named(b.Image, b.Package), b.Words, "", percentOf(b.Share)})
	}
	p.same("blame-images", want)
	want = [][]string{}
	for _, b := range r.BlameFunctions {
		want = append(want, []string{named(b.Function, b.Image), b.Words, "", percentOf(b.Share)})
	}
	p.same("blame-functions", want)
	want = [][]string{}
	for _, s := range r.Shares {
		want = append(want, []string{named(s.Function, s.Image), percentOf(s.DWARF), percentOf(s.FP), "",
			pointsOf(s.FP - s.DWARF)})
	}
	p.same("differ", want)
	want = [][]string{}
	for _, c := range r.WrongCallers {
		want = append(want, []string{named(c.Caller, c.Image), "→ " + human.Printable(c.Callee),
			percentOf(c.Share)})
	}
	p.same("wrong-callers", want)
	want = [][]string{}
	for _, s := range r.StackSizes {
		want = append(want, []string{fmt.Sprintf("%d KiB", s.Bytes>>10), "", percentOf(s.Complete)})
	}
	p.same("sizes", want)
	want = [][]string{}
	if c := r.Cost; c != nil {
		row := func(what string, c compare.SampleCost) []string {
			return []string{what, fmt.Sprintf("%.0f", c.Bytes), fmt.Sprintf("%.1f", c.Kernel),
				fmt.Sprintf("%.1f", c.User)}
		}
		want = append(want, row("callchain by frame pointers", c.Chain),
			row(fmt.Sprintf("stack, %d bytes, and unwinding", c.StackSize), c.Stack))
	}
	p.same("cost", want)
	want = [][]string{}
	for _, f := range r.Lint {
		function, address := "", ""
		if f.Function != "" {
			function = human.Printable(f.Function)
			if f.Offset != 0 {
				function += fmt.Sprintf("%+#x", f.Offset)
			}
		}
		if f.Addr != 0 {
			address = fmt.Sprintf("%#x", f.Addr)
		}
		want = append(want, []string{named(f.Image, f.Package), function, address, f.Words, percentOf(f.Share)})
	}
	p.same("lint", want)
}

// example compares the stacks of a class's example with those of the result.
func (p shown) example(key string, e *compare.Example) {
	p.Helper()
	script := func(column int) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.class[data-key=%s] tbody tr')].map(r => `+
			`r.cells[%d].textContent)`, key, column)
	}
	for column, want := range [][]string{1: e.DWARF, 2: e.FP} {
		var have, names []string
		for _, name := range browser.Eval[[]string](p.Page, script(column)) {
			if column > 0 && name != "" {
				have = append(have, name)
			}
		}
		for _, name := range want {
			names = append(names, human.Printable(name))
		}
		if !slices.Equal(have, names) {
			p.Errorf("the example of %s: %q, not %q", key, have, names)
		}
	}
	marked := slices.Index(browser.Eval[[]string](p.Page, script(0)), "▸")
	if marked < 0 != (e.Parted < 0) {
		p.Errorf("the example of %s: parted at %d, and row %d is marked", key, e.Parted, marked)
	} else if marked >= 0 && e.Parted < len(e.DWARF) {
		name := browser.Eval[[]string](p.Page, script(1))[marked]
		if name != human.Printable(e.DWARF[e.Parted]) {
			p.Errorf("the example of %s: %q is marked, not %q", key, name, e.DWARF[e.Parted])
		}
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	c := example()
	result := resultOf(t, c, compare.Options{StackSize: 65528, Costs: &exampleCosts})
	p := show(t, written(t, result, c, hostile), 1400)
	p.Shows("h1", human.Printable(hostile))
	p.tables(result)
	tiles := browser.Eval[[]string](p.Page, "[...document.querySelectorAll('#tiles b')].map(e => e.textContent)")
	want := []string{"40.0\u00a0%", "30.0\u00a0%", "100.0\u00a0%", "7 KiB", "99.0\u00a0%", "4"}
	if !slices.Equal(tiles, want) {
		t.Errorf("tiles: %q", tiles)
	}
	// 2.5758 standard deviations of Wilson's interval for 400 of 1,000 samples.
	p.Shows("#tiles .usable .interval", " (36 to 44.1\u00a0%)")
	p.sortsRows()
	p.Shows("#elsewhere", "0.3\u00a0%")
	p.Click(".class[data-key=skips_leaf_caller] summary")
	p.Until("document.querySelector('.class[data-key=skips_leaf_caller] .levels').clientHeight > 60")
	p.Shows(".class[data-key=skips_leaf_caller] .parted", "▸work")

	// The numbers of the frame under the pointer, on both sides.
	p.MoveTo(p.frame("left", 3, 0.3))
	p.Shows("#tip .name", "work")
	p.Shows("#tip .place", "user · program")
	p.Shows("#tip table", "DWARFFPpointsin this place80.0 %40.0 %−40.0function, total80.0 %50.0 "+
		"%−30.0function, self40.0 %40.0 %0.0")
	p.MoveTo(p.frame("right", 1, 0.9))
	p.Shows("#tip .name", compare.NotCode)
	p.Shows("#tip table", "DWARFFPpointsin this place–20.0 %function, total0 %20.0 %+20.0function, self0 "+
		"%0 %0.0")

	// Search: both sides, and from a table.
	p.PressCtrl("f")
	p.Press("wor")
	p.Shows("#found", "1 function")
	p.Shows("#left .caption .found", "80.0 % matched")
	p.Shows("#right .caption .found", "50.0 % matched")
	p.Press(browser.Escape)
	p.Shows("#left .caption .found", "")
	p.Press("nothing like it")
	p.Shows("#found", "no match")
	p.Press(browser.Escape)
	p.Click("#wrong-callers tbody tr:first-child td:nth-child(2) .fn")
	p.Until("document.querySelector('#graphs').getBoundingClientRect().top < 50")
	p.Shows("#left .caption .found", "30.0 % matched")
	p.Press(browser.Escape)

	// Zoom: the same path on the other side; the function with other callers; a function that is not there.
	p.ClickAt(p.frame("left", 3, 0.3))
	p.Shows("#left .crumbs", "all_startmainwork")
	p.Shows("#right .crumbs", "all_startmainwork")
	p.Press(browser.Escape)
	p.Shows("#right .crumbs", "all")
	p.ClickAt(p.frame("left", 4, 0.1))
	p.Shows("#left .crumbs", "all_startmainworkHash")
	p.Shows("#right .crumbs", "all_startmainHash")
	p.Shows("#right .note", "called by another")
	p.Click("#reset")
	p.Shows("#left .crumbs", "all")
	p.ClickAt(p.frame("right", 1, 0.9))
	p.Shows("#right .crumbs", "allnot code")
	p.Shows("#left .crumbs", "all")
	p.Shows("#left .note", "not on these stacks")
	p.Press(browser.Escape)
	p.Shows("#left .note", "")
	p.Press(browser.Escape)

	// Keys: down to the heaviest child, to the next sibling, the colours, leaf first.
	p.ClickAt(p.frame("left", 1, 0.5))
	p.Press(browser.ArrowDown)
	p.Press(browser.ArrowDown)
	p.Shows("#detail .name", "work")
	p.Press("x")
	p.Shows("#detail .figures", "function, total   DWARF 80.0 %   FP 50.0 %   −30.0 points")
	if active := browser.Eval[bool](p.Page,
		"document.activeElement === document.querySelector('#right canvas')"); !active {
		t.Error("x does not go across")
	}
	p.Press("c")
	p.Until("document.querySelector('#scale').hidden && !document.querySelector('#legend').hidden")
	legend := "[...document.querySelectorAll('#legend li:not([hidden]), #hatched:not([hidden])')].map(e => " +
		"e.textContent).join(', ')"
	if have := browser.Eval[string](p.Page, legend); have != "user, kernel, not code" {
		t.Errorf("legend: %s", have)
	}
	p.Press("c")
	p.Press("r")
	p.MoveTo(p.frame("left", 1, 0.1))
	p.Shows("#tip .name", "work")
	p.Press("?")
	p.Until("document.querySelector('#help').open")
}

// sortsRows shows the rows by image and sorts them by what they lose, and the other way round.
func (p shown) sortsRows() {
	p.Helper()
	visible := "[...document.querySelectorAll('table.by:not([hidden])')].map(e => e.id).join()"
	if have := browser.Eval[string](p.Page, visible); have != "by-program" {
		p.Errorf("%s is shown", have)
	}
	p.Click("#by input[value=image] + span")
	p.Until(visible + " === 'by-image'")
	first := func(want string) {
		p.Helper()
		p.Until("document.querySelector('#by-image tbody td').textContent === '" + want + "'")
	}
	first("program")
	p.Click("#by-image th:nth-child(4) button")
	first("libz.so.1") // 300 of 300 are false
	p.Click("#by-image th:nth-child(4) button")
	first("program") // 0 of 500
}

// colour is the colour of a frame, beside its text.
func (p shown) colour(side string, row int, share float64) string {
	p.Helper()
	return browser.Eval[string](p.Page, fmt.Sprintf(`(() => {
		const canvas = document.querySelector('#%s canvas'),
			c = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
		c.drawImage(canvas, 0, 0);
		return '#' + [...c.getImageData(canvas.width * %f - 3, 19 * %d + 3, 1, 1).data.slice(0, 3)]
			.map(v => v.toString(16).padStart(2, '0')).join('');
	})()`, side, share, row))
}

// A function has the same colour on both sides: that of its difference.
func TestPageColours(t *testing.T) {
	t.Parallel()
	c := example()
	result := resultOf(t, c, compare.Options{StackSize: 65528})
	p := show(t, written(t, result, c, "colours"), 900)
	for _, dark := range []bool{false, true} {
		p.Dark(dark)
		p.frame("left", 0, 0) // waits until the page has stopped moving
		scale := browser.Eval[[]string](p.Page,
			`Array.from({length: 11}, (_, i) => `+
				`getComputedStyle(document.documentElement).getPropertyValue('--diff' + i).trim())`)
		for _, f := range []struct {
			side string
			row  int
			at   float64
			want int
		}{
			{"left", 2, 0.5, 0},  // main, −30
			{"right", 2, 0.5, 0}, // the same
			{"left", 4, 0.2, 5},  // Hash, 0
			{"right", 3, 0.6, 5}, // the same
		} {
			if have := p.colour(f.side, f.row, f.at); have != scale[f.want] {
				t.Errorf("dark %v: %s, row %d at %.1f is %s, not %s", dark, f.side, f.row, f.at, have, scale[f.want])
			}
		}
	}
	if below := browser.Eval[bool](p.Page,
		"document.querySelector('#left').getBoundingClientRect().bottom <= "+
			"document.querySelector('#right').getBoundingClientRect().top"); !below {
		t.Error("in a narrow window the graphs are not below each other")
	}
}

// Nothing that the recorded system says becomes part of the page.
func TestPageIsEscaped(t *testing.T) {
	t.Parallel()
	c := example()
	page := string(written(t, resultOf(t, c, compare.Options{StackSize: 65528, Costs: &exampleCosts}), c, hostile))
	if n := strings.Count(page, "<script"); n != 3 {
		t.Errorf("%d scripts", n)
	}
	if strings.Contains(page, "<img") || !utf8.ValidString(page) ||
		strings.ContainsFunc(page, func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' }) {
		t.Error("an element, a control character or an invalid byte of a name is in the page")
	}
	if strings.Contains(page, "http:") || strings.Contains(page, "https:") || strings.Contains(page, " style=") {
		t.Error("the page names an address, or has a style that its policy forbids")
	}
}

// timed has the samples of example in two programs and in ten seconds: in the first four of them one stack is
// lost at its leaf's caller (300) and one is the same (100 of "tool"), then come the rest, of "program" but
// for what is astray.
func timed(t *testing.T) *compare.Comparison {
	t.Helper()
	c := example()
	times, err := profile.NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { times.Close() })
	c.Tasks, c.Times = []compare.TaskName{{"program", "program"}, {"tool", "worker"}}, times
	const start = 7e12
	for _, side := range []*profile.Profile{c.DWARF, c.FP} {
		side.First, side.Duration = start, 10*time.Second
	}
	add := func(program, group int32, n int, from, to time.Duration) {
		for i := range n {
			at := from + (to-from)*time.Duration(i)/time.Duration(n)
			one := profile.Sample{Thread: program, Node: group, CPU: -1, Period: 1}
			if err := times.Add(start+uint64(at), &one); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(0, 1, 300, 0, 4*time.Second)
	add(1, 0, 100, 0, 4*time.Second)
	add(0, 0, 300, 4010*time.Millisecond, 10*time.Second)
	add(1, 2, 200, 4010*time.Millisecond, 10*time.Second)
	add(0, 3, 99, 4010*time.Millisecond, 10*time.Second)
	add(0, 3, 1, 10*time.Second, 10*time.Second)
	return c
}

// A range of time and a program narrow both graphs and the tables that can follow.
func TestPageIsNarrowed(t *testing.T) {
	t.Parallel()
	c := timed(t)
	result := resultOf(t, c, compare.Options{StackSize: 65528, Costs: &exampleCosts})
	p := show(t, written(t, result, c, "narrowed"), 1400)
	p.tables(result)
	strip := browser.Eval[[]float64](p.Page, `(() => {
		const b = document.querySelector('#strip canvas').getBoundingClientRect();
		return [b.left, b.top, b.width];
	})()`)
	class := func(key string, want ...string) {
		t.Helper()
		have := browser.Eval[[]string](p.Page, `['share', 'stacks', 'lost'].map(c =>
			document.querySelector('.class[data-key=`+key+`] .' + c).textContent)`)
		if !slices.Equal(have, want) {
			t.Errorf("%s: %q, want %q", key, have, want)
		}
	}
	p.Shows("#strip .programs", "program70.0 %tool30.0 %")
	p.Shows("#strip .when", "10 s in bars of 205 ms · draw a range to see its part, exact to 9.77 ms")

	// The first four seconds: 400 samples, of two stacks.
	p.Drag(strip[0]+0.5, strip[1]+20, strip[0]+0.4*strip[2], strip[1]+20)
	p.Shows("#strip .programs", "program75.0 %tool25.0 %")
	p.Shows("#samples", "400")
	class("same", "25.0\u00a0%", "50.0\u00a0%", "·")
	class("skips_leaf_caller", "75.0\u00a0%", "50.0\u00a0%", "1.0")
	class("goes_astray", "·", "·", "·")
	tiles := "[...document.querySelectorAll('#tiles b[id]')].map(e => e.textContent)"
	have := browser.Eval[[]string](p.Page, tiles)
	if !slices.Equal(have, []string{"25.0\u00a0%", "75.0\u00a0%", "100.0\u00a0%"}) {
		t.Errorf("tiles: %q", have)
	}
	p.Shows("#tiles .usable .interval", "")
	p.same("blame-functions", [][]string{
		{"Hash libz.so.1", "unexplained", "", "100.0\u00a0%"},
		{named(hostile, hostile), "unexplained", "", "·"}, {"work program", "unexplained", "", "·"},
	})
	p.same("blame-images", [][]string{
		{"libz.so.1", "unexplained", "", "100.0\u00a0%"},
		{named(hostile, ""), "unexplained", "", "·"}, {"program", "unexplained", "", "·"},
	})
	p.same("wrong-callers", [][]string{{"main program", "→ Hash", "75.0\u00a0%"}})
	p.same("differ", [][]string{{"work program", "100.0\u00a0%", "25.0\u00a0%", "", "−75.0"}})
	p.Shows("#left .count", "400 samples")
	p.Shows("#right .count", "400 samples")
	p.Shows("#narrowed output", "0 s to 4 s")
	p.MoveTo(p.frame("left", 3, 0.3))
	p.Shows("#tip table", "DWARFFPpointsin this place100 %25.0 %−75.0function, total100 %25.0 "+
		"%−75.0function, self25.0 %25.0 %0.0")
	p.MoveTo(5, 5)

	// One program in this time, then in all of it; the button shows all again.
	p.Page.Run("scrollTo(0, 0)")
	p.Click("[title='Show only tool']")
	p.Shows("#narrowed output", "0 s to 4 s · tool")
	class("same", "100.0\u00a0%", "100.0\u00a0%", "·")
	p.Shows("#usable", "100.0\u00a0%")
	p.Shows("#false", "0\u00a0%")
	p.same("differ", [][]string{})
	p.Press(browser.Escape)
	p.Shows("#narrowed output", "tool")
	p.Shows("#samples", "300")
	class("goes_astray", "66.7\u00a0%", "50.0\u00a0%", "2.0")
	p.Click("#narrowed > button") // no text of the style
	p.Until("document.querySelector('#narrowed').hidden && !document.querySelector('.narrowed')")
	p.Shows("#left .count", "1,000 samples")
	p.tables(result)
}

// The page of a real recording has the numbers of its result.
func TestPageOfAProgram(t *testing.T) {
	c := run(t, buildProgram(t, "causes", withFP...), "p")
	t.Parallel() // after the recording, other tests may run
	result := resultOf(t, c.Comparison, compare.Options{StackSize: 65528})
	p := show(t, written(t, result, c.Comparison, "causes"), 1400)
	p.tables(result)
	p.Shows("#strip .programs", "causes100 %")
	p.Shows("#left .count", human.Number(c.Samples)+" samples")
	p.PressCtrl("f")
	p.Press("passing")
	var of [2]uint64
	for i, side := range []*profile.Profile{c.DWARF, c.FP} {
		for _, s := range side.Samples {
			for n := s.Node; n > 0; n = side.Nodes[n].Parent {
				if side.Frames[side.Nodes[n].Frame].Name == "passing" {
					of[i] += s.Count
					break
				}
			}
		}
	}
	if of[0] == 0 {
		t.Error("passing is on no stack")
	}
	for i, side := range []string{"left", "right"} {
		have := browser.Eval[string](p.Page, "document.querySelector('#"+side+" .caption .found').textContent")
		if want := 100 * float64(of[i]) / float64(c.Samples); !strings.HasPrefix(have, fmt.Sprintf("%.1f", want)) &&
			!strings.HasPrefix(have, fmt.Sprintf("%.2f", want)) &&
			!strings.HasPrefix(have, fmt.Sprintf("%.0f ", want)) {
			t.Errorf("%s: %s, not %.2f %%", side, have, want)
		}
	}
}

func TestPageOfNothing(t *testing.T) {
	t.Parallel()
	empty := profiletest.New(&profile.Profile{}).Profile
	c := &compare.Comparison{DWARF: empty, FP: empty}
	c.Judge()
	r := resultOf(t, c, compare.Options{StackSize: 65528})
	p := show(t, written(t, r, c, "nothing"), 1400)
	p.MoveTo(p.frame("left", 0, 0.5))
	p.Shows("#tip table", "DWARFFPpointsin this place0 %0 %0.0")
	c.FP = &profile.Profile{}
	if err := r.WritePage(io.Discard, c, ""); err == nil {
		t.Error("a profile that is not valid is written")
	}
}
