package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unspool/capture/output/human"
	"unspool/capture/view/report"
)

// Select Graphic Rendition (ECMA-48).
const (
	bold    = "\x1b[1m"
	dim     = "\x1b[2m"
	reverse = "\x1b[7m"
	plain   = "\x1b[0m"
)

// A palette paints text, or leaves it as it is.
type palette bool

func (p palette) paint(code, text string) string {
	if !bool(p) || code == "" || text == "" {
		return text
	}
	return code + text + plain
}

// share is a percentage of all samples, six columns wide, as report prints it.
func (p palette) share(n, all uint64) string {
	if n == 0 || all == 0 {
		return "     ·"
	}
	percent := 100 * float64(n) / float64(all)
	return p.paint(report.Heat(percent), fmt.Sprintf("%5.1f%%", percent))
}

// Widths of columns.
const (
	sharesWidth  = len("100.0%  100.0%  ")
	leastName    = 20
	mostPrograms = 20
)

// helpText is what the keys do. It fits into 60 columns, and into 15 lines with those around it.
var helpText = []string{
	"  ↑ ↓        move, as PgUp, PgDn, Home and End do",
	"  t, Tab     the table of functions, or the tree of calls",
	"  Enter      open or close a node; in the table: its callers",
	"  → ←        open a node; close it, or go to the one above",
	"  s          sort by self, by total or by name",
	"  /          filter by function, image, program; Esc ends it",
	"  p, Space   pause, go on",
	"  q, Ctrl-C  quit",
	"",
	"  self: samples in the function; total: with what it calls",
	"  Shares are of all samples in the time that line 1 tells.",
}

// lines returns what the screen shows, for a terminal of this size: as many lines as it has at most, none
// wider.
func (s *screen) lines(columns, height int) []string {
	p := palette(s.colour)
	lines := []string{p.paint(bold, human.Shorten(s.header(), columns))}
	room := max(1, height-3)
	s.page = room
	if s.help {
		lines = append(lines, "")
		for _, text := range helpText[:min(len(helpText), room)] {
			lines = append(lines, human.Shorten(text, columns))
		}
	} else {
		titles, list := s.list(columns, room)
		lines = append(append(lines, p.paint(bold, human.Shorten(titles, columns))), list...)
	}
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, p.paint(dim, human.Shorten(s.footer(columns), columns)))
	return lines[:min(len(lines), height)]
}

// header sums the snapshot up.
func (s *screen) header() string {
	text := s.snapshot.summary()
	if s.paused {
		text += "  PAUSED"
	}
	return text
}

// summary returns how much the snapshot is of.
func (n *snapshot) summary() string {
	text := fmt.Sprintf("%s in %s", human.Plural(n.samples, "sample"), human.Duration(n.span))
	switch {
	case n.busy == 0:
	case n.cpus == 0:
		text += fmt.Sprintf(", %.1f CPUs busy", n.busy)
	default: // samples at the edges make it seem more than there are
		text += fmt.Sprintf(", %.1f of %s busy", min(n.busy, float64(n.cpus)), human.Plural(uint64(n.cpus), "CPU"))
	}
	if n.lost > 0 {
		return text + fmt.Sprintf(", %s lost", human.Number(n.lost))
	}
	return text
}

// footer tells the keys, or shows the filter that is being typed.
func (s *screen) footer(columns int) string {
	if s.typing {
		const before, after = "filter: ", "█  (Enter: done, Esc: no filter)"
		return before + human.Shorten(human.Clean(s.filter), columns-human.Columns(before)-human.Columns(after)) + after
	}
	keys := s.keyTexts(columns)
	for human.Columns(join(keys)) > columns {
		least := slices.MinFunc(keys, func(a, b keyText) int { return cmp.Compare(a.need, b.need) })
		if least.need == always {
			break
		}
		keys = slices.DeleteFunc(keys, func(k keyText) bool { return k == least })
	}
	return join(keys)
}

// A keyText says what a key does. Where there is no room for all, that which is needed least is left out.
type keyText struct {
	text string
	need int
}

const always = 9 // needed in any case

func (s *screen) keyTexts(columns int) []keyText {
	view, pause, filter := keyText{"t tree", 4}, keyText{"p pause", 1}, keyText{"/ filter", 3}
	if s.tree {
		view.text = "t table"
	}
	if s.paused {
		pause = keyText{"p go on", 5}
	}
	if s.filter != "" { // it hides rows
		filter = keyText{"/ filter (" + human.Shorten(human.Clean(s.filter), columns/3) + ")", always}
	}
	return []keyText{
		{"q quit", always}, {"? help", always}, view, {"s sort (by " + s.order().String() + ")", 2}, filter, pause,
		{"Enter open", 0},
	}
}

func join(keys []keyText) string {
	var texts []string
	for _, k := range keys {
		texts = append(texts, k.text)
	}
	return strings.Join(texts, "  ")
}

// list returns the rows around the cursor, and the titles of their columns.
func (s *screen) list(columns, room int) (titles string, lines []string) {
	s.first = max(0, min(s.first, s.cursor, len(s.rows)-room))
	if s.cursor >= s.first+room {
		s.first = s.cursor - room + 1
	}
	shown := s.rows[s.first:min(len(s.rows), s.first+room)]
	var w widths
	if s.tree {
		titles = " total    self  program, then the tree of calls"
	} else {
		var functions []int32
		for _, r := range shown {
			functions = append(functions, r.index)
		}
		w = s.snapshot.widths(functions, columns)
		titles = w.titles()
	}
	if len(shown) == 0 {
		return titles, []string{human.Shorten(s.nothing(), columns)}
	}
	for i, r := range shown {
		p, selected := palette(s.colour), s.first+i == s.cursor
		if selected {
			p = false // nothing but the cursor's colour
		}
		line := ""
		if s.tree {
			line = p.treeLine(s, r, columns)
		} else {
			line = p.tableLine(s.snapshot, r.index, w)
		}
		if selected {
			line = reverse + human.Cell(line, columns) + plain
		}
		lines = append(lines, line)
	}
	return titles, lines
}

// nothing returns why there are no rows.
func (s *screen) nothing() string {
	if s.filter != "" {
		return fmt.Sprintf("  nothing in these samples has %q in its name", human.Clean(s.filter))
	}
	return "  nothing runs, or the first samples are still to come"
}

// widths are those of the columns of the table behind the shares; 0 for a column that there is no room for.
type widths struct{ name, image, programs int }

// widths fits the columns of the table into a line: they are as wide as what these functions have in them.
func (n *snapshot) widths(functions []int32, columns int) widths {
	w := widths{name: len("function"), image: len("image"), programs: len("program")}
	for _, i := range functions {
		f := &n.functions[i]
		w.name, w.image = max(w.name, human.Columns(f.name)), max(w.image, human.Columns(f.image))
		w.programs = max(w.programs, human.Columns(f.users()))
	}
	room := columns - sharesWidth
	w.programs = min(w.programs, mostPrograms, room/4)
	w.image = min(w.image, room/4)
	if room < 3*leastName {
		w.programs, w.image = 0, 0
	}
	w.name = min(w.name, room-w.image-w.programs-2*len("  "))
	if w.image == 0 {
		w.name = room
	}
	return w
}

func (w widths) titles() string {
	return "  self   total  " + w.line(palette(false), "function", "image", "program")
}

// line returns the cells of a line.
func (w widths) line(p palette, name, image, programs string) string {
	if w.image == 0 {
		return human.Shorten(name, w.name)
	}
	return human.Cell(name, w.name) + "  " + p.paint(dim, human.Cell(image, w.image)) + "  " +
		human.Shorten(programs, w.programs)
}

// users are the programs that have the function on their stacks: the first one and how many more.
func (f *function) users() string {
	switch n := len(f.programs); n {
	case 0:
		return ""
	case 1:
		return f.programs[0]
	default:
		return fmt.Sprintf("%s +%d", f.programs[0], n-1)
	}
}

func (p palette) tableLine(n *snapshot, index int32, w widths) string {
	f := &n.functions[index]
	return p.share(f.self, n.samples) + "  " + p.share(f.total, n.samples) + "  " +
		strings.TrimRight(w.line(p, f.name, f.image, f.users()), " ")
}

// treeLine is the line of a node: its mark reports whether there is something below it, and whether that is
// shown.
func (p palette) treeLine(s *screen, r row, columns int) string {
	n := &s.snapshot.nodes[r.index]
	mark := "  "
	switch {
	case len(n.children) == 0:
	case s.isOpen(r.index):
		mark = "▾ "
	default:
		mark = "▸ "
	}
	room := columns - sharesWidth - human.Columns(mark)
	indent := max(0, min(2*r.depth, room/2))
	room -= indent
	name, image := n.name, ""
	if n.other {
		image = human.Shorten(n.image, room/3)
		room -= human.Columns(image) + 2
	}
	if n.parent == 0 {
		name = p.paint(bold, human.Shorten(name, room))
	} else {
		name = human.Shorten(name, room)
	}
	line := p.share(n.total, s.snapshot.samples) + "  " + p.share(n.self, s.snapshot.samples) + "  " +
		strings.Repeat(" ", indent) + mark + name
	if image != "" {
		line += "  " + p.paint(dim, image)
	}
	return line
}
