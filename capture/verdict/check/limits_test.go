package check

import (
	"slices"
	"strings"
	"testing"

	"unspool/unwind"
)

func TestLimits(t *testing.T) {
	r := &Result{}
	r.BySource[unwind.ByCFI] = Counts{Right: 9_990, NoCall: 6, Elsewhere: 4, Unread: 5_000} // 0.1 %
	r.BySource[unwind.ByKernel] = Counts{Right: 99, NoCall: 1}                              // 1 %
	for _, c := range []struct {
		limits string
		want   []string // beginnings
		err    string
	}{
		{"", nil, ""},
		{"1", nil, ""},
		{"0.5", []string{"kernel_fp: 1.000 % of 100 edges"}, ""},
		{"0.09%", []string{"cfi: 0.100 % of 10000 edges", "kernel_fp"}, ""},
		{"1 cfi=0.01", []string{"cfi"}, ""},
		{"cfi=0.01 cfi=50", []string{"cfi"}, ""},
		{"all=1", nil, "must be one of cfi, frame_pointer, heuristic, live, kernel_fp, "},
		{"cfi=", nil, "must be a percentage"},
		{"-1", nil, "must be a percentage"},
		{"NaN", nil, "must be a percentage"},
	} {
		l := NoLimits()
		var err error
		for _, text := range strings.Fields(c.limits) {
			err = l.Lower(text)
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.limits, err, c.err)
		}
		got := l.Exceeded(r)
		if err == nil && !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", c.limits, got, c.want)
		}
	}
}

// TestBudgets has code and names that nobody pays for: they are not read, and what is not known is undecided.
func TestBudgets(t *testing.T) {
	b := &binary{exits: make(map[uint64]exits), padded: make(map[uint64]uint64)}
	code := uint64(99)
	if out := b.leaves(nil, &function{parts: [2]extent{{0x1000, 0x1064}}}, &code); !out.open || code != 99 {
		t.Errorf("%+v, %d left", out, code)
	}
	names := uint64(0)
	if got := b.exported("malloc", &names); got != nil {
		t.Errorf("%+v", got)
	}
	w := way{edge: &edge{c: &Checker{}}, todo: []stop{{b, 0}}}
	if got := w.follow(); got != Undecided {
		t.Errorf("a search that may take no step: %d", got)
	}
}
