package report

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes text of the recorded system safe to print: what is not printable, such as the start of an escape sequence,
// becomes a question mark.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Columns is how many columns s takes.
func Columns(s string) int { return utf8.RuneCountInString(s) }

// Shorten cuts the middle out of s when it is wider than n columns: the beginning and the end of a C++ name say most.
func Shorten(s string, n int) string {
	if Columns(s) <= n {
		return s
	}
	if n <= 1 {
		return strings.Repeat("…", max(n, 0))
	}
	r := []rune(s)
	head := (n - 1) * 3 / 5
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

// wrap breaks s at spaces into lines of n columns at most, where its words allow that.
func wrap(s string, n int) []string {
	var lines []string
	var line string
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case Columns(line)+1+Columns(word) <= n:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	dim    = "\x1b[2m"
	strong = "\x1b[1m"
	plain  = "\x1b[0m"
)

func (out *printer) paint(code, s string) string {
	if !out.o.Colour || code == "" || s == "" {
		return s
	}
	return code + s + plain
}

func (out *printer) bold(s string) string { return out.paint(strong, s) }
func (out *printer) dim(s string) string  { return out.paint(dim, s) }

// heat is the colour of a share in percent.
func heat(percent float64) string {
	switch {
	case percent >= 20:
		return red
	case percent >= 5:
		return yellow
	}
	return ""
}
