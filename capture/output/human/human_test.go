package human

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                         "0 ms",
		999499 * time.Microsecond: "999 ms",
		999500 * time.Microsecond: "1.0 s", // rounding leads to the next unit
		119949 * time.Millisecond: "119.9 s",
		119950 * time.Millisecond: "2m0s",
		2*time.Hour + time.Second: "2h0m1s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// TestTextOfTheRecordedSystem has what terminals obey, what changes the direction of text, and what no text has.
func TestTextOfTheRecordedSystem(t *testing.T) {
	for text, want := range map[string]string{
		"plain <a> Grüße 名前 😀":     "plain <a> Grüße 名前 😀",
		"C0: \x00\a\t\n\x1b[31m":   "C0: ?????[31m",
		"DEL: \x7f":                "DEL: ?",
		"C1: \u009b31m":            "C1: ?31m",
		"bidi: \u202e \u2066":      "bidi: ? ?",
		"zero width: \u200b\ufeff": "zero width: ??",
		"lines: \u2028\u2029":      "lines: ??",
		"no UTF-8: \xff\xc3(":      "no UTF-8: ??(",
	} {
		if got := Clean(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
		if got := Printable(text); got != strings.ReplaceAll(want, "?", "\ufffd") {
			t.Errorf("%q becomes %q for pages", text, got)
		}
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             {""},
		"one two  three":               {"one two", "three"},
		"muchlongerthan eight":         {"muchlongerthan", "eight"},
		"do `apt install a`, or not":   {"do", "`apt install a`,", "or not"},
		"`a b` c `d e f g h`":          {"`a b` c", "`d e f g h`"},
		"a ` for itself, nothing more": {"a ` for", "itself,", "nothing", "more"},
	} {
		if got := Wrap(text, 8); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
