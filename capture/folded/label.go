package folded

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"unspool/capture/profile"
)

// label is the text of a frame.
func label(f *profile.Frame, plain bool) string {
	text := harmless(f.Name)
	switch {
	case plain:
	case f.Kind == profile.Kernel:
		text += "_[k]"
	case f.Kind == profile.JIT:
		text += "_[j]"
	case f.Inlined:
		text += "_[i]"
	}
	return text
}

// firstWord is a text with which a line begins. speedscope takes a file whose lines begin with these words
// for one of callgrind.
func firstWord(text string) string {
	if strings.HasPrefix(text, "#") || strings.HasPrefix(text, "fn=") {
		text = "_" + text
	}
	return text
}

var (
	// flamegraph.pl and inferno take a second number at the end of a line for a second weight.
	lastNumber = regexp.MustCompile(` ([0-9]+(?:\.[0-9]*)?)$`)
	// speedscope takes a file whose first line has a time for the output of perf script.
	aTime = regexp.MustCompile(` ([0-9]+\.[0-9]+:)`)
)

// harmless makes a name safe between semicolons. A semicolon becomes a colon; characters that are not
// printable, such as newlines, become question marks; and if a reader would take a number in the name for
// something else, the space before the number becomes an underscore.
func harmless(name string) string {
	text := strings.Map(func(r rune) rune {
		switch {
		case r == ';':
			return ':'
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, name)
	text = strings.Trim(text, " ")
	if text == "" {
		return "?"
	}
	text = lastNumber.ReplaceAllString(text, "_$1")
	return aTime.ReplaceAllString(text, "_$1")
}
