package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"unspool/testdata/programs"
)

// TestStoppedAndContinued stops unspool while it records, longer than its rings last: what was lost is
// counted, and the recording ends like any other.
func TestStoppedAndContinued(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const times = 2000
	proc := programs.StartCounted(t, programs.Build(t, "plain"), times)
	// No files are read that the program maps: it has ended when it is recorded on.
	r := startRecording(t, slices.Concat(programs.Faults(), []string{"-m", "16", "-p",
		strconv.Itoa(proc.Process.Pid)})...)
	r.drained()
	signal := func(sig syscall.Signal) {
		t.Helper()
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	untilStopped(t, r.Process.Pid)
	proc.Continue()
	<-proc.Ended()
	signal(syscall.SIGCONT)
	got := r.end(t)
	s := got.stats.Samples
	t.Logf("%d samples, %d lost", s.Total, s.Lost)
	if s.Lost == 0 || s.Total+s.Lost < times || s.Total+s.Lost > times+100 ||
		!strings.Contains(got.stderr, "records were lost") {
		t.Errorf("%d samples, %d lost, of %d\n%s", s.Total, s.Lost, times, got.stderr)
	}
	got.whollyComplete(t)
}

// TestNamesThatAreMadeToMislead records a program whose file's name has what terminals obey and pages
// interpret: nothing that is printed or written as text has it.
func TestNamesThatAreMadeToMislead(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	const name = "a\x1b]0;owned\a\u009b31m\u202e<script>alert(1)</script>"
	program := filepath.Join(dir, strings.ReplaceAll(name, "/", ""))
	copyFile(t, programs.Build(t, "plain"), program)
	r := unspool(t, dir, slices.Concat([]string{"record", "-v", "-o", "perf.data"}, programs.Faults(),
		[]string{"--", program, programs.Times(counted)})...)
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
