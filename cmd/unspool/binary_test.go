package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/lane"
	"unspool/testdata/oldkernel"
	"unspool/testdata/programs"
)

// The tests here run the program itself, built once, against the kernel, and
// read what it wrote with perf and with its own reader.

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	oldkernel.Main()
	status, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "unspool-test")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "unspool")
	if built := os.Getenv("UNSPOOL_BINARY"); built != "" { // the Makefile has just built it
		if err := os.Link(built, binary); err != nil {
			binary = built
		}
	} else {
		// As the Makefile does, by which its packages have been compiled.
		build := exec.Command("go", "build", "-trimpath", "-o", binary, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	status := m.Run()
	if !edgesAreRight() && status == 0 {
		status = 1
	}
	return status, nil
}

func needRoot(t testing.TB)              { t.Helper(); lane.Root(t) }
func need(t testing.TB, tools ...string) { t.Helper(); lane.Tools(t, tools...) }

// needTracepoints skips the test where no tracefs is mounted, without which events of that kind have no
// number.
func needTracepoints(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/sys/kernel/tracing/events/sched"); err != nil {
		t.Skip(err)
	}
}

// noPerfConfig leaves perf's build-ID cache where it is by default: the tests have one of their own.
const noPerfConfig = "PERF_CONFIG=/dev/null"

// ended is the output and status of a program that has ended.
type ended struct {
	stdout, stderr string
	status         int           // 128+n when signal n ended it
	cpu            time.Duration // that it and what it has waited for had
	took           time.Duration // from its start to its end
}

// lines are those of stderr.
func (e ended) lines() []string {
	return strings.FieldsFunc(e.stderr, func(r rune) bool { return r == '\n' })
}

var summary = regexp.MustCompile(`(^|\n)[\d,]+ samples? in `)

// hasSummary reports whether a text has the summary of a recording.
func hasSummary(text string) bool { return summary.MatchString(text) }

// A running program, with what it has printed so far.
type running struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	began          time.Time
	took           time.Duration
	done           chan struct{}
	waited         sync.Once
}

// start starts the program under test in a directory. The caller may change
// the command before it starts.
func start(t testing.TB, dir string, change func(*exec.Cmd), args ...string) *running {
	t.Helper()
	r := &running{Cmd: exec.Command(binary, args...), done: make(chan struct{})}
	r.Dir = dir
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	r.WaitDelay = 5 * time.Second // a command that outlives it may hold its pipes
	if change != nil {
		change(r.Cmd)
	}
	r.began = time.Now()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Process.Kill() // fails when it has ended: fine
		r.wait()
	})
	return r
}

func (r *running) wait() ended {
	r.waited.Do(func() {
		r.Wait()
		r.took = time.Since(r.began)
		close(r.done)
	})
	<-r.done
	cpu := r.ProcessState.UserTime() + r.ProcessState.SystemTime()
	return ended{r.stdout.String(), r.stderr.String(), exitStatus(r.ProcessState), cpu, r.took}
}

// finish waits for the end; a program that does not end in time fails the test.
func (r *running) finish(t testing.TB, within time.Duration) ended {
	t.Helper()
	late := time.AfterFunc(within, func() { r.Process.Signal(syscall.SIGABRT) })
	e := r.wait()
	if !late.Stop() {
		t.Fatalf("%s did not end within %v:\n%s", r.Cmd, within, e.stderr)
	}
	return e
}

func exitStatus(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// unspool runs the program under test to its end.
func unspool(t testing.TB, dir string, args ...string) ended {
	t.Helper()
	return unspoolWith(t, nil, dir, args...)
}

// unspoolWith runs it with an environment in addition, and its temporary files in a folder of everybody's that has to
// be empty at the end.
func unspoolWith(t testing.TB, env []string, dir string, args ...string) ended {
	t.Helper()
	folder := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(folder), 0o755), os.Chmod(folder, 0o1777)); err != nil {
		t.Fatal(err)
	}
	e := start(t, dir, func(cmd *exec.Cmd) {
		cmd.Env = slices.Concat(os.Environ(), env, []string{"TMPDIR=" + folder})
	}, args...).finish(t, time.Minute)
	left, err := os.ReadDir(folder)
	if err != nil || len(left) > 0 {
		t.Errorf("unspool %v left %v, %v", args, left, err)
	}
	return e
}

// output runs a tool and returns what it printed; one that fails fails the test.
func output(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	need(t, name)
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}

// statistics are what --stats writes.
type statistics struct {
	Version  int
	Duration float64 `json:"duration_s"`
	Command  []string
	Samples  struct {
		Total, User, Lost, Throttled, Malformed uint64
		KernelOnly                              uint64 `json:"kernel_only"`
		Exec, Denied, Excluded                  uint64
		ExcludedBy                              struct {
			Idle, Guest, Outside uint64
		} `json:"excluded_by"`
	}
	Unread       struct{ Processes, Samples uint64 }
	Forgotten    struct{ Processes, Threads, Mappings uint64 }
	CommandLines struct {
		Kept, Unread uint64
		LeftOut      uint64 `json:"left_out"`
	} `json:"command_lines"`
	OfflineCPUs []int `json:"offline_cpus"`
	Unwind      struct {
		Complete, Frames uint64
		CompleteBy       map[string]uint64 `json:"complete_by"`
		Read             uint64
		Ended, Cut       map[string]uint64
		Unjoined         map[string]uint64
		FramesBy         map[string]uint64 `json:"frames_by"`
	}
	Cost struct {
		CPU       float64 `json:"cpu_s"`
		CPUShare  float64 `json:"cpu_share"`
		Start     float64 `json:"start_cpu_s"`
		End       float64 `json:"end_cpu_s"`
		PerSample float64 `json:"us_per_sample"`
		MaxRSS    uint64  `json:"max_rss_bytes"`
		Priority  string
	}
	Rings struct {
		Each  int     `json:"each_bytes"`
		Total int     `json:"total_bytes"`
		Stack int     `json:"stack_bytes"`
		Lasts float64 `json:"lasts_s"`
	}
	Bytes struct {
		StackCopied uint64 `json:"stack_copied"`
		Written     uint64
	}
}

// addUp checks that the statistics add up as 'unspool help json' says.
func (s *statistics) addUp(t testing.TB) {
	t.Helper()
	if a, b := s.Cost.CPUShare*s.Duration, s.Cost.PerSample*float64(s.Samples.Total)/1e6; s.Samples.Total > 0 &&
		math.Abs(a-b) > 1e-6 {
		t.Errorf("cost: %.6f s of CPU time by its share, %.6f s by samples", a, b)
	}
	sum := func(m map[string]uint64) (n uint64) {
		for _, v := range m {
			n += v
		}
		return n
	}
	if s.Version != 1 {
		t.Errorf("stats: version %d", s.Version)
	}
	if s.Samples.User+s.Samples.KernelOnly != s.Samples.Total {
		t.Errorf("stats: user and kernel_only do not add up to total: %+v", s.Samples)
	}
	if s.Samples.Exec > s.Samples.KernelOnly {
		t.Errorf("stats: more samples inside execve than without a user stack: %+v", s.Samples)
	}
	if sum(s.Unwind.Ended) != s.Samples.User || s.Unwind.Complete != s.Unwind.Ended["root"] {
		t.Errorf("stats: %d user samples, but %+v", s.Samples.User, s.Unwind)
	}
	by := s.Samples.ExcludedBy
	if by.Idle+by.Guest+by.Outside != s.Samples.Excluded || s.Samples.Denied > s.Samples.User {
		t.Errorf("stats: excluded and denied do not add up: %+v", s.Samples)
	}
	if sum(s.Unwind.CompleteBy) != s.Unwind.Complete {
		t.Errorf("stats: complete_by does not add up to complete: %+v", s.Unwind)
	}
	if sum(s.Unwind.Cut) != s.Unwind.Ended["dump_too_short"] {
		t.Errorf("stats: cut does not add up to dump_too_short: %+v", s.Unwind)
	}
	if sum(s.Unwind.Unjoined) != s.Unwind.Ended["dump_too_short"] {
		t.Errorf("stats: unjoined does not add up to dump_too_short: %+v", s.Unwind)
	}
	if sum(s.Unwind.FramesBy) != s.Unwind.Frames {
		t.Errorf("stats: frames_by does not add up to frames: %+v", s.Unwind)
	}
	if s.Samples.Malformed > 0 {
		t.Errorf("stats: %d malformed records", s.Samples.Malformed)
	}
}

// incomplete is the share of the user stacks that did not reach their root, of those of which the kernel
// copied anything.
func (s *statistics) incomplete() float64 {
	return 1 - float64(s.Unwind.Complete)/float64(s.Samples.User-s.Unwind.Cut["no_copy"])
}

func readStatistics(t testing.TB, content []byte) (s statistics) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields() // 'unspool help json' says what is in it
	if err := d.Decode(&s); err != nil {
		t.Fatalf("stats: %v\n%s", err, content)
	}
	return s
}

// recording is one that the program under test made.
type recording struct {
	path  string
	stats statistics
	ended
}

// record runs unspool record with the arguments, which name no output, and
// expects it to succeed.
func record(t testing.TB, args ...string) recording {
	t.Helper()
	dir := t.TempDir()
	path, stats := filepath.Join(dir, "perf.data"), filepath.Join(dir, "stats.json")
	e := unspool(t, dir, append([]string{"record", "-o", path, "--stats", stats}, args...)...)
	if e.status != 0 {
		t.Fatalf("unspool record %s: status %d\n%s", strings.Join(args, " "), e.status, e.stderr)
	}
	return made(t, path, stats, e)
}

// made is the recording at a path, which has been made. Its statistics add up, and its edges are checked.
func made(t testing.TB, path, stats string, e ended) recording {
	t.Helper()
	content, err := os.ReadFile(stats)
	if err != nil {
		t.Fatal(err)
	}
	r := recording{path, readStatistics(t, content), e}
	r.stats.addUp(t)
	if size := fileSize(t, path); size != r.stats.Bytes.Written {
		t.Errorf("stats: %d bytes written, but the file has %d", r.stats.Bytes.Written, size)
	}
	checkEdges(t, path, r.stats.Unwind.FramesBy)
	return r
}

func fileSize(t testing.TB, path string) uint64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(st.Size())
}

// sample is one that perf script printed.
type sample struct {
	comm         string
	pid, tid     int
	time         time.Duration // CLOCK_MONOTONIC
	event        string
	kernel, user []frame // leaf first
}

type frame struct {
	ip       uint64
	name, in string // function, file
}

// outermost is the frame at the root of the user stack.
func (s *sample) outermost() frame { return s.user[len(s.user)-1] }

// names are those of the user stack, leaf first.
func (s *sample) names() (names []string) {
	for _, f := range s.user {
		names = append(names, f.name)
	}
	return names
}

var scriptHead = regexp.MustCompile(`^(.*?)\s+(-?\d+)/(-?\d+)\s+(\d+)\.(\d+):\s+(.*):\s*$`)

// parseFrame parses a line like "    7f0123 function (file)". There are so many that a regular expression took most of
// the time of some tests.
func parseFrame(line string) (f frame, ok bool) {
	addr, rest, _ := strings.Cut(strings.TrimLeft(line, " \t"), " ")
	at := strings.LastIndex(rest, " (")
	if at < 0 || !strings.HasSuffix(rest, ")") || strings.TrimLeft(line, " \t") == line {
		return f, false
	}
	ip, err := strconv.ParseUint(addr, 16, 64)
	return frame{ip, rest[:at], rest[at+2 : len(rest)-1]}, err == nil
}

// perfScript has perf read a recording and returns its samples, without the names of the kernel's functions:
// of these the kernel makes a list of a hundred thousand lines for each reader, longer than the rest takes.
func perfScript(t testing.TB, path string, options ...string) []sample {
	t.Helper()
	return parseScript(t, output(t, "", "perf", append([]string{"script", "-f", "--no-inline", "--max-stack",
		"65535", "--ns", "-i", path, "-F", scriptHeads + ",ip,sym,dso", "--kallsyms", os.DevNull}, options...)...))
}

const scriptHeads = "comm,pid,tid,time,event"

// perfScriptHeads is perfScript without stacks, which perf takes up to a millisecond for each of.
func perfScriptHeads(t testing.TB, path string) []sample {
	t.Helper()
	return parseScript(t, output(t, "", "perf", "script", "-f", "--ns", "-i", path, "-G", "-F", scriptHeads,
		"--kallsyms", os.DevNull))
}

func parseScript(t testing.TB, text string) (samples []sample) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if f, ok := parseFrame(line); ok && len(samples) > 0 {
			s := &samples[len(samples)-1]
			// perf prints addresses of user code as they are in their file.
			if strings.HasPrefix(f.in, "[kernel") || f.ip >= 1<<63 {
				s.kernel = append(s.kernel, f)
			} else {
				s.user = append(s.user, f)
			}
			continue
		}
		if m := scriptHead.FindStringSubmatch(line); m != nil {
			n := make([]int, 4)
			for i := range n {
				n[i], _ = strconv.Atoi(m[2+i])
			}
			at := time.Duration(n[2])*time.Second + time.Duration(n[3])
			samples = append(samples, sample{comm: strings.TrimSpace(m[1]), pid: n[0], tid: n[1], time: at,
				event: strings.TrimSpace(m[6])})
			continue
		}
		if line != "" {
			t.Fatalf("perf script: unexpected %q", line)
		}
	}
	return samples
}

// perfReportSamples has perf report count the samples.
func perfReportSamples(t testing.TB, path string) (n uint64) {
	t.Helper()
	out := output(t, "", "perf", "report", "--stdio", "--no-children", "-g", "none", "-F", "sample,sym",
		"--kallsyms", os.DevNull, "-i", path)
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 1 && f[0] != "#" {
			count, err := strconv.ParseUint(f[0], 10, 64)
			if err != nil {
				t.Fatalf("perf report: %q", line)
			}
			n += count
		}
	}
	return n
}

var reportSamples = regexp.MustCompile(`(?m)^samples +([0-9,]+) of `)

// unspoolReportSamples has unspool report count the samples.
func unspoolReportSamples(t testing.TB, path string) uint64 {
	t.Helper()
	e := unspool(t, "", "report", path)
	if e.status != 0 {
		t.Fatalf("unspool report: status %d\n%s", e.status, e.stderr)
	}
	m := reportSamples.FindStringSubmatch(e.stdout)
	if m == nil {
		t.Fatalf("unspool report does not say how many samples:\n%s", e.stdout)
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(m[1], ",", ""), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ownProfile is the recording as our own reader sees it, without the names of the kernel's functions: reading
// these takes longer than the rest.
func ownProfile(t testing.TB, path string) *profile.Profile {
	t.Helper()
	return loadProfile(t, path, symbols.Options{Kallsyms: os.DevNull})
}

func loadProfile(t testing.TB, path string, names symbols.Options) *profile.Profile {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(names), profile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return p
}

// userStack is the user part of a stack, leaf first.
func userStack(p *profile.Profile, node int32) (names []string) {
	for ; node > 0; node = p.Nodes[node].Parent {
		if f := p.Frames[p.Nodes[node].Frame]; f.Kind != profile.Kernel {
			names = append(names, f.Name)
		}
	}
	return names
}

// fails checks what a failed run printed: one line that says what is wrong, and perhaps one with a command
// that fixes it.
func (e ended) fails(t testing.TB, status int, says string) {
	t.Helper()
	if e.status != status {
		t.Errorf("status %d, want %d", e.status, status)
	}
	lines := e.lines()
	if n := len(lines); n == 0 || n > 2 || !strings.HasPrefix(lines[0], "unspool: ") ||
		n == 2 && !strings.HasPrefix(lines[1], "  try: ") {
		t.Errorf("not one line that says what is wrong:\n%s", e.stderr)
	}
	if !regexp.MustCompile(says).MatchString(e.stderr) {
		t.Errorf("does not say %q:\n%s", says, e.stderr)
	}
}

// burner starts a process that has samples until the test ends, and leaves most of the CPU to others.
func burner(t testing.TB) int {
	t.Helper()
	return neighbour(t, programs.Build(t, "burn", "-DBURN_REST_MS=10"), "0")
}

// neighbour starts a process that runs until the test ends.
func neighbour(t testing.TB, command ...string) (pid int) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	if err := programs.StartTied(t, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// sleeper starts a process that sleeps. At the highest rate that is permitted, samples can take so much that
// a program hardly gets on, for a minute, and its CPU is no other's meanwhile; of this one there are none.
func sleeper(t testing.TB) (pid string) {
	t.Helper()
	return strconv.Itoa(neighbour(t, "sleep", "600"))
}

// monotonic is the clock that samples are stamped with.
func monotonic(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// recordsInto waits until a recording has written something besides its header.
func recordsInto(t testing.TB, path string) {
	t.Helper()
	lane.Eventually(t, "a first flush to "+path, func() bool {
		r, err := perfdata.Open(path)
		if err != nil {
			return false
		}
		defer r.Close()
		_, err = r.Next()
		return err == nil
	})
}

// forEachRecord reads a recording to its end, decompressed.
func forEachRecord(t testing.TB, path string, f func(rec []byte)) {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		f(rec)
	}
}

// copyFile copies a program for another user, or to another place.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeProgram(to, content); err != nil {
		t.Fatal(err)
	}
}

// writeProgram writes a file that will be executed.
func writeProgram(path string, content []byte) error {
	syscall.ForkLock.RLock() // no fork while it is open for writing: see programs.Build
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}

// share counts how many of the samples are as wanted.
func share(samples []sample, wanted func(*sample) bool) (n int) {
	for i := range samples {
		if wanted(&samples[i]) {
			n++
		}
	}
	return n
}

// threadsOf lists the threads that were sampled.
func threadsOf(samples []sample) (tids []int) {
	for _, s := range samples {
		if !slices.Contains(tids, s.tid) {
			tids = append(tids, s.tid)
		}
	}
	return tids
}
