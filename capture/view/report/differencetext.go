package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/profile/difference"
)

// WriteDifference prints what differs between two recordings, first what is more than chance.
func WriteDifference(w io.Writer, m *difference.Merged, o Difference) error {
	o.settle()
	o.Width = max(o.Width, narrowest)
	out := &printer{w: bufio.NewWriter(w), o: o.Options}
	var profiles []*profile.Profile
	for side, name := range []string{"A", "B"} {
		runs := m.Runs[side]
		if o.AdviceFor != nil {
			out.o.Advice = o.AdviceFor(runs[0].Profile)
		}
		if len(runs) > 1 {
			out.runs(name, runs)
		} else {
			out.o.File = runs[0].Name
			out.header(runs[0].Profile, runs[0].Sampled(), name)
		}
		for _, r := range runs {
			profiles = append(profiles, r.Profile)
		}
	}
	for side, name := range []string{"A", "B"} {
		if left := m.Left[side]; len(left) > 0 {
			out.field("note", human.Clean(fmt.Sprintf("only %s has samples of %s: left out", name,
				strings.Join(left, ", "))))
		}
	}
	for i := range m.Unnamed {
		if u := &m.Unnamed[i]; u.Much {
			out.field("names", human.Clean(u.String()))
		}
	}
	for i := range m.Pairs {
		c, err := newPairView(m, i, &o)
		if err != nil {
			return err
		}
		if len(m.Pairs) > 1 {
			out.line("")
			out.line(out.bold(human.Clean(c.pair.Name)))
		}
		out.sum(c)
		out.intervals(m)
		if err := out.differences(c); err != nil {
			return err
		}
	}
	if len(m.Pairs) == 0 {
		out.line("")
		out.line("The recordings have no samples of the same event.")
	}
	out.notes(profiles...)
	return out.w.Flush()
}

// runs is the header of several recordings of a side, with a line for each.
func (out *printer) runs(side string, runs []difference.Run) {
	out.field(side, fmt.Sprintf("%d recordings", len(runs)))
	out.command(runs[0].Profile)
	out.origin(runs[0].Profile, runs[0].Sampled())
	var profiles []*profile.Profile
	for i, r := range runs {
		profiles = append(profiles, r.Profile)
		count := human.Plural(r.Count(), "sample")
		out.field(fmt.Sprintf("%s%d", side, i+1), human.Clean(r.Name)+": "+taken(r.Profile, count))
	}
	out.field("stacks", stacks(profiles...))
	for _, line := range out.nameless(runs[0].Profile) {
		out.field("names", human.Clean(line))
	}
	for _, r := range runs {
		for _, note := range r.Notes().Recording {
			out.once("note", human.Clean(note))
		}
	}
}

// intervals is what the intervals have, and what they do not have.
func (out *printer) intervals(m *difference.Merged) {
	list := fmt.Sprintf("%.0f %% for each list as a whole", 100*difference.Confidence)
	runs := func(side int) int { return len(m.Runs[side]) }
	if m.Replicated() {
		out.field("± is", fmt.Sprintf("%s, with the spread between %d runs of A and %d of B; what may be chance is grey",
			list, runs(difference.A), runs(difference.B)))
		return
	}
	out.field("± is", list+", of the error of sampling alone; what is within it is grey")
	out.field("runs", fmt.Sprintf("%d of A, %d of B: the spread between runs is in no interval, so that nothing here is "+
		"called significant. Record each several times: unspool report A1,A2,… B1,B2,…",
		runs(difference.A), runs(difference.B)))
}

// beyond is what a row does that is more than its interval allows by chance.
func (c *pairView) beyond() string {
	if c.m.Replicated() {
		return "has changed by more than chance"
	}
	return "differs by more than the error of sampling"
}

// verb is what rows do that are beyond their intervals, in short.
func (c *pairView) verb() string {
	if c.m.Replicated() {
		return "has changed"
	}
	return "differs"
}

// sum returns how much all of an event's samples stand for on both sides.
func (out *printer) sum(c *pairView) {
	name, quantity := "CPU time", func(n float64) string { return fmt.Sprintf("%.2f s", n) }
	if !c.timed() {
		name, quantity = "amount", func(n float64) string { return human.Number(uint64(n)) }
	}
	a, b := c.pair.Whole[difference.A].Amount(), c.pair.Whole[difference.B].Amount()
	of := ""
	if len(c.m.Runs[difference.A])+len(c.m.Runs[difference.B]) > 2 {
		of = " a run"
	}
	text := fmt.Sprintf("%s → %s%s, %s", quantity(a), quantity(b), of, inUnit(&c.whole.Amount))
	if a > 0 {
		text += minus(fmt.Sprintf(" (%+.1f %%)", 100*(b-a)/a))
	}
	out.field(name, text)
}

// differences prints the tables and the tree of a pair.
func (out *printer) differences(c *pairView) error {
	if out.o.By != Function {
		return out.differentGroups(c)
	}
	t := functionTable(c.of[0].p)
	list, err := c.changes(t, everyThread)
	if err != nil {
		return err
	}
	if out.o.Top >= 0 {
		out.changeTable(c, t, list, "function", "image")
	}
	return out.differentTree(c)
}

// mostChance is how many rows are shown that may be chance, where no row is more than that.
const mostChance = 5

// changeTable prints the rows of a table that have changed, and how many have not. The second column is left
// out if it has no title.
func (out *printer) changeTable(c *pairView, t *table, list []change, title, second string) {
	n := slices.IndexFunc(list, func(x change) bool { return !c.changed(&x) })
	if n < 0 {
		n = len(list)
	}
	rows := list[:min(n, out.o.Top)]
	out.line("")
	if n == 0 {
		rows = list[:min(len(list), out.o.Top, mostChance)]
		out.line(fmt.Sprintf("No %s %s. The largest differences:", t.what, c.beyond()))
	} else if out.o.By == Function { // else it stands above all tables
		out.single(c)
	}
	if out.o.Width < narrow {
		second = ""
	}
	names, seconds := human.Columns(title), human.Columns(second)
	for _, x := range rows {
		names = max(names, human.Columns(human.Clean(t.rows[x.row].name)))
		if second != "" {
			seconds = max(seconds, human.Columns(human.Clean(t.rows[x.row].beside)))
		}
	}
	titles := out.titles(c, "self") + out.totalTitle(c)
	room := out.o.Width - len(titles)
	if second != "" {
		room -= 2
		seconds = min(seconds, max(out.o.Width/5, room-names))
		room -= seconds
	}
	names = max(8, out.fit(names, room))
	out.line(out.bold(strings.TrimRight(fmt.Sprintf("%s%-*s  %s", titles, names, out.cut(title, names),
		second), " ")))
	for i, x := range rows {
		if n > 0 && i > 0 && c.alone(&x) && !c.alone(&rows[i-1]) {
			out.line(strings.Repeat(" ", len(titles)) + out.dim(out.cut("by callees:", out.o.Width-len(titles))))
		}
		l := &t.rows[x.row]
		name := out.cut(human.Clean(l.name), names)
		line := out.columns(c, &x.self) + out.total(c, &x) + out.dimInlined(name)
		if second != "" {
			line += human.Blank(name, names) + "  " +
				out.dim(out.cut(human.Clean(l.beside), seconds))
		}
		out.line(line)
	}
	out.rest(c, list, len(rows), n, t.what)
}

// single says above rows of single runs what is not known of them.
func (out *printer) single(c *pairView) {
	if !c.m.Replicated() {
		out.line(out.cut("These differ by more than the error of sampling. Whether by more than two runs of the same "+
			"program is not known:", out.o.Width))
	}
}

// alone reports whether a row has changed by what it calls alone.
func (c *pairView) alone(x *change) bool {
	why, _ := c.why(x)
	return why == byCallees
}

// rest returns how many rows of a list are not shown: of the first n, which have changed, and of the others, by
// how much these differ at most.
func (out *printer) rest(c *pairView, list []change, shown, n int, what string) {
	say := func(text string) { out.line(out.dim(out.cut("… and "+text, out.o.Width))) }
	if n > shown {
		say(human.Plural(uint64(n-shown), "more "+what))
	}
	judged, most := 0, 0.0
	for i := range list[max(n, shown):] {
		if x := &list[max(n, shown)+i]; x.total.Judged() {
			judged++
			most = max(most, c.size(&x.self), c.size(&x.total))
		}
	}
	if judged == 0 {
		return
	}
	limit := fmt.Sprintf("%.1f points", 100*most)
	if c.o.Amounts && c.timed() {
		limit = fmt.Sprintf("%.2f s", most)
	} else if c.o.Amounts {
		limit = human.Number(uint64(most))
	}
	say(fmt.Sprintf("%s that may differ by chance, by up to %s", human.Plural(uint64(judged), what), limit))
}

// narrow is the width of lines that have no room for all columns: only what decides is shown.
const narrow = 100

// narrowest is for how many columns a difference is written at least.
const narrowest = 60

// The widths of the columns of a difference: in points, and in what the event counts.
const (
	widthOfPoints = len("total points")
	widthOfAmount = len("total amount") + 1
)

// titles are those of the columns of a change, as of "self" or, in the tree, of "".
func (out *printer) titles(c *pairView, of string) string {
	of = strings.TrimPrefix(of+" ", " ")
	text := fmt.Sprintf("%6s  %6s  ", of+"A", of+"B")
	if out.points(c) {
		text += fmt.Sprintf("%*s  ", widthOfPoints, of+"points")
	}
	if out.amounts(c) {
		text += fmt.Sprintf("%*s  ", widthOfAmount, of+c.unit())
	}
	return text
}

// unit is that of amounts, as a title has it.
func (c *pairView) unit() string {
	if c.timed() {
		return "CPU s"
	}
	return "amount"
}

func (out *printer) points(c *pairView) bool  { return out.o.Width >= narrow || !c.o.Amounts }
func (out *printer) amounts(c *pairView) bool { return out.o.Width >= narrow || c.o.Amounts }

// columns are a change in columns.
func (out *printer) columns(c *pairView, x *difference.Delta) string {
	text := out.shareOf(c, difference.A, x) + "  " + out.shareOf(c, difference.B, x) + "  "
	if out.points(c) {
		text += out.pointsOf(x)
	}
	if out.amounts(c) {
		text += out.amountOf(x)
	}
	return text
}

func (out *printer) pointsOf(x *difference.Delta) string {
	e := x.Share
	e.Low, e.Value, e.High = 100*e.Low, 100*e.Value, 100*e.High
	return out.cell(x, &e, widthOfPoints)
}

func (out *printer) amountOf(x *difference.Delta) string {
	return out.cell(x, &x.Amount, widthOfAmount)
}

// cell is a difference with its error, in so many columns.
func (out *printer) cell(x *difference.Delta, e *difference.Estimate, width int) string {
	text, tint := "·", ""
	if x.Samples != [2]uint64{} {
		text, tint = inUnit(e), tintOf(e)
	}
	return human.Blank(text, width) + out.paint(tint, text) + "  "
}

// total is a function's change with what it calls, in what decides.
func (out *printer) total(c *pairView, x *change) string {
	if c.o.Amounts {
		return out.amountOf(&x.total)
	}
	return out.pointsOf(&x.total)
}

func (out *printer) totalTitle(c *pairView) string {
	if c.o.Amounts {
		return fmt.Sprintf("%*s  ", widthOfAmount, "total "+c.unit())
	}
	return fmt.Sprintf("%*s  ", widthOfPoints, "total points")
}

func (out *printer) shareOf(c *pairView, side int, x *difference.Delta) string {
	if x.Samples[side] == 0 {
		return fmt.Sprintf("%6s", "·")
	}
	return fmt.Sprintf("%5.1f%%", 100*c.share(side, x))
}

// tintOf is red for more, blue for less, and dim for what may be chance. What one run a side shows has no colour.
func tintOf(e *difference.Estimate) string {
	switch {
	case !e.ExcludesZero():
		return dim
	case !e.Significant():
		return ""
	case e.Value > 0:
		return red
	}
	return blue
}

// inUnit is a difference with its error, to two digits of the error or one.
func inUnit(e *difference.Estimate) string {
	scale, prefix := prefixed(max(math.Abs(e.Value), e.Error()))
	value, err := e.Value/scale, e.Error()/scale
	digits := 0
	for _, least := range []float64{9.5, 0.95, 0.02} {
		if err >= least {
			break
		}
		digits++
	}
	return minus(fmt.Sprintf("%+.*f%s ±%.*f", digits, value, prefix, digits, err))
}

// prefixed is by how much a large number is divided, and the letter that says so.
func prefixed(n float64) (scale float64, letter string) {
	for _, p := range []struct {
		scale  float64
		letter string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}} {
		if n >= p.scale/10 {
			return p.scale, p.letter
		}
	}
	return 1, ""
}

// minus has a minus sign as wide as a plus sign.
func minus(s string) string { return strings.ReplaceAll(s, "-", "−") }
