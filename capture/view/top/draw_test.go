package top

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		samples, lost uint64
		cpus          int
		want          string
	}{
		{0, 0, 2, "0 samples in 1.0 s"},
		{150, 0, 2, "150 samples in 1.0 s, 1.5 of 2 CPUs busy"},
		{210, 1200, 2, "210 samples in 1.0 s, 2.0 of 2 CPUs busy, 1,200 lost"},
		{210, 0, 1, "210 samples in 1.0 s, 1.0 of 1 CPU busy"},
		{210, 0, 0, "210 samples in 1.0 s, 2.1 CPUs busy"},
	} {
		p := made(t, time.Second)
		if c.samples > 0 {
			p = made(t, time.Second, stack{compiler, []int32{mainFrame}, c.samples})
		}
		p.CPUs, p.LostSamples = c.cpus, c.lost
		if got := newSnapshot(p, time.Second).summary(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// escapes are the escape sequences that lines may have.
var escapes = regexp.MustCompile("\x1b\\[[0-9]+m")

// TestLinesFit draws everything that a screen can show, in terminals of all sizes: no line is too wide, there
// are not too many, and nothing of the recorded system comes through that is not printable.
func TestLinesFit(t *testing.T) {
	hostile := profile.Thread{PID: 9, TID: 9, Comm: "\x1b]0;漢字\x07\n", Program: "\x1b]0;漢字\x07\n"}
	p := made(t, time.Second,
		stack{compiler, []int32{mainFrame, parseFrame, parseFrame, parseFrame, copyFrame}, 70},
		stack{hostile, []int32{mainFrame, hostileFrame}, 20},
		stack{hostile, []int32{unknownFrame}, 10})
	p.Frames[parseFrame].Name = "std::漢字<" + strings.Repeat("int, ", 100) + "int>\x1b[2J"
	p.Images[1].Name = "lib" + strings.Repeat("漢", 50) + ".so"
	for _, colour := range []bool{false, true} {
		for _, typed := range []string{
			"", "j", "G", "?", "/漢", "/nothing\r", "p", "t", "t\r", "t\rG\r", "t/par\r", "t\r\x1b[B\r",
		} {
			s := newScreen(colour)
			s.show(newSnapshot(p, time.Second))
			s.pressAll(typed)
			for columns := range 130 {
				for _, height := range []int{1, 2, 3, 5, 40} {
					checkLines(t, s.lines(columns, height), columns, height, colour)
				}
			}
		}
	}
}

// TestKeyLine leaves keys out of the last line where it is narrow, but not the filter.
func TestKeyLine(t *testing.T) {
	const long = "a_function_with_a_long_name"
	for _, c := range []struct {
		typed   string
		columns int
		want    string
	}{
		{"", 80, "q quit  ? help  t tree  s sort (by self)  / filter  p pause  Enter open"},
		{"", 60, "q quit  ? help  t tree  s sort (by self)  / filter  p pause"},
		{"t", 60, "q quit  ? help  t table  s sort (by total)  / filter"},
		{"", 36, "q quit  ? help  t tree  / filter"},
		{"p", 36, "q quit  ? help  t tree  p go on"},
		{"pp", 36, "q quit  ? help  t tree  / filter"},
		{"/cc1\r", 60, "q quit  ? help  t tree  s sort (by self)  / filter (cc1)"},
		{"/cc1\r", 32, "q quit  ? help  / filter (cc1)"},
		{"/" + long + "\r", 60, "q quit  ? help  t tree  / filter (a_function_…ong_name)"},
		{"/" + long, 60, "filter: a_function_…ong_name█  (Enter: done, Esc: no filter)"},
	} {
		s := newScreen(false)
		s.show(newSnapshot(example(t), time.Second))
		s.pressAll(c.typed)
		lines := s.lines(c.columns, 15)
		if got := lines[14]; got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.typed, c.columns, got, c.want)
		}
	}
}

// TestHelpIsWhole has all of the help in a small terminal.
func TestHelpIsWhole(t *testing.T) {
	s := newScreen(false)
	s.pressAll("?")
	if got := strings.Join(s.lines(60, 15), "\n"); !strings.Contains(got, strings.Join(helpText, "\n")) {
		t.Errorf("not all of the help:\n%s", got)
	}
}

func checkLines(t *testing.T, lines []string, columns, height int, colour bool) {
	t.Helper()
	if len(lines) != height {
		t.Errorf("%d lines in a terminal of %d", len(lines), height)
	}
	for _, line := range lines {
		if !colour && strings.Contains(strings.NewReplacer(reverse, "", plain, "").Replace(line), "\x1b") {
			t.Errorf("colour in %q", line)
		}
		text := escapes.ReplaceAllString(line, "")
		if w := human.Columns(text); w > columns && columns > 20 {
			t.Errorf("%d columns in a terminal of %d: %q", w, columns, text)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("control characters in %q", text)
		}
	}
}

// TestColumnsAreAsWideAsWhatIsShown has a function with a long name, which is not always among the rows.
func TestColumnsAreAsWideAsWhatIsShown(t *testing.T) {
	p := example(t)
	p.Frames[hostileFrame].Name = strings.Repeat("long", 30)
	s := newScreen(false)
	s.show(newSnapshot(p, time.Second))
	for _, c := range []struct {
		typed string
		want  string
	}{
		{"", "  self   total  function  image      program"},
		{"G", "  self   total  function" + strings.Repeat(" ", 120-8) + "  image  program"},
		{"g", "  self   total  function  image      program"},
		{"/nothing\r", "  self   total  function  image  program"},
	} {
		s.pressAll(c.typed)
		if got := s.lines(200, 6)[1]; got != c.want {
			t.Errorf("after %q: %q, want %q", c.typed, got, c.want)
		}
	}
}

// TestCursorStaysInView moves through more rows than there is room for.
func TestCursorStaysInView(t *testing.T) {
	s := newScreen(false)
	s.show(newSnapshot(example(t), time.Second))
	for _, typed := range []string{"", "j", "jj", "G", "k", "g", "\x1b[6~", "\x1b[5~"} {
		s.pressAll(typed)
		lines := s.lines(80, 6) // 3 rows
		if n := strings.Count(strings.Join(lines, "\n"), reverse); n != 1 {
			t.Errorf("after %q %d rows are marked:\n%s", typed, n, strings.Join(lines, "\n"))
		}
	}
}

func TestPlain(t *testing.T) {
	var b strings.Builder
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := writePlain(&b, newSnapshot(example(t), time.Second), at); err != nil {
		t.Fatal(err)
	}
	want := `2026-01-02T03:04:05Z  100 samples in 1.0 s, 1.0 CPUs busy
  self   total  function   image      program
 50.0%   50.0%  memcpy     libc.so.6  server +1
 30.0%   50.0%  parse      app        cc1
 10.0%   10.0%  read       [kernel]   cc1
  6.0%    6.0%  [app]      app        server
  4.0%    4.0%  ?[31mred?  app        server
     ·   90.0%  main       app        cc1 +1

`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// A name in a pipe is whole.
func TestPlainIsWhole(t *testing.T) {
	var b strings.Builder
	p := example(t)
	long := strings.Repeat("std::vector", 30)
	p.Frames[mainFrame].Name = long
	if err := writePlain(&b, newSnapshot(p, time.Second), time.Now()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), " "+long+"  app") {
		t.Errorf("main is cut:\n%s", &b)
	}
}

// TestWindow has parts come in time and late.
func TestWindow(t *testing.T) {
	part := func(at time.Duration, count uint64) *profile.Profile {
		return made(t, at, stack{compiler, []int32{mainFrame}, count})
	}
	w := NewWindow(5 * time.Second)
	for _, c := range []struct {
		add   *profile.Profile
		now   time.Duration
		count uint64
		until time.Duration
	}{
		{part(100*time.Second, 1), 100 * time.Second, 1, 100 * time.Second},
		{part(103*time.Second, 10), 104 * time.Second, 11, 103 * time.Second},
		{part(105*time.Second, 100), 105 * time.Second, 111, 105 * time.Second},
		{part(106*time.Second, 1000), 106 * time.Second, 1110, 106 * time.Second}, // the first one is too old
		{part(104*time.Second, 5), 106 * time.Second, 1115, 106 * time.Second},    // late
		{nil, 107 * time.Second, 1115, 106 * time.Second},                         // nothing runs
		{nil, 120 * time.Second, 0, 119 * time.Second},
	} {
		if c.add != nil {
			w.Add(c.add)
		}
		p, from, until := w.Profile(uint64(c.now))
		if p.Count() != c.count || until != uint64(c.until) || from != uint64(c.until-5*time.Second) {
			t.Errorf("at %v: %d samples from %v to %v, want %d up to %v", c.now, p.Count(), time.Duration(from),
				time.Duration(until), c.count, c.until)
		}
		if err := p.CheckValid(); err != nil {
			t.Error(err)
		}
	}
	w.Add(part(121*time.Second, 7))
	if p, _, _ := w.Take(uint64(121 * time.Second)); p.Count() != 7 {
		t.Errorf("%d samples taken", p.Count())
	}
	if p, _, _ := w.Take(uint64(121 * time.Second)); p.Count() != 0 {
		t.Errorf("%d samples taken again", p.Count())
	}
}

// TestWindowIsBounded adds parts with more nodes than a SlidingWindow keeps: the oldest are dropped, and it says so.
func TestWindowIsBounded(t *testing.T) {
	w := NewWindow(time.Hour)
	for i := range 6 {
		p := made(t, time.Duration(i)*time.Second, stack{compiler, []int32{mainFrame}, 1})
		for range mostNodes / 4 {
			p.Nodes = append(p.Nodes, profile.Node{Parent: 0, Frame: parseFrame})
		}
		w.Add(p)
	}
	p, from, until := w.Profile(uint64(5 * time.Second))
	if p.Count() != 3 || from != uint64(2*time.Second) || until != uint64(5*time.Second) {
		t.Errorf("%d samples from %v to %v", p.Count(), time.Duration(from), time.Duration(until))
	}
}
