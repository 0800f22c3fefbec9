package human

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Number writes n with a comma between groups of three digits.
func Number(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural is a number of things: "1 sample", "2,000 samples".
func Plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Number(n) + " " + what + "s"
}

// Percent is n of total, never rounded up to 100 % or down to 0.
func Percent(n, total uint64) string {
	if total == 0 {
		return "0 %"
	}
	p := 100 * float64(n) / float64(total)
	switch {
	case n == total:
		return "100 %"
	case p >= 99.95:
		return "> 99.9 %"
	case n > 0 && p < 0.05:
		return "< 0.1 %"
	}
	return fmt.Sprintf("%.1f %%", p)
}

// Bytes is a number of bytes: "35.1 KiB".
func Bytes(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

// Duration writes a time with few digits, in the unit that it has once it is rounded: no "1000 ms".
func Duration(d time.Duration) string {
	switch {
	case d.Round(time.Millisecond) < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	case d.Round(time.Second/10) < 2*time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Clean makes text of the recorded system safe to print: characters that are not printable, such as control characters
// and marks that change the direction of text, become question marks, and so do bytes that are not UTF-8.
func Clean(s string) string { return clean(s, '?') }

// Printable is Clean for pages and files of other programs: it puts U+FFFD where Clean puts question marks.
func Printable(s string) string { return clean(s, unicode.ReplacementChar) }

func clean(s string, instead rune) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return instead
		}
		return r
	}, s)
}

// Wrap breaks s at spaces into lines of n columns at most, where its words allow that. A command between backticks is
// one word, so that it can be copied into a shell.
func Wrap(s string, n int) []string {
	var lines []string
	var line string
	for _, word := range wrapped(s) {
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

// wrapped are the words between which Wrap breaks lines.
func wrapped(s string) (words []string) {
	inside := false
	for _, word := range strings.Fields(s) {
		if inside {
			words[len(words)-1] += " " + word
		} else {
			words = append(words, word)
		}
		if strings.Count(word, "`")%2 == 1 {
			inside = !inside
		}
	}
	if inside {
		return strings.Fields(s) // a backtick for itself
	}
	return words
}
