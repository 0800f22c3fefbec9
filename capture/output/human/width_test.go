package human

import "testing"

func TestShortenByWidth(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"short", 5, "short"},
		{"", 3, ""},
		{"beginning and end", 11, "beginn… end"},
		{"abc", 1, "…"},
		{"abc", 0, ""},
		{"abc", -3, ""},
		{"漢字漢字", 8, "漢字漢字"},
		{"漢字漢字", 7, "漢…漢字"},
		{"漢字漢字", 6, "漢…字"}, // a wide character is not cut in two
		{"漢字漢字", 2, "…"},
		{"e\u0301e\u0301e\u0301e\u0301", 3, "e\u0301…e\u0301"}, // accents stay with their letters
	} {
		if got := Shorten(c.text, c.columns); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.columns, got, c.want)
		}
	}
	if got := Cell("漢字", 6); got != "漢字  " {
		t.Errorf("%q", got)
	}
}
