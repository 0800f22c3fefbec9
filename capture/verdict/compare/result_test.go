package compare

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/capture/symbols"
)

// Frames of counted.
const (
	startFrame = iota
	mainFrame
	workFrame
	hashFrame
	lostFrame // a word that frame pointers lead to and that is not code
	syscallFrame
)

// counted has 1,000 samples. Frame pointers lose 500 of these: 250 in libz, 250 in the program. Of 30, nobody knows.
func counted() *Comparison {
	base := profile.Profile{
		Images: []profile.Image{{Name: "program", Path: "program"}, {Name: "libz.so.1", Path: "libz.so.1"},
			{Name: "[unmapped]"}, {Name: "[kernel]"}},
		Frames: []profile.Frame{
			startFrame: {Name: "_start", Known: true}, mainFrame: {Name: "main", Known: true},
			workFrame: {Name: "work", Known: true}, hashFrame: {Name: "Hash", Image: 1, Known: true},
			lostFrame:    {Name: NotCode, Image: 2, Kind: profile.Unmapped},
			syscallFrame: {Name: "do_syscall_64", Image: 3, Kind: profile.Kernel},
		},
		Threads:     []profile.Thread{{Comm: "all", Program: "all"}},
		Events:      []profile.Event{{Name: "cpu-clock", Clock: true}},
		LostRecords: 12, LostSamples: 3,
		Problems: []string{"no names for\nlibz"},
	}
	other := base
	dwarf, fp := profiletest.New(&base), profiletest.New(&other)
	c := &Comparison{
		DWARF: dwarf.Profile, FP: fp.Profile, Samples: 1000, Others: 7, Checked: 800, Agreed: 796,
		Reach: map[int]uint64{2: 610, 7: 290, 11: 90, 40: 4}, Elsewhere: 6,
		Tasks: []TaskName{{"server", "worker"}},
		Packages: func(images []profile.Image) (packages []string) {
			for _, im := range images {
				packages = append(packages, map[string]string{"libz.so.1": "zlib1g 1:1.3"}[im.Path])
			}
			return packages
		},
	}
	add := func(g PairGroup, onStack, byFP []int32) {
		g.DWARF, g.FP = dwarf.AddComplete(g.Count, onStack...), fp.AddComplete(g.Count, byFP...)
		g.End = profile.Complete
		c.Groups = append(c.Groups, g)
	}
	add(PairGroup{Class: Same, Parted: -1, Count: 430}, []int32{startFrame, mainFrame, workFrame},
		[]int32{startFrame, mainFrame, workFrame})
	add(PairGroup{Class: LeafCaller, Parted: 1, Missed: 1, Count: 250},
		[]int32{startFrame, mainFrame, workFrame, hashFrame},
		[]int32{startFrame, mainFrame, hashFrame})
	add(PairGroup{Class: Early, Parted: 1, Missed: 2, Kernel: 1, Count: 120},
		[]int32{startFrame, mainFrame, workFrame, syscallFrame}, []int32{workFrame, syscallFrame})
	add(PairGroup{Class: Astray, Parted: 1, Missed: 2, Count: 90}, []int32{startFrame, mainFrame, workFrame},
		[]int32{lostFrame, workFrame})
	add(PairGroup{Class: Early, Parted: 2, Missed: 1, Count: 40}, []int32{startFrame, mainFrame, workFrame},
		[]int32{mainFrame, workFrame})
	add(PairGroup{Class: Early, Parted: 1, Missed: 4, Count: 40},
		[]int32{startFrame, mainFrame, mainFrame, mainFrame, workFrame}, []int32{workFrame})
	add(PairGroup{Class: Cut, Parted: 1, Missed: 2, Open: true, Count: 30}, []int32{startFrame, mainFrame, workFrame},
		[]int32{workFrame})
	c.Judge()
	return c
}

// resultOf computes a result.
func resultOf(t *testing.T, c *Comparison, o Options) *Result {
	t.Helper()
	r, err := c.Result(symbols.New(symbols.Options{}), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var countedCosts = Costs{
	StackSize: 32768,
	Chain: Cost{Bytes: 120, Kernel: 1500 * time.Nanosecond, User: 400 * time.Nanosecond,
		Low: 1700 * time.Nanosecond, Total: 2000 * time.Nanosecond, High: 2500 * time.Nanosecond},
	Stack: Cost{Bytes: 33000, Kernel: 9200 * time.Nanosecond, User: 22340 * time.Nanosecond,
		Low: 30 * time.Microsecond, Total: 32 * time.Microsecond, High: 36 * time.Microsecond},
}

// TestResult compares every key of --json with a value computed by hand from counted.
func TestResult(t *testing.T) {
	var written bytes.Buffer
	r := resultOf(t, counted(), Options{StackSize: 32768, Costs: &countedCosts})
	if err := r.WriteJSON(&written); err != nil {
		t.Fatal(err)
	}
	// Intervals are Wilson's with 2.5758 standard deviations for the verdict, as five hold together, and with 1.96 for
	// rows. For usable, 0.45 is possible, which takes most: (2.5758 / 0.05)² / 4 is 663.5. The frame to blame is the first
	// one whose caller is missed: Hash for the 250, work for the 120 and the 40 that stop early and the 90 that go
	// astray.
	const want = `{
	"version": 2,
	"verdict": {
		"sentence": "With frame pointers 47 % (42–52) of server's 1,000 stacks are usable, 25 % (21–29) show a call that ` +
		`never was (most in zlib1g: unexplained), 9 % (6–12) a caller that is no code, and of 3 % (1–5) it is not ` +
		`known; with DWARF 100 % (99.3–100) are. DWARF costs 3.2 % (2.9–3.6) of a busy CPU at 999 Hz and frame ` +
		`pointers 0.2 % (0.16–0.25), only while they profile.",
		"enough": true, "needed_samples": 664,
		"usable": {"samples": 470, "share": 0.47, "low": 0.4297, "high": 0.5107},
		"false": {"samples": 250, "share": 0.25, "low": 0.2165, "high": 0.2868},
		"no_code": {"samples": 90, "share": 0.09, "low": 0.0693, "high": 0.1161},
		"unknown": {"samples": 30, "share": 0.03, "low": 0.0189, "high": 0.0473},
		"dwarf_usable": {"samples": 1000, "share": 1, "low": 0.9934, "high": 1}
	},
	"by_program": [
		{"name": "server", "samples": 1000, "share": 1,
			"usable": {"samples": 470, "share": 0.47, "low": 0.4392, "high": 0.501},
			"false": {"samples": 250, "share": 0.25, "low": 0.2242, "high": 0.2778},
			"mean_frames_lost": 0.58, "blame": "program", "blame_share": 0.5}
	],
	"by_comm": [
		{"name": "worker", "samples": 1000, "share": 1,
			"usable": {"samples": 470, "share": 0.47, "low": 0.4392, "high": 0.501},
			"false": {"samples": 250, "share": 0.25, "low": 0.2242, "high": 0.2778},
			"mean_frames_lost": 0.58, "blame": "program", "blame_share": 0.5}
	],
	"by_image": [
		{"name": "program", "samples": 750, "share": 0.75,
			"usable": {"samples": 470, "share": 0.6267, "low": 0.5915, "high": 0.6606},
			"false": {"samples": 0, "share": 0, "low": 0, "high": 0.0051},
			"mean_frames_lost": 0.44, "blame": "program", "blame_share": 1},
		{"name": "libz.so.1", "samples": 250, "share": 0.25,
			"usable": {"samples": 0, "share": 0, "low": 0, "high": 0.0151},
			"false": {"samples": 250, "share": 1, "low": 0.9849, "high": 1},
			"mean_frames_lost": 1, "blame": "zlib1g", "blame_share": 1}
	],
	"by_package": [
		{"name": "program", "samples": 750, "share": 0.75,
			"usable": {"samples": 470, "share": 0.6267, "low": 0.5915, "high": 0.6606},
			"false": {"samples": 0, "share": 0, "low": 0, "high": 0.0051},
			"mean_frames_lost": 0.44, "blame": "program", "blame_share": 1},
		{"name": "zlib1g 1:1.3", "samples": 250, "share": 0.25,
			"usable": {"samples": 0, "share": 0, "low": 0, "high": 0.0151},
			"false": {"samples": 250, "share": 1, "low": 0.9849, "high": 1},
			"mean_frames_lost": 1, "blame": "zlib1g", "blame_share": 1}
	],
	"samples": 1000, "other_samples": 7, "lost": 12, "distinct_stacks": 4,
	"classes": {
		"same": {"words": "same", "samples": 430, "share": 0.43, "distinct_stacks": 1, "mean_frames_lost": 0,
			"example": {"samples": 430, "dwarf": ["work", "main", "_start"], "fp": ["work", "main", "_start"],
				"parted": -1, "end": "complete"}},
		"lacks_start_code": {"words": "only start code is missing", "samples": 40, "share": 0.04,
			"distinct_stacks": 1, "mean_frames_lost": 1,
			"example": {"samples": 40, "dwarf": ["work", "main", "_start"], "fp": ["work", "main"],
				"parted": 2, "end": "complete"}},
		"skips_leaf_caller": {"words": "the leaf's caller is missing", "samples": 250, "share": 0.25,
			"distinct_stacks": 1,
			"mean_frames_lost": 1,
			"example": {"samples": 250, "dwarf": ["Hash", "work", "main", "_start"], "fp": ["Hash", "main", "_start"],
				"parted": 1, "end": "complete"}},
		"skips_middle": {"words": "frames in the middle are missing", "samples": 0, "share": 0, "distinct_stacks": 0,
			"mean_frames_lost": 0},
		"stops_early": {"words": "FP stops early", "samples": 160, "share": 0.16, "distinct_stacks": 2,
			"mean_frames_lost": 2.5,
			"example": {"samples": 120, "dwarf": ["work", "main", "_start"], "fp": ["work"], "parted": 1,
				"end": "complete"}},
		"goes_astray": {"words": "FP goes astray", "samples": 90, "share": 0.09, "distinct_stacks": 1,
			"mean_frames_lost": 2,
			"example": {"samples": 90, "dwarf": ["work", "main", "_start"], "fp": ["work", "not code"],
				"parted": 1, "end": "complete"}},
		"cut_by_limit": {"words": "cut by a limit", "samples": 30, "share": 0.03, "distinct_stacks": 1,
			"mean_frames_lost": 2,
			"example": {"samples": 30, "dwarf": ["work", "main", "_start"], "fp": ["work"], "parted": 1,
				"end": "complete"}},
		"dwarf_stops": {"words": "DWARF stops, FP goes on", "samples": 0, "share": 0, "distinct_stacks": 0,
			"mean_frames_lost": 0},
		"both_stop": {"words": "both stop", "samples": 0, "share": 0, "distinct_stacks": 0, "mean_frames_lost": 0}
	},
	"kernel_chain": {"samples": 800, "share": 0.995},
	"blame_images": [
		{"image": "libz.so.1", "path": "libz.so.1", "package": "zlib1g 1:1.3", "cause": "unexplained",
			"words": "unexplained", "samples": 250,
			"share_of_lost_stacks": 0.5, "frames_lost": 250},
		{"image": "program", "path": "program", "cause": "unexplained", "words": "unexplained", "samples": 250,
			"share_of_lost_stacks": 0.5, "frames_lost": 580}
	],
	"blame_functions": [
		{"image": "libz.so.1", "path": "libz.so.1", "package": "zlib1g 1:1.3", "function": "Hash", "cause": "unexplained",
			"words": "unexplained",
			"samples": 250, "share_of_lost_stacks": 0.5, "frames_lost": 250},
		{"image": "program", "path": "program", "function": "work", "cause": "unexplained", "words": "unexplained",
			"samples": 250, "share_of_lost_stacks": 0.5, "frames_lost": 580}
	],
	"shares": [
		{"function": "_start", "image": "program", "dwarf": 1, "fp": 0.68},
		{"function": "main", "image": "program", "dwarf": 1, "fp": 0.72},
		{"function": "work", "image": "program", "dwarf": 1, "fp": 0.75},
		{"function": "not code", "image": "[unmapped]", "dwarf": 0, "fp": 0.09}
	],
	"wrong_callers": [
		{"caller": "main", "callee": "Hash", "image": "program", "samples": 250, "share": 0.25}
	],
	"stack_sizes": [
		{"bytes": 4096, "complete": 0.61}, {"bytes": 8192, "complete": 0.9},
		{"bytes": 16384, "complete": 0.99},
		{"bytes": 32768, "complete": 0.99}
	],
	"enough_stack_bytes": 11264,
	"complete_elsewhere": 0.006,
	"cost": {"stack_size": 32768, "callchain": {"bytes": 120, "kernel_us": 1.5, "user_us": 0.4,
			"total_us": 2, "total_us_low": 1.7, "total_us_high": 2.5},
		"stack": {"bytes": 33000, "kernel_us": 9.2, "user_us": 22.34,
			"total_us": 32, "total_us_low": 30, "total_us_high": 36}},
	"lint": [],
	"problems": ["no names for\nlibz"]
}`
	var got, wanted map[string]any
	if err := json.Unmarshal(written.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	roundAll(got)
	roundAll(wanted)
	for key := range got {
		if !reflect.DeepEqual(got[key], wanted[key]) {
			t.Errorf("%s:\n%v, want\n%v", key, got[key], wanted[key])
		}
	}
	if len(got) != len(wanted) {
		t.Errorf("%d keys, want %d", len(got), len(wanted))
	}
	var read Result
	r.rows = rows{} // which are of the page alone
	if err := json.Unmarshal(written.Bytes(), &read); err != nil || !reflect.DeepEqual(&read, r) {
		t.Errorf("reading it again: %v\n%+v, want\n%+v", err, read, r)
	}
}

// roundAll rounds all numbers to four digits behind the point.
func roundAll(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if f, ok := e.(float64); ok {
				v[k] = math.Round(1e4*f) / 1e4
			} else {
				roundAll(e)
			}
		}
	case []any:
		for _, e := range v {
			roundAll(e)
		}
	}
}

// TestResultAsText compares the text with the same numbers.
func TestResultAsText(t *testing.T) {
	const want = `With frame pointers 47 % (42–52) of server's 1,000 stacks
are usable, 25 % (21–29) show a call that never was (most in
zlib1g: unexplained), 9 % (6–12) a caller that is no code,
and of 3 % (1–5) it is not known; with DWARF 100 %
(99.3–100) are. DWARF costs 3.2 % (2.9–3.6) of a busy CPU at
999 Hz and frame pointers 0.2 % (0.16–0.25), only while they
profile.

1,000 samples with a user stack (and 7 without), 4 distinct stacks, 12 records lost
the kernel's frame-pointer chain is what the copied stack says in 99.5% of the samples

samples  usable        false           lost  by package
  75.0%  63 % (59–67)  0 % (0–0.6)      0.4  program
  25.0%  0 % (0–2)     100 % (98–100)   1.0  zlib1g 1:1.3

samples   stacks    lost  frame pointers and DWARF
  43.0%    25.0%       ·  same
   4.0%    25.0%     1.0  only start code is missing
  25.0%    25.0%     1.0  the leaf's caller is missing
      ·        ·       ·  frames in the middle are missing
  16.0%    50.0%     2.5  FP stops early
   9.0%    25.0%     2.0  FP goes astray
   3.0%    25.0%     2.0  cut by a limit
      ·        ·       ·  DWARF stops, FP goes on
      ·        ·       ·  both stop
                  (frames that FP misses, on average)

only start code is missing, for instance in 40 samples
  DWARF                         frame pointers
  work                          work
  main                          main
▸ _start

the leaf's caller is missing, for instance in 250 samples
  DWARF                         frame pointers
  Hash                          Hash
▸ work                          main
  main                          _start
  _start

FP stops early, for instance in 120 samples
  DWARF                         frame pointers
  work                          work
▸ main
  _start

FP goes astray, for instance in 90 samples
  DWARF                         frame pointers
  work                          work
▸ main                          not code
  _start

cut by a limit, for instance in 30 samples
  DWARF                         frame pointers
  work                          work
▸ main
  _start

where frame pointers lose the stack, of the stacks that they lose
  50.0%  libz.so.1 (zlib1g 1:1.3): unexplained
  50.0%  program: unexplained

  50.0%  Hash  libz.so.1: unexplained
  50.0%  work  program: unexplained

     FP    DWARF  function, with what it calls
  68.0%   100.0%  _start  program
  72.0%   100.0%  main  program
  75.0%   100.0%  work  program
   9.0%        ·  not code  [unmapped]

calls that frame pointers show and that never were
  25.0%  main → Hash

stacks that are complete             by a copy
  of 4 KiB                               61.0%
  of 8 KiB                               90.0%
  of 16 KiB                              99.0%
  of 32 KiB                              99.0%
  --stack-size 11264 is enough for 99 %
  0.6% are complete by what is not in the copy: another stack, or the kernel's chain

what a sample costs here                 bytes   kernel µs     user µs
  callchain by frame pointers              120         1.5         0.4
  stack, 32768 bytes, and unwinding       33000         9.2        22.3
note: no names for?libz
`
	var text strings.Builder
	r := resultOf(t, counted(), Options{StackSize: 32768, Costs: &countedCosts})
	if err := r.WriteText(&text, Style{Width: 60}); err != nil {
		t.Fatal(err)
	}
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", &text, want)
	}
}

// Without a width, as in a pipe, no name is cut.
func TestTextIsWhole(t *testing.T) {
	r := resultOf(t, counted(), Options{StackSize: 32768, Costs: &countedCosts})
	long := strings.Repeat("std::vector", 20)
	for i := range r.BlameFunctions {
		r.BlameFunctions[i].Function = long
	}
	r.WrongCallers[0].Caller, r.Shares[0].Function = long, long
	for width, want := range map[int]int{0: len(r.BlameFunctions) + 2, 120: 0} {
		var text strings.Builder
		if err := r.WriteText(&text, Style{Width: width}); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text.String(), long); n != want {
			t.Errorf("width %d: %d whole names, want %d\n%s", width, n, want, &text)
		}
	}
}

// TestRowsFit has rows in 80 columns, and whole where lines are not cut.
func TestRowsFit(t *testing.T) {
	r := &Result{Packages: []RowResult{
		{Name: "libssl3t64 3.5.1-1", Share: 0.75, Lost: 3.24, Blame: "libcrypto3", BlameShare: 0.453,
			Usable: PortionResult{Share: 0.501, Low: 0.4981, High: 0.5039}, False: PortionResult{High: 0.006}},
		{Name: "zlib1g", Share: 0.25, Usable: PortionResult{High: 1}, False: PortionResult{High: 0.02}},
	}}
	long := &Result{Packages: []RowResult{
		{Name: strings.Repeat("name", 30), Share: 1, Lost: 123.4, Blame: strings.Repeat("blame", 30), BlameShare: 1,
			Usable: PortionResult{Share: 0.9995, Low: 0.9991, High: 0.9998},
			False:  PortionResult{Share: 0.1234, Low: 0.1231, High: 0.1237}},
	}}
	const short = `
samples  usable              false        lost  by package          most lost in
  75.0%  50.1 % (49.8–50.4)  0 % (0–0.6)   3.2  libssl3t64 3.5.1-1  45.3% libcrypto3
  25.0%  not enough          0 % (0–2)       ·  zlib1g
`
	for _, c := range []struct {
		of    *Result
		width int
		want  string
	}{
		{r, 0, short},
		{r, 90, short},
		{r, 80, `
samples  usable              false        lost  by package        most lost in
  75.0%  50.1 % (49.8–50.4)  0 % (0–0.6)   3.2  libssl3t6….5.1-1  45.3% l…rypto3
  25.0%  not enough          0 % (0–2)       ·  zlib1g
`},
		{long, 80, `
samples  usable                 false                   lost  by package
 100.0%  99.95 % (99.91–99.98)  12.34 % (12.31–12.37)  123.4  namenamena…amename
`},
		{long, 60, `
samples  usable                 false                   lost
 100.0%  99.95 % (99.91–99.98)  12.34 % (12.31–12.37)  123.4
`},
	} {
		var text strings.Builder
		p := newPage(&text, Style{Width: c.width})
		p.rowsBy(ByPackage, c.of.Packages)
		p.w.Flush()
		for line := range strings.Lines(text.String()) {
			if n := human.Columns(strings.TrimSuffix(line, "\n")); c.width > 0 && n > c.width {
				t.Errorf("%d columns of %d: %s", n, c.width, line)
			}
		}
		if text.String() != c.want {
			t.Errorf("in %d columns:%s\nwant%s", c.width, &text, c.want)
		}
	}
}

// TestResultOfARecordingMadeElsewhere has neither costs nor chains by the kernel. No size is enough: 98.9 %
// of the samples are complete with the largest one.
func TestResultOfARecordingMadeElsewhere(t *testing.T) {
	c := counted()
	c.Checked, c.Agreed = 0, 0
	c.Reach = map[int]uint64{2: 610, 7: 290, 11: 89}
	r := resultOf(t, c, Options{StackSize: 16384})
	if r.Kernel != nil || r.Cost != nil || r.Enough != 0 || len(r.StackSizes) != 3 ||
		r.StackSizes[2].Complete != 0.989 {
		t.Errorf("chains %v, costs %v, %d bytes are enough, sizes %v", r.Kernel, r.Cost, r.Enough, r.StackSizes)
	}
	var text strings.Builder
	if err := r.WriteText(&text, Style{}); err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]bool{
		"no size that was tried is enough for 99 %": true, "kernel's frame-pointer chain": false,
		"what a sample costs": false,
	} {
		if strings.Contains(text.String(), word) != want {
			t.Errorf("%q is there: %v\n%s", word, !want, &text)
		}
	}
}
