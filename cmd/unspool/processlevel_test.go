package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A recording of several programs begins with their names in all formats, one of a single program does not.
func TestProcessLevel(t *testing.T) {
	t.Parallel()
	single := halvesRecording(t)
	dir := t.TempDir()
	var touchers []*toucher
	touches := []string{"stirs", "works"}
	for _, names := range [][2]string{{"first", "stirs"}, {"second", "works"}} { // of the program and its thread
		touchers = append(touchers, runToucher(t, exec.Command(buildToucher(t, names[0]), names[1])))
	}
	for _, p := range touchers {
		p.touch(counted) // the main thread has its code then, and takes no sample
	}
	r, control := startControlled(t, dir, slices.Concat([]string{"record", "-q", "-o", "two.data"},
		faultsOf(touchers...))...)
	control("enable")
	for _, p := range touchers {
		p.touch(counted)
	}
	control("ping") // so that they are read while they run
	control("stop")
	if e := r.finish(t, time.Minute); e.status != 0 {
		t.Fatalf("record: status %d\n%s", e.status, e.stderr)
	}
	programs := regexp.MustCompile(`(?m)^programs  (first|second) [\d.]+ %, .*\(--by comm\)$`)
	out := unspool(t, "", "report", single).stdout
	if !strings.Contains(out, "call tree") || strings.Contains(out, "\nprograms ") ||
		regexp.MustCompile(`(?m)^[^a-z]*halves$`).MatchString(out) {
		t.Errorf("a single program has a level of its own:\n%s", out)
	}
	for option, want := range map[string]bool{"--by=image": true, "--by=comm": false, "--no-process": false} {
		out := unspool(t, dir, "report", option, "two.data").stdout
		if programs.MatchString(out) != want {
			t.Errorf("%s: the header names programs: %v, want %v\n%s", option, !want, want, out)
		}
	}
	out = unspool(t, dir, "report", "two.data").stdout
	if !programs.MatchString(out) {
		t.Errorf("the header does not name the programs:\n%s", out)
	}
	// The function in which a thread begins. It has no name where libc's symbols are not installed.
	const root = `(clone3|\[libc\.so\.6\+0x[0-9a-f]+\])`
	for _, name := range []string{"first", "second"} {
		if !regexp.MustCompile(`(?m)^[^a-z]*─ ` + name + `\n[^a-z]*` + root + `(  libc\.so\.6)?$`).MatchString(out) {
			t.Errorf("%s is not above its threads in the call tree:\n%s", name, out)
		}
	}
	// The threads that are sampled have renamed themselves, and the main threads have no sample.
	out = unspool(t, dir, "report", "--by", "process", "two.data").stdout
	json := unspool(t, dir, "report", "--json", "--by", "process", "two.data").stdout
	if threads := unspool(t, dir, "report", "--by", "comm", "two.data").stdout; strings.Contains(threads, "%  first") {
		t.Errorf("a main thread has samples:\n%s", threads)
	}
	converted(t, dir, "two.json.gz")
	firefox, syscap := output(t, dir, "gzip", "-dc", "two.json.gz"), converted(t, dir, "two.syscap")
	for i, name := range []string{"first", "second"} {
		pid := touchers[i].pid
		if !strings.Contains(out, fmt.Sprintf(" %s (%d)  %s\n", name, pid, name+" "+touches[i])) {
			t.Errorf("--by process does not name %s:\n%s", name, out)
		}
		if !strings.Contains(json, fmt.Sprintf(`"comm":"%s","pid":%d,`, name, pid)) {
			t.Errorf("--by process does not name %s in JSON", name)
		}
		if !strings.Contains(firefox,
			fmt.Sprintf(`"processName":"%s","processType":"default","pid":"%d"`, name, pid)) {
			t.Errorf("Firefox's processName is not %s", name)
		}
		if !strings.Contains(syscap, "\x00"+name+"\x00") {
			t.Errorf("Sysprof has no process %s", name)
		}
	}
	if out := unspool(t, dir, "report", "--by", "process", "two.data", "two.data").stdout; strings.Contains(out, "stirs") {
		t.Errorf("a difference names threads:\n%s", out)
	}
	out = unspool(t, dir, "report", "--no-process", "two.data").stdout
	if regexp.MustCompile(`(?m)^[^a-z]*(first|second)$`).MatchString(out) {
		t.Errorf("programs in the call tree in spite of --no-process:\n%s", out)
	}
	for _, c := range []struct{ file, with, without string }{
		{"two.folded", `(?m)^stirs;` + root + `;`, `(?m)^` + root + `;`},
		{"two.svg", `<title>second\nprocess\ntotal`, ``},
		{"two.speedscope.json", `"name":"second","file":"\[process\]"`, ``},
	} {
		if have := converted(t, dir, c.file); !regexp.MustCompile(c.with).MatchString(have) {
			t.Errorf("%s: no %s", c.file, c.with)
		}
		have := converted(t, dir, c.file, "--no-process")
		if regexp.MustCompile(c.with).MatchString(have) || !regexp.MustCompile(c.without).MatchString(have) {
			t.Errorf("%s --no-process: %s, or no %s", c.file, c.with, c.without)
		}
	}
	if e := unspool(t, dir, "convert", "two.data", "-o", "two.pb.gz", "--no-process"); e.status == 0 ||
		!strings.Contains(e.stderr, "in pprof stacks do not begin with") {
		t.Errorf("pprof --no-process: status %d\n%s", e.status, e.stderr)
	}
	converted(t, dir, "two.pb.gz")
	top := output(t, dir, "go", "tool", "pprof", "-top", "-cum", "-tagroot", "process", "two.pb.gz")
	for _, name := range []string{"first", "second"} {
		if !regexp.MustCompile(`(?m)% +` + name + `$`).MatchString(top) {
			t.Errorf("pprof -tagroot: no %s in\n%s", name, top)
		}
	}
}

// converted is the recording two.data in the format of a file's ending.
func converted(t *testing.T, dir, file string, args ...string) string {
	t.Helper()
	e := unspool(t, dir, append([]string{"convert", "-q", "two.data", "-o", file}, args...)...)
	if e.status != 0 {
		t.Fatalf("convert -o %s: status %d\n%s", file, e.status, e.stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
