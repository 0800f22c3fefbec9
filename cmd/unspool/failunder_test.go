package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"unspool/capture/verdict/compare"
)

// stderrOf returns what fn writes to standard error.
func stderrOf(t *testing.T, fn func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := os.Stderr
	os.Stderr = w
	fn()
	os.Stderr = before
	w.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFailUnder asks a result with 95 % of the samples in one class, 3 % in another and 2 % in a
// third for more and for less.
func TestFailUnder(t *testing.T) {
	result := &compare.Result{Classes: map[string]compare.ClassResult{
		"same": {Share: 0.95}, "stops_early": {Share: 0.03}, "goes_astray": {Share: 0.02},
	}}
	for _, c := range []struct {
		asked []string
		under []string // the lines of stderr, "unspool: " left out
	}{
		{nil, nil},
		{[]string{"same=95"}, nil},
		{[]string{"same=94.9%"}, nil},
		{[]string{"same=95.1"}, []string{"same: 95.00 % of the samples, less than 95.1 %"}},
		{[]string{"stops_early=2.5", "goes_astray=2.5"},
			[]string{"goes_astray: 2.00 % of the samples, less than 2.5 %"}},
		{[]string{"skips_middle=0"}, nil},
		{[]string{"skips_middle=0.01"}, []string{"skips_middle: 0.00 % of the samples, less than 0.01 %"}},
	} {
		f := compareFlags{failUnder: c.asked}
		if err := f.check(); err != nil {
			t.Errorf("%v: %v", c.asked, err)
			continue
		}
		var under bool
		said := stderrOf(t, func() { under = f.under(result) })
		want := ""
		for _, line := range c.under {
			want += "unspool: " + line + "\n"
		}
		if under != (want != "") || said != want {
			t.Errorf("%v: under %v, %q, want %q", c.asked, under, said, want)
		}
	}
}

func TestFailUnderIsChecked(t *testing.T) {
	for _, c := range []struct{ asked, want string }{
		{"other=5", "must be one of same, skips_leaf_caller, skips_middle, stops_early, goes_astray, cut_by_limit"},
		{"same", "must be a class and a percentage"},
		{"same=much", "must be a class and a percentage"},
		{"same=101", "must be a class and a percentage"},
		{"same=-1", "must be a class and a percentage"},
		{"same=NaN", "must be a class and a percentage"},
	} {
		f := compareFlags{failUnder: []string{c.asked}}
		if err := f.check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.asked, err, c.want)
		}
	}
}
