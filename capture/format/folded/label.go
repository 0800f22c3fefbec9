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

// threadNames returns what the threads are called. As stackcollapse-perf.pl has it, underscores stand for spaces,
// unless that gives threads with different names the same one.
func threadNames(threads []profile.Thread) []string {
	names := make([]string, len(threads))
	with := make(map[string]string) // by a name with underscores, the name with spaces; "" if there are several
	for i, t := range threads {
		names[i] = harmless(t.Comm)
		joined := strings.ReplaceAll(names[i], " ", "_")
		if other, ok := with[joined]; !ok {
			with[joined] = names[i]
		} else if other != names[i] {
			with[joined] = ""
		}
	}
	for i, name := range names {
		if joined := strings.ReplaceAll(name, " ", "_"); with[joined] == name {
			names[i] = joined
		}
	}
	return names
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
