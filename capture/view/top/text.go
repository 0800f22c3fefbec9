package top

import (
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// fit cuts the middle out of text that is wider than so many columns of a terminal, as human.Shorten does:
// the beginning and the end of a C++ name say most. A character may be two columns wide.
func fit(text string, columns int) string {
	if columns <= 0 {
		return ""
	}
	if displaywidth.String(text) <= columns {
		return text
	}
	const cut = "…"
	head := displaywidth.TruncateString(text, (columns-1)*3/5, "")
	room := columns - 1 - displaywidth.String(head)
	return head + cut + lastColumns(text[len(head):], room)
}

// lastColumns is the end of text, as much as so many columns hold.
func lastColumns(text string, columns int) string {
	var widths, starts []int
	at := 0
	for g := displaywidth.StringGraphemes(text); g.Next(); {
		widths, starts = append(widths, g.Width()), append(starts, at)
		at += len(g.Value())
	}
	from := len(text)
	for i := len(widths) - 1; i >= 0 && widths[i] <= columns; i-- {
		columns -= widths[i]
		from = starts[i]
	}
	return text[from:]
}

// cell is text in exactly so many columns.
func cell(text string, columns int) string {
	text = fit(text, columns)
	return text + strings.Repeat(" ", max(0, columns-displaywidth.String(text)))
}

// width is how many columns text takes.
func width(text string) int { return displaywidth.String(text) }
