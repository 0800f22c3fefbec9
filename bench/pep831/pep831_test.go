package main

import (
	"strings"
	"testing"
)

// A stack of perf script's is whole if its last frame of the program is _start, whatever the kernel's part is.
func TestReadScript(t *testing.T) {
	const text = `
ffffffff82231ce5 mas_mab_cp
            20d07 mprotect
            1ab77 _start

           fd11d [unknown]
           229095 Py_RunMain

ffffffff82231ce5 only_kernel

           1ab77 _start
`
	s, err := readScript(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := (scripted{stacks: 3, frames: 5, whole: 2}); *s != want {
		t.Errorf("%+v instead of %+v", *s, want)
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		part, whole int
		want        string
	}{
		{0, 7, "0 %"}, {7, 7, "100 %"}, {1, 3, "33.3 %"}, {9_999, 10_000, "99.99 %"}, {99_999, 100_000, "> 99.99 %"},
		{0, 0, "0 %"},
	} {
		if got := percent(c.part, c.whole); got != c.want {
			t.Errorf("%d of %d: %s instead of %s", c.part, c.whole, got, c.want)
		}
	}
}

// The table of the PEP's figures has a column for each perf.
func TestClaimed(t *testing.T) {
	b := bench{perfs: []perf{{"perf", "perf 6.1"}, {"new/perf", "perf 7.2"}}}
	b.claim("a walk", "116 ns", []string{"62 µs", "64 µs"}, "2 µs")
	const want = "|  | PEP | perf 6.1 | perf 7.2 | unspool |\n|---|---:|---:|---:|---:|\n" +
		"| a walk | 116 ns | 62 µs | 64 µs | 2 µs |\n"
	if got := b.claimed(); got != want {
		t.Errorf("%q instead of %q", got, want)
	}
}
