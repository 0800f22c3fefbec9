package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/testdata/recordings"
)

// What those used to perf type does what it does there, or what it comes nearest to.
func TestReportAsPerf(t *testing.T) {
	t.Parallel()
	dir := recordings.Place(t, "before")
	report := func(args ...string) string {
		t.Helper()
		e := unspool(t, dir, append([]string{"report"}, args...)...)
		if e.status != 0 || e.stdout == "" {
			t.Fatalf("report %q: status %d\n%s", args, e.status, e.stderr)
		}
		return e.stdout
	}
	const data = "before.data"
	for asPerf, own := range map[string]string{
		"-i before.data": "", "--stdio --input before.data": "", "--stdio --sort symbol": "", "--sort dso,symbol": "",
		"--sort comm,dso,symbol": "--by comm", "--sort dso": "--by image", "--sort pid,sym": "--by process",
		"--sort tid": "--by thread", "--sort srcline,symbol": "--by source",
	} {
		args := strings.Fields(asPerf)
		if !strings.Contains(asPerf, data) {
			args = append(args, data)
		}
		if have, want := report(args...), report(append(strings.Fields(own), data)...); have != want {
			t.Errorf("%s:\n%s\nwant as by %q\n%s", asPerf, have, own, want)
		}
	}
}

// --html writes a page about one recording, beside it unless it is named.
func TestReportHTML(t *testing.T) {
	t.Parallel()
	dir := recordings.Place(t, "before", "after")
	if err := os.Rename(filepath.Join(dir, "after.data"), filepath.Join(dir, "perf.data")); err != nil {
		t.Fatal(err)
	}
	for line, page := range map[string]string{
		"before.data --html": "before.data.html", "--html": "perf.data.html",
		"--html own.html before.data": "own.html", "before.data --html=named": "named",
		"--html only.html --comm app-new": "only.html",
	} {
		e := unspool(t, dir, append([]string{"report"}, strings.Fields(line)...)...)
		if e.status != 0 || e.stdout != "" || !strings.Contains(e.stderr, " in "+page+" (flamegraph)") {
			t.Errorf("report %s: %+v", line, e)
			continue
		}
		if text := string(mustRead(t, filepath.Join(dir, page))); !strings.HasPrefix(text, "<!doctype html>") {
			t.Errorf("report %s writes %.100q", line, text)
		}
	}
	e := unspool(t, dir, "report", "--html", "none.html", "--comm", "no-such-name")
	if !strings.Contains(e.stderr, "no samples of") && !strings.HasPrefix(e.stderr, "0 samples in") {
		t.Errorf("the filter does not count: %+v", e)
	}
}

// --wide shows on a terminal what is shown in a pipe.
func TestWide(t *testing.T) {
	t.Parallel()
	dir := recordings.Place(t, "before", "after")
	for _, args := range [][]string{
		{"report", "before.data"}, {"report", "before.data", "after.data"},
	} {
		piped := unspool(t, dir, args...).stdout
		for _, wide := range []bool{false, true} {
			terminal, written := openTerminal(t, 60)
			options := []string{args[0], "--color", "never"}
			if wide {
				options = append(options, "--wide")
			}
			r := start(t, dir, func(cmd *exec.Cmd) {
				cmd.Stdout = terminal
				cmd.Env = append(os.Environ(), "PAGER=cat")
			}, append(options, args[1:]...)...)
			e := r.finish(t, time.Minute)
			terminal.Close()
			text := strings.ReplaceAll(written(), "\r\n", "\n")
			if e.status != 0 || (text == piped) != wide {
				t.Errorf("%q, wide %v: status %d\n%s\nin a pipe\n%s", args, wide, e.status, text, piped)
			}
		}
	}
}

// --time of a conversion into perf.data has the samples of that time, and what is needed to read them.
func TestConvertOfAPart(t *testing.T) {
	t.Parallel()
	dir := recordings.Place(t, "raw", "before")
	for _, name := range []string{"raw.data", "before.data"} {
		data, part := filepath.Join(dir, name), filepath.Join(dir, "part.data")
		self := func(r reported) map[string]uint64 {
			by := make(map[string]uint64)
			for _, e := range r.Events {
				for _, f := range e.Functions {
					by[e.Name+" "+f.Name+" "+f.Image] += f.Self
				}
			}
			return by
		}
		whole := reportJSON(t, data)
		for _, within := range []string{"30%,60%", "60%,"} {
			want := reportJSON(t, "--time", within, data)
			for _, jobs := range []string{"1", "3"} {
				e := unspool(t, dir, "convert", name, "-o", "part.data", "--time", within, "-j", jobs)
				if e.status != 0 {
					t.Fatalf("%s: %+v", within, e)
				}
				got := reportJSON(t, part)
				if got.Header.Samples != want.Header.Samples || got.Header.Samples == 0 ||
					got.Header.Samples >= whole.Header.Samples {
					t.Errorf("%s of %s: %d samples, want %d of %d", within, name, got.Header.Samples, want.Header.Samples,
						whole.Header.Samples)
				}
				if !maps.Equal(self(got), self(want)) {
					t.Errorf("%s of %s: %v, want %v", within, name, self(got), self(want))
				}
			}
		}
		// Of no samples nothing is written, and what was there stays.
		was := mustRead(t, part)
		e := unspool(t, dir, "convert", name, "-o", "part.data", "--time", "1000,2000")
		if e.status != statusFailure || !strings.HasSuffix(e.stderr, "unspool: no samples between 1000 s and 2000 s\n") {
			t.Errorf("%+v", e)
		}
		if string(mustRead(t, part)) != string(was) {
			t.Errorf("%s: the output was replaced", name)
		}
		old, _ := filepath.Glob(filepath.Join(dir, ".unspool-*"))
		if len(old) > 0 {
			t.Errorf("files are left: %q", old)
		}
	}
}
