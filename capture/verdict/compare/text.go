package compare

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"unspool/capture/output/human"
)

// Style is how a result is printed.
type Style struct {
	Width  int      // columns; 0 for lines that are not cut
	Colour bool     // with ANSI escape sequences
	Rows   int      // of each list; 0 for 8
	By     []RowsBy // the rows to print; nil for those by program and by package, where there are several
}

// WriteText prints a result for people.
func (r *Result) WriteText(w io.Writer, o Style) error {
	p := newPage(w, o)
	p.verdict(r)
	p.summary(r)
	p.rows(r)
	p.classes(r)
	p.examples(r)
	p.blame(r)
	p.shares(r)
	p.sizes(r)
	p.cost(r)
	p.price(r)
	p.lint(r)
	for _, problem := range r.Problems {
		p.line("note: %s", human.Clean(problem))
	}
	return p.w.Flush()
}

type page struct {
	w     *bufio.Writer
	o     Style
	whole bool // lines are not cut
}

func newPage(w io.Writer, o Style) *page {
	if o.Rows == 0 {
		o.Rows = 8
	}
	whole := o.Width == 0
	if whole {
		o.Width = 100 // of what is padded
	}
	o.Width = max(o.Width, 60)
	return &page{bufio.NewWriter(w), o, whole}
}

// cut shortens text to n columns, unless lines are not cut.
func (p *page) cut(text string, n int) string {
	if p.whole {
		return text
	}
	return human.Shorten(text, n)
}

func (p *page) line(format string, args ...any) {
	fmt.Fprintln(p.w, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func (p *page) head(format string, args ...any) {
	p.line("")
	if p.o.Colour {
		format = "\x1b[1m" + format + "\x1b[0m"
	}
	p.line(format, args...)
}

func percentage(share float64) string {
	switch {
	case share == 0:
		return "·"
	case share < 0.0005:
		return "<0.1%"
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

// verdict prints the sentence, which is never cut.
func (p *page) verdict(r *Result) {
	lines := []string{human.Clean(r.Verdict.Sentence)}
	if !p.whole {
		lines = human.Wrap(lines[0], p.o.Width)
	}
	p.line("%s\n", strings.Join(lines, "\n"))
}

// rows prints what frame pointers do to each program, thread's name, image or package.
func (p *page) rows(r *Result) {
	by := p.o.By
	if by == nil {
		for _, b := range []RowsBy{ByProgram, ByPackage} {
			if len(r.By(b)) > 1 {
				by = append(by, b)
			}
		}
	}
	for _, b := range by {
		p.rowsBy(b, r.By(b))
	}
}

// leastBlame is how wide the last column of rows must be. Where there is less room, it is left out.
const leastBlame = 10

// rowsBy prints rows as a table. The columns of numbers are as wide as their numbers. The names share the rest.
func (p *page) rowsBy(by RowsBy, rows []RowResult) {
	lines := [][6]string{{"samples", "usable", "false", "lost", "by " + by.Key(), "most lost in"}}
	for i := range rows[:min(len(rows), p.o.Rows)] {
		row := &rows[i]
		lost, blame := "·", ""
		if row.Lost > 0 {
			lost = fmt.Sprintf("%.1f", row.Lost)
		}
		if row.Blame != "" {
			blame = percentage(row.BlameShare) + " " + human.Clean(row.Blame)
		}
		lines = append(lines, [6]string{percentage(row.Share), row.Usable.Text(), row.False.Text(), lost,
			human.Clean(row.Name), blame})
	}
	var wide [6]int
	for _, line := range lines {
		for i, cell := range line {
			wide[i] = max(wide[i], human.Columns(cell))
		}
	}
	rest := p.o.Width - wide[0] - wide[1] - wide[2] - wide[3] - 4*2
	name := min(wide[4], max(rest-2-wide[5], rest/2))
	blame := rest - 2 - name
	if blame < leastBlame && !p.whole {
		name, blame = rest, 0
	}
	right := func(cell string, n int) string { return human.Blank(cell, n) + cell }
	for i, line := range lines {
		show := p.line
		if i == 0 {
			show = p.head
		}
		show("%s  %s  %s  %s  %s  %s", right(line[0], wide[0]), p.pad(line[1], wide[1]), p.pad(line[2], wide[2]),
			right(line[3], wide[3]), p.pad(line[4], name), p.cut(line[5], blame))
	}
	if left := len(rows) - p.o.Rows; left > 0 {
		p.line("%7s  %d more: see --json", "", left)
	}
}

func (p *page) summary(r *Result) {
	text := human.Plural(r.Samples, "sample") + " with a user stack"
	if r.Others > 0 {
		text += fmt.Sprintf(" (and %s without)", human.Number(r.Others))
	}
	text += fmt.Sprintf(", %s, %s lost", human.Plural(r.Stacks, "distinct stack"),
		human.Plural(r.Lost, "record"))
	p.line("%s", text)
	if r.Kernel != nil {
		p.line("the kernel's frame-pointer chain is what the copied stack says in %s of the samples",
			exact(r.Kernel.Share))
	}
}

// exact does not round up to 100 %.
func exact(share float64) string {
	if share < 1 && share >= 0.9995 {
		return fmt.Sprintf("%.3f%%", 100*share)
	}
	return percentage(share)
}

func (p *page) classes(r *Result) {
	p.head("%7s  %7s  %6s  %s", "samples", "stacks", "lost", "frame pointers and DWARF")
	for c := range Class(NumClasses) {
		k := r.Classes[c.Key()]
		lost := "·"
		if k.MeanLost > 0 {
			lost = fmt.Sprintf("%.1f", k.MeanLost)
		}
		p.line("%7s  %7s  %6s  %s", percentage(k.Share), percentage(share(k.Stacks, r.Stacks)), lost, k.Words)
	}
	p.line("%7s  %7s  %6s", "", "", "(frames that FP misses, on average)")
}

// examples shows an example of each class side by side.
func (p *page) examples(r *Result) {
	const most = 12
	column := (p.o.Width - 4) / 2
	for c := range Class(NumClasses) {
		k := r.Classes[c.Key()]
		if c == Same || k.Example == nil {
			continue
		}
		e := k.Example
		p.head("%s, for instance in %s", k.Words, human.Plural(e.Samples, "sample"))
		p.line("  %-*s  %s", column, "DWARF", "frame pointers")
		rows := max(len(e.DWARF), len(e.FP))
		for i := range min(rows, most) {
			mark := " "
			if i == e.Parted {
				mark = "▸"
			}
			p.line("%s %s  %s", mark, p.pad(cell(e.DWARF, i), column), p.cut(cell(e.FP, i), column))
		}
		if rows > most {
			p.line("  … %d and %d frames in all", len(e.DWARF), len(e.FP))
		}
	}
}

func cell(list []string, i int) string {
	if i < len(list) {
		return human.Clean(list[i])
	}
	return ""
}

// pad fills text, or shortens it, to n columns.
func (p *page) pad(s string, n int) string {
	s = p.cut(s, n)
	return s + human.Blank(s, n)
}

func (p *page) blame(r *Result) {
	if len(r.BlameImages) == 0 {
		return
	}
	p.head("where frame pointers lose the stack, of the stacks that they lose")
	for _, b := range r.BlameImages[:min(len(r.BlameImages), p.o.Rows)] {
		owner := ""
		if b.Package != "" {
			owner = " (" + b.Package + ")"
		}
		p.line("%7s  %s%s: %s", percentage(b.Share), human.Clean(b.Image), human.Clean(owner), b.Words)
	}
	p.line("")
	for _, b := range r.BlameFunctions[:min(len(r.BlameFunctions), p.o.Rows)] {
		p.line("%7s  %s  %s: %s", percentage(b.Share), p.cut(human.Clean(b.Function), p.o.Width-40),
			human.Clean(b.Image), b.Words)
	}
}

func (p *page) shares(r *Result) {
	if len(r.Shares) > 0 {
		p.head("%7s  %7s  %s", "FP", "DWARF", "function, with what it calls")
		for _, s := range r.Shares[:min(len(r.Shares), p.o.Rows)] {
			p.line("%7s  %7s  %s  %s", percentage(s.FP), percentage(s.DWARF),
				p.cut(human.Clean(s.Function), p.o.Width-40), human.Clean(s.Image))
		}
	}
	if len(r.WrongCallers) > 0 {
		p.head("calls that frame pointers show and that never were")
		for _, c := range r.WrongCallers[:min(len(r.WrongCallers), p.o.Rows)] {
			half := (p.o.Width - 16) / 2
			p.line("%7s  %s → %s", percentage(c.Share), p.cut(human.Clean(c.Caller), half),
				p.cut(human.Clean(c.Callee), half))
		}
	}
}

func (p *page) sizes(r *Result) {
	if len(r.StackSizes) == 0 || r.Samples == 0 {
		return
	}
	p.head("%-34s  %10s", "stacks that are complete", "by a copy")
	for i := range r.StackSizes {
		s := &r.StackSizes[i]
		p.line("%-34s  %10s", fmt.Sprintf("  of %d KiB", s.Bytes>>10), percentage(s.Complete))
	}
	if r.Enough > 0 {
		p.line("  --stack-size %d is enough for 99 %%", r.Enough)
	} else {
		p.line("  no size that was tried is enough for 99 %%")
	}
	if r.Elsewhere > 0 {
		p.line("  %s are complete by what is not in the copy: another stack, or the kernel's chain",
			percentage(r.Elsewhere))
	}
}

func (p *page) cost(r *Result) {
	if r.Cost == nil {
		return
	}
	c := r.Cost
	p.head("%-34s  %10s  %10s  %10s", "what a sample costs here", "bytes", "kernel µs", "user µs")
	p.line("%-34s  %10.0f  %10.1f  %10.1f", "  callchain by frame pointers", c.Chain.Bytes, c.Chain.Kernel,
		c.Chain.User)
	p.line("%-34s  %10.0f  %10.1f  %10.1f", fmt.Sprintf("  stack, %d bytes, and unwinding", c.StackSize),
		c.Stack.Bytes, c.Stack.Kernel, c.Stack.User)
}

func (p *page) price(r *Result) {
	if r.Price == nil {
		return
	}
	p.head("%-34s  %10s  %s", "what profiling costs this command", "CPU time", "more, each at 95 %")
	p.line("%-34s  %8.3f s", "  without a profiler", r.Price.Without)
	for _, row := range r.Price.Rows {
		cpu := "computed"
		if !row.Computed {
			cpu = fmt.Sprintf("%.3f s", row.CPU)
		}
		p.line("%-34s  %10s  %s", "  "+row.Words(), cpu, row.Text())
	}
	p.line("  %s", human.Clean(r.Price.Machine()))
}

func (p *page) lint(r *Result) {
	if len(r.Lint) == 0 {
		return
	}
	p.head("code on these stacks whose CFI is missing or wrong")
	for _, f := range r.Lint[:min(len(r.Lint), p.o.Rows)] {
		where := human.Clean(f.Image)
		if f.Function != "" {
			where += fmt.Sprintf(": %s%+#x (%#x)", human.Clean(f.Function), f.Offset, f.Addr)
		}
		if f.Package != "" {
			where += " (" + human.Clean(f.Package) + ")"
		}
		p.line("%7s  %s: %s", percentage(f.Share), where, f.Words)
	}
}
