package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"unspool/testdata/programs"
)

// TestStoppedAndContinued stops unspool while it records, longer than its rings last: what was lost is
// counted, and the recording ends like any other.
func TestStoppedAndContinued(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	r := start(t, dir, nil, "record", "-F", "4999", "-m", "16", "-o", "perf.data", "--stats", "stats.json",
		"-d", "3",
		"--", programs.Build(t, "burn"), "0")
	time.Sleep(500 * time.Millisecond)
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	e := r.finish(t, time.Minute)
	content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil || e.status != 0 {
		t.Fatalf("status %d, %v\n%s", e.status, err, e.stderr)
	}
	s := readStatistics(t, content)
	t.Logf("%d samples, %d lost, %d of %d stacks are complete", s.Samples.Total, s.Samples.Lost,
		s.Unwind.Complete,
		s.Samples.User)
	if s.Samples.Lost == 0 || !strings.Contains(e.stderr, "records were lost") || s.incomplete() > 0.01 {
		t.Errorf("%d lost; ended %v\n%s", s.Samples.Lost, s.Unwind.Ended, e.stderr)
	}
}

// TestNamesThatAreMadeToMislead records a program whose file's name has what terminals obey and pages
// interpret: nothing that is printed or written as text has it.
func TestNamesThatAreMadeToMislead(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	const name = "a\x1b]0;owned\a\u009b31m\u202e<script>alert(1)</script>"
	program := filepath.Join(dir, strings.ReplaceAll(name, "/", ""))
	copyFile(t, programs.Build(t, "burn"), program)
	r := unspool(t, dir, "record", "-v", "-o", "perf.data", "-d", "0.5", "--", program, "0")
	report := unspool(t, dir, "report", "perf.data")
	asJSON := unspool(t, dir, "report", "--json", "perf.data")
	page := unspool(t, dir, "convert", "-q", "perf.data", "-o", "page.html")
	for _, e := range []ended{r, report, asJSON, page} {
		if e.status != 0 {
			t.Fatalf("status %d\n%s", e.status, e.stderr)
		}
		for _, c := range e.stdout + e.stderr {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Errorf("%q is printed:\n%q", c, e.stdout+e.stderr)
				break
			}
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, "page.html"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), "<script>alert") {
		t.Error("the page has the name as markup")
	}
}
