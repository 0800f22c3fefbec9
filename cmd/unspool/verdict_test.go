package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/verdict/compare"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// keepsFrames are the flags with which GCC keeps the frame pointer in all functions of usable.c, and on all of their
// paths.
var keepsFrames = []string{"-O2", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-shrink-wrap"}

func buildUsable(t *testing.T, flags ...string) string {
	t.Helper()
	return programs.BuildFile(t, "../../capture/verdict/compare/testdata/usable.c", flags...)
}

// inCI is README's line.
var inCI = []string{"compare", "-q", "--json", "--fail-under", "usable=90", "--fail-over", "false=5"}

// comparedJSON is what compare --json wrote.
func comparedJSON(t *testing.T, e ended) *compare.Result {
	t.Helper()
	r := new(compare.Result)
	if err := json.Unmarshal([]byte(e.stdout), r); err != nil {
		t.Fatalf("%v\n%s", err, e.stderr)
	}
	return r
}

// TestVerdictOfAProgram compares a program by the pages that it touches, 8,000 below 20 calls of its own, and at its
// start some in the C library, which has no frame pointers. README's line for CI passes for the program with them, and
// fails for the same program without.
func TestVerdictOfAProgram(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const touches = 8000
	for _, c := range []struct {
		name   string
		flags  []string
		status int
		usable bool
	}{
		{"with frame pointers", keepsFrames, 0, true},
		{"without", []string{"-O2", "-fomit-frame-pointer"}, statusUnder, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := buildUsable(t, c.flags...)
			name := filepath.Base(program)
			e := unspool(t, t.TempDir(), slices.Concat(inCI, programs.Faults(), []string{"--stack-size", "4096", "--", program,
				fmt.Sprint(touches)})...)
			if e.status != c.status {
				t.Errorf("status %d: %s", e.status, e.stderr)
			}
			r := comparedJSON(t, e)
			v := r.Verdict
			t.Log(v.Sentence)
			others := r.Samples - touches // where the program starts
			if r.Samples < touches || others > touches/20 {
				t.Fatalf("%d samples", r.Samples)
			}
			if usable := v.Usable.Samples; c.usable && usable < touches || !c.usable && usable > others {
				t.Errorf("%d of %d samples are usable", usable, r.Samples)
			}
			if v.Reaches.Samples*1000 < r.Samples*999 || !v.Enough || v.False.Samples > others {
				t.Errorf("%+v", v)
			}
			if first := "With frame pointers "; c.usable && !strings.HasPrefix(v.Sentence, first) {
				t.Errorf("%q does not begin with %q", v.Sentence, first)
			}
			if want := fmt.Sprintf("of %s's ", name); !strings.Contains(v.Sentence, want) {
				t.Errorf("%q is not in %q", want, v.Sentence)
			}
			if !c.usable {
				if under := "unspool: usable: "; !strings.HasPrefix(e.stderr, under) || strings.Count(e.stderr, "\n") != 1 {
					t.Errorf("%q", e.stderr)
				}
				if b := r.Programs[0]; b.Blame != name || b.Lost < 19 {
					t.Errorf("%+v", b)
				}
			}
		})
	}
}

// TestVerdictByProgram compares a shell and two programs: a row each, in text and in JSON, by the order that is asked
// for; one of them alone; and too few samples. One question is of a command, and the others are of a recording, as
// before a command the cost of a sample is measured, which takes two seconds of CPU time.
func TestVerdictByProgram(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	with, without := filepath.Join(dir, "with"), filepath.Join(dir, "without")
	copyFile(t, buildUsable(t, keepsFrames...), with)
	copyFile(t, buildUsable(t, "-O2", "-fomit-frame-pointer"), without)
	command := []string{"--", "sh", "-c", "./with 3000; ./without 2000"}
	names := func(rows []compare.RowResult) (list []string) {
		for _, r := range rows {
			list = append(list, r.Name)
		}
		return list
	}
	r := comparedJSON(t, unspool(t, dir, slices.Concat([]string{"compare", "-q", "--stack-size", "4096", "--json",
		"--sort", "lost"}, programs.Faults(), command)...))
	if have := names(r.Programs); len(have) != 3 || have[0] != "without" {
		t.Errorf("by frames lost: %q", have)
	}
	if strings.Contains(r.Verdict.Sentence, "'s ") {
		t.Errorf("one program of three is named: %s", r.Verdict.Sentence)
	}
	sum := uint64(0)
	for _, row := range r.Programs {
		sum += row.Samples
		if row.Usable.Share > 1 || row.False.Share > 1 || row.BlameShare > 1 {
			t.Errorf("more than all: %+v", row)
		}
	}
	if sum != r.Samples {
		t.Errorf("%d samples in rows, of %d", sum, r.Samples)
	}
	need(t, "perf")
	perf := lane.UserPerf(slices.Concat([]string{"record", "-q", "-B", "-N", "-m", "32M", "-o", "perf.data",
		"--call-graph", "dwarf,4096"},
		programs.Faults(), command)...)
	perf.Dir = dir
	if out, err := perf.CombinedOutput(); err != nil {
		t.Skipf("%v: %v\n%s", perf, err, out)
	}
	run := func(args ...string) ended {
		t.Helper()
		return unspool(t, dir, slices.Concat([]string{"compare", "-q"}, args, []string{"perf.data"})...)
	}
	text := run("--by", "program,comm").stdout
	_, rows, _ := strings.Cut(text, "by program ")
	if !strings.HasPrefix(text, "With frame pointers ") || !strings.Contains(rows, "by comm ") ||
		strings.Contains(text, "by package ") || strings.Index(rows, "  with") > strings.Index(rows, "  without") {
		t.Errorf("%s", text)
	}
	alone := comparedJSON(t, run("--json", "--comm", "with"))
	if have := names(alone.Programs); !slices.Equal(have, []string{"with"}) || alone.Samples < 3000 {
		t.Errorf("%d samples of %q", alone.Samples, have)
	}
	if e := run("--comm", "nobody"); e.status != statusFailure || !strings.Contains(e.stderr, "nobody") {
		t.Errorf("of nobody: status %d: %s", e.status, e.stderr)
	}
	few := run("--comm", "sh", "--fail-under", "usable=0")
	if few.status != statusUnder || !strings.HasPrefix(few.stdout, "Not enough to say ") ||
		!strings.Contains(few.stderr, "usable: not enough samples to say: ") {
		t.Errorf("too few: status %d: %s\n%.300s", few.status, few.stderr, few.stdout)
	}
}

// TestVerdictIsTheSame compares the program of TestVerdictOfAProgram by CFI alone, and as a recording: the same
// sentence, about the same stacks.
func TestVerdictIsTheSame(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const touches = 5000
	program := buildUsable(t, keepsFrames...)
	options := slices.Concat([]string{"compare", "-q", "--json", "--stack-size", "4096"}, programs.Faults())
	command := []string{"--", program, fmt.Sprint(touches)}
	check := func(t *testing.T, e ended) {
		t.Helper()
		if e.status != 0 {
			t.Fatalf("status %d: %s", e.status, e.stderr)
		}
		v := comparedJSON(t, e).Verdict
		// How wide the interval is depends on how the samples of the start lie in time. What is said follows from that.
		want := "With frame pointers 9"
		if !v.Enough {
			want = "Not enough to say"
		}
		if !strings.HasPrefix(v.Sentence, want) || v.Usable.Samples < touches || v.Usable.Share < 0.99 {
			t.Errorf("%d are usable: %s", v.Usable.Samples, v.Sentence)
		}
	}
	t.Run("by CFI alone", func(t *testing.T) {
		check(t, unspool(t, t.TempDir(), slices.Concat(options, []string{"--strict"}, command)...))
	})
	t.Run("a recording", func(t *testing.T) {
		need(t, "perf")
		path := filepath.Join(t.TempDir(), "perf.data")
		perf := lane.UserPerf(slices.Concat([]string{"record", "-q", "-B", "-N", "-m", "32M", "--call-graph",
			"dwarf,4096", "-o", path}, programs.Faults(), command)...)
		if out, err := perf.CombinedOutput(); err != nil {
			t.Skipf("%v: %v\n%s", perf, err, out)
		}
		check(t, unspool(t, t.TempDir(), "compare", "-q", "--json", path))
	})
}

// TestMachineVerdict runs README's line by the clock.
func TestMachineVerdict(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	for _, c := range []struct {
		flags  []string
		status int
	}{{keepsFrames, 0}, {[]string{"-O2", "-fomit-frame-pointer"}, statusUnder}} {
		e := unspool(t, t.TempDir(), slices.Concat(inCI, []string{"--", buildUsable(t, c.flags...), "2000", "1000000"})...)
		lane.Figure(t, "%s", comparedJSON(t, e).Verdict.Sentence)
		if e.status != c.status {
			t.Errorf("%q: status %d: %s", c.flags, e.status, e.stderr)
		}
	}
}
