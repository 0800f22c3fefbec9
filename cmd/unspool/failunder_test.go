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

// TestFailUnder asks a result with 95 % of the samples in one class, 3 % in another and 2 % in a third, 90 % usable and
// 1.5 % false, for more and for less.
func TestFailUnder(t *testing.T) {
	enough := &compare.VerdictResult{Enough: true, Usable: compare.PortionResult{Share: 0.9},
		False: compare.PortionResult{Share: 0.015}}
	classes := map[string]compare.ClassResult{
		"same": {Share: 0.95}, "stops_early": {Share: 0.03}, "goes_astray": {Share: 0.02},
	}
	few := *enough
	few.Enough, few.Needed = false, 1234
	for _, c := range []struct {
		verdict     *compare.VerdictResult
		under, over []string
		said        []string // the lines of stderr, "unspool: " left out
	}{
		{enough, nil, nil, nil},
		{enough, []string{"same=95"}, nil, nil},
		{enough, []string{"same=94.9%"}, nil, nil},
		{enough, []string{"same=95.1"}, nil, []string{"same: 95.00 % of the samples, less than 95.1 %"}},
		{enough, []string{"same=95.1", "same=20"}, nil, nil},
		{enough, []string{"stops_early=2.5", "goes_astray=2.5"}, nil,
			[]string{"goes_astray: 2.00 % of the samples, less than 2.5 %"}},
		{enough, []string{"skips_middle=0"}, nil, nil},
		{enough, []string{"skips_middle=0.01"}, nil, []string{"skips_middle: 0.00 % of the samples, less than 0.01 %"}},
		{enough, []string{"usable=90"}, []string{"false=1.5"}, nil},
		{enough, []string{"usable=90.01"}, []string{"false=1.4"}, []string{
			"usable: 90.00 % of the samples, less than 90.01 %", "false: 1.50 % of the samples, more than 1.4 %"}},
		{enough, []string{"false=2"}, []string{"usable=89", "goes_astray=2"}, []string{
			"false: 1.50 % of the samples, less than 2 %", "usable: 90.00 % of the samples, more than 89 %"}},
		{&few, []string{"usable=1", "same=95"}, []string{"false=99"}, []string{
			"usable: not enough samples to say: 700, and it takes about 1,300",
			"false: not enough samples to say: 700, and it takes about 1,300"}},
	} {
		f := compareFlags{failUnder: c.under, failOver: c.over}
		if err := f.check(); err != nil {
			t.Errorf("%v: %v", c.under, err)
			continue
		}
		var failed bool
		said := stderrOf(t, func() {
			failed = f.fails(&compare.Result{Samples: 700, Verdict: c.verdict, Classes: classes})
		})
		want := ""
		for _, line := range c.said {
			want += "unspool: " + line + "\n"
		}
		if failed != (want != "") || said != want {
			t.Errorf("%v, %v: failed %v, %q, want %q", c.under, c.over, failed, said, want)
		}
	}
}

func TestFailUnderIsChecked(t *testing.T) {
	for _, c := range []struct{ asked, want string }{
		{"other=5",
			"must be one of usable, false, same, lacks_start_code, skips_leaf_caller, skips_middle"},
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
		f = compareFlags{failOver: []string{c.asked}}
		if err := f.check(); err == nil || !strings.HasPrefix(err.Error(), "--fail-over ") {
			t.Errorf("--fail-over %s: %v", c.asked, err)
		}
	}
}
