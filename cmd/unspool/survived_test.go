package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	proto "github.com/google/pprof/profile"

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
// interpret: nothing that is printed or written as text has it, in no format.
func TestNamesThatAreMadeToMislead(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	const name = "a\x7f\x1b]0;owned\a\u009b31m\u202e<script>alert(1)</script>\u200b\xff"
	program := filepath.Join(dir, strings.ReplaceAll(name, "/", ""))
	copyFile(t, programs.Build(t, "plain"), program)
	printed := func(what, text string) {
		t.Helper()
		if i := strings.IndexFunc(text, func(c rune) bool { return c != '\n' && unicode.Is(unicode.C, c) }); i >= 0 {
			t.Errorf("%s has %q:\n%.5000q", what, []rune(text[i:])[0], text)
		}
		if !utf8.ValidString(text) {
			t.Errorf("%s is no UTF-8", what)
		}
	}
	run := func(args ...string) {
		t.Helper()
		e := unspool(t, dir, args...)
		if e.status != 0 {
			t.Fatalf("%q: status %d\n%s", args, e.status, e.stderr)
		}
		printed(strings.Join(args[:2], " "), e.stdout+e.stderr)
	}
	of := []string{"--", program, programs.Times(counted)}
	run(slices.Concat([]string{"record", "-v", "-o", "perf.data", "--stats", "stats.json"}, programs.Faults(), of)...)
	run("report", "perf.data")
	run("report", "--json", "perf.data")
	run("report", "--json", "perf.data", "perf.data")
	run("report", "perf.data", "perf.data")
	run("check", "perf.data")
	run("check", "--json", "perf.data")
	for _, f := range []string{"stats.json", "flame.html", "flame.svg", "stacks.folded", "speedscope.json",
		"firefox.json.gz", "pprof.pb.gz"} {
		if f != "stats.json" {
			run("convert", "-q", "perf.data", "-o", f, "--format", strings.NewReplacer("flame", "flamegraph",
				"stacks", "folded").Replace(f[:strings.IndexByte(f, '.')]))
		}
		content, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			if content, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if f == "pprof.pb.gz" {
			p, err := proto.ParseData(content)
			if err != nil {
				t.Fatal(err)
			}
			content = []byte(p.String())
		}
		if strings.Contains(string(content), "<script>alert") && strings.HasSuffix(f, "ml") {
			t.Errorf("%s has the name as markup", f)
		}
		printed(f, string(content))
	}
}
