package report

import (
	"fmt"
	"slices"
	"strings"
	"unspool/capture/output/human"
)

// functions prints the table of functions.
func (out *printer) functions(v *view) {
	if out.o.Top < 0 {
		return
	}
	t := functionTable(v.p)
	out.table(v, t, v.sums(t), "function", "image")
}

// table prints the first rows of a table under its title. The second column is left out if it has no title
// or is empty.
func (out *printer) table(v *view, t *table, rows []sum, title, second string) {
	left := max(len(rows)-out.o.Top, 0)
	rows = rows[:len(rows)-left]
	if !slices.ContainsFunc(rows, func(r sum) bool { return t.rows[r.row].beside != "" }) {
		second = ""
	}
	names, seconds := human.Columns(title), human.Columns(second)
	for _, r := range rows {
		names = max(names, human.Columns(human.Clean(t.rows[r.row].name)))
		if second != "" {
			seconds = max(seconds, human.Columns(human.Clean(t.rows[r.row].beside)))
		}
	}
	room := out.o.Width - len("100.0%  100.0%  ")
	if second != "" {
		room -= 2
		seconds = min(seconds, max(out.o.Width/3, room-names))
		room -= seconds
	}
	names = out.fit(names, room)
	out.line("")
	out.line(out.bold(strings.TrimRight(
		fmt.Sprintf("%6s  %6s  %-*s  %s", "self", "total", names, out.cut(title, names), second), " ")))
	for _, r := range rows {
		l := t.rows[r.row]
		name, beside := out.cut(human.Clean(l.name), names), ""
		if second != "" {
			beside = out.dim(out.cut(human.Clean(l.beside), seconds))
		}
		out.line(fmt.Sprintf("%s  %s  %s%s  %s", out.share(v, r.self), out.share(v, r.total), out.dimInlined(name),
			human.Blank(name, names), beside))
	}
	if left > 0 {
		out.line(out.dim(fmt.Sprintf("%16s… and %s more", "", human.Plural(uint64(left), t.what))))
	}
}

// dimInlined dims the mark of an inlined function.
func (out *printer) dimInlined(s string) string {
	if name, ok := strings.CutSuffix(s, inlined); ok {
		return name + out.dim(inlined)
	}
	return s
}

// groups prints the table of groups, and a table for each that has samples of its own.
func (out *printer) groups(v *view) {
	groups, rows := v.groups(out.o.By)
	shown := out.groupList(v, groups)
	if out.o.Top < 0 {
		return
	}
	second := "image"
	switch out.o.By {
	case Image:
		second = ""
	case Source:
		second = "function"
	}
	for i := range shown {
		if g := &shown[i]; v.percent(g.self) >= out.o.PercentLimit {
			out.table(v, rows, g.rows, human.Clean(g.name), second)
		}
	}
}

// groupList prints the table of groups, and returns those above the limit.
func (out *printer) groupList(v *view, groups []group) (shown []group) {
	parts := out.o.By.partsSamples()
	line := func(self, total uint64, name string) {
		second := fmt.Sprintf("%9s", human.Number(self))
		if !parts {
			second = fmt.Sprintf("%6s", "")
			if total > 0 {
				second = out.share(v, total)
			}
		}
		out.line(fmt.Sprintf("%s  %s  %s", out.share(v, self), second, name))
	}
	out.line("")
	switch {
	case parts:
		out.line(out.bold(fmt.Sprintf("%6s  %9s  %s", "share", "samples", out.o.By)))
	case out.o.By == Source:
		out.line(out.bold(fmt.Sprintf("%6s  %6s  %s", "self", "total", "source file")))
	default:
		out.line(out.bold(fmt.Sprintf("%6s  %6s  %s", "self", "total", out.o.By)))
	}
	if v.hidden > 0 && !parts {
		line(v.hidden, v.hidden, out.dim(kernelOnly))
	}
	var rest uint64
	for _, g := range groups {
		if v.percent(g.total) < out.o.PercentLimit {
			rest += g.self
			continue
		}
		shown = append(shown, g)
	}
	lines := newCommandLines(shown)
	for i := range shown {
		g := &shown[i]
		line(g.self, g.total, out.groupName(g, lines, out.o.Width-len("100.0%  123456789  ")))
	}
	if left := len(groups) - len(shown); left > 0 {
		line(rest, 0,
			out.dim(fmt.Sprintf("(%s below %.3g%%)", human.Plural(uint64(left), "other"), out.o.PercentLimit)))
	}
	return shown
}

// share is a percentage of all samples, six columns wide.
func (out *printer) share(v *view, n uint64) string {
	p := v.percent(n)
	if n == 0 {
		return fmt.Sprintf("%6s", "·")
	}
	return out.paint(Heat(p), fmt.Sprintf("%5.1f%%", p))
}
