package human

import (
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// Columns is how many columns of a terminal s takes. A character may be two columns wide, or none.
func Columns(s string) int { return displaywidth.String(s) }

// Shorten cuts the middle out of s when it is wider than n columns: the beginning and the end of a C++ name
// say most.
func Shorten(s string, n int) string {
	if n <= 0 {
		return ""
	}
	if Columns(s) <= n {
		return s
	}
	head := Beginning(s, (n-1)*3/5)
	return head + "…" + lastColumns(s[len(head):], n-1-Columns(head))
}

// lastColumns is the end of s, as much as n columns hold.
func lastColumns(s string, n int) string {
	var widths, starts []int
	at := 0
	for g := displaywidth.StringGraphemes(s); g.Next(); {
		widths, starts = append(widths, g.Width()), append(starts, at)
		at += len(g.Value())
	}
	from := len(s)
	for i := len(widths) - 1; i >= 0 && widths[i] <= n; i-- {
		n -= widths[i]
		from = starts[i]
	}
	return s[from:]
}

// Beginning is as much of the beginning of s as n columns hold.
func Beginning(s string, n int) string { return displaywidth.TruncateString(s, max(n, 0), "") }

// Cell is s in exactly n columns: shortened, or with spaces behind it.
func Cell(s string, n int) string {
	s = Shorten(s, n)
	return s + Blank(s, n)
}

// Blank is the spaces that s needs behind it to fill n columns.
func Blank(s string, n int) string { return strings.Repeat(" ", max(0, n-Columns(s))) }
