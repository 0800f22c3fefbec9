package main

import (
	"fmt"
	"strconv"
	"strings"
)

// A table is a table in Markdown. All columns but the first are numbers.
type table struct {
	head []string
	rows [][]string
}

func newTable(head ...string) *table { return &table{head: head} }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	b.WriteString("|---|" + strings.Repeat("---:|", len(t.head)-1) + "\n")
	for _, r := range t.rows {
		line(r)
	}
	return b.String()
}

// A limit is a figure that is required, 0 if none is.
type limit float64

func (l limit) String() string {
	if l == 0 {
		return "–"
	}
	return "≤ " + strconv.FormatFloat(float64(l), 'g', -1, 64)
}

// mark writes a figure, in bold if it is beyond the limit.
func (l limit) mark(v float64, format string) string {
	s := fmt.Sprintf(format, v)
	if l > 0 && v > float64(l) {
		return "**" + s + "**"
	}
	return s
}

// number writes a figure with about three digits.
func number(v float64) string {
	switch {
	case v >= 100:
		return thousands(int(v + 0.5))
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
