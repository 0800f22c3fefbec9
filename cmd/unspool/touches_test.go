package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// A toucher is a process that touches pages when a test tells it to (testdata/touches.c): the test decides when there
// are samples, and how many. Its input and output may be those of a command that is recorded.
type toucher struct {
	t       testing.TB
	pid     int
	tids    []int
	in      *os.File
	from    *os.File
	answers *bufio.Reader
}

// rare is an event of hardly anybody but touchers, for recordings of all processes: so that no ring is full of others'.
const rare = "syscalls:sys_enter_get_robust_list"

// rareOnly are the options for it.
func rareOnly(t testing.TB) []string {
	t.Helper()
	if _, err := os.Stat("/sys/kernel/tracing/events/" + strings.ReplaceAll(rare, ":", "/")); err != nil {
		t.Skip(err)
	}
	return []string{"-e", rare, "-c", "1"}
}

// buildToucher returns the program, under a name of its own if that is not empty.
func buildToucher(t testing.TB, name string) string {
	t.Helper()
	path := buildCase(t, "touches.c")
	if name == "" {
		return path
	}
	named := filepath.Join(filepath.Dir(path), name)
	copyFile(t, path, named)
	return named
}

// toldToucher is one that does not run yet: the command whose input and output are given has to start it.
func toldToucher(t testing.TB) (p *toucher, input, output *os.File) {
	t.Helper()
	input, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p = &toucher{t: t, in: in, from: from, answers: bufio.NewReader(from)}
	t.Cleanup(func() {
		for _, f := range []*os.File{in, from, input, output} {
			f.Close()
		}
	})
	return p, input, output
}

// ready waits until the toucher runs, with all of its threads.
func (p *toucher) ready() {
	p.t.Helper()
	f := strings.Fields(p.answer())
	if len(f) < 3 || f[0] != "ready" {
		p.t.Fatalf("touches: %q", f)
	}
	p.pid, _ = strconv.Atoi(f[1])
	p.tids = nil
	for _, tid := range f[2:] {
		n, _ := strconv.Atoi(tid)
		p.tids = append(p.tids, n)
	}
}

// answer is the next line that the toucher writes.
func (p *toucher) answer() string {
	p.t.Helper()
	p.from.SetReadDeadline(time.Now().Add(time.Minute))
	line, err := p.answers.ReadString('\n')
	if err != nil {
		p.t.Fatalf("touches: %q, %v", line, err)
	}
	return line
}

// touch has each thread touch n pages.
func (p *toucher) touch(n int) { p.t.Helper(); p.tell(strconv.Itoa(n)) }

// tell writes a line, and returns when the toucher has followed it.
func (p *toucher) tell(line string) {
	p.t.Helper()
	if _, err := p.in.WriteString(line + "\n"); err != nil {
		p.t.Fatal(err)
	}
	if got := p.answer(); got != line+"\n" {
		p.t.Fatalf("touches: %q, not %q", got, line)
	}
}

// end ends the program.
func (p *toucher) end() { p.in.Close() }

// startToucher starts a toucher, which waits to be told something.
func startToucher(t testing.TB, threads ...string) *toucher {
	t.Helper()
	return runToucher(t, exec.Command(buildToucher(t, ""), threads...))
}

// runToucher is startToucher for a command.
func runToucher(t testing.TB, cmd *exec.Cmd) *toucher {
	t.Helper()
	p, input, output := toldToucher(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, output, os.Stderr
	if err := programs.StartTied(t, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	input.Close()
	output.Close()
	p.ready()
	return p
}

// startTold starts the program under test, which records a toucher as its command.
func startTold(t testing.TB, dir string, args ...string) (*running, *toucher) {
	t.Helper()
	var r *running
	p, input, output := toldToucher(t)
	r = start(t, dir, func(cmd *exec.Cmd) { cmd.Stdin, cmd.Stdout = input, output }, args...)
	input.Close()
	output.Close()
	p.ready()
	return r, p
}

// faultsOf are the options that record the page faults of processes.
func faultsOf(touchers ...*toucher) []string {
	var pids []string
	for _, p := range touchers {
		pids = append(pids, strconv.Itoa(p.pid))
	}
	return append(programs.Faults(), "-p", strings.Join(pids, ","))
}

// touching are the samples in touches_leaf.
func touching(samples []sample) (in []sample) {
	for _, s := range samples {
		if len(s.user) > 0 && s.user[0].name == "touches_leaf" {
			in = append(in, s)
		}
	}
	return in
}

// of are the samples of a process.
func of(samples []sample, pid int) (in []sample) {
	for _, s := range samples {
		if s.pid == pid {
			in = append(in, s)
		}
	}
	return in
}

// isTouching reports whether a sample has the whole stack of a toucher without threads.
func isTouching(s *sample) bool {
	names := s.names()
	return len(names) > 4 && names[len(names)-1] == "_start" &&
		slices.Equal(names[:4], []string{"touches_leaf", "touches_outer", "touches_pages", "main"})
}

// awaitSamples waits until a recording has written n samples.
func awaitSamples(t testing.TB, path string, n int) {
	t.Helper()
	lane.Eventually(t, fmt.Sprintf("%d samples in %s", n, path), func() bool { return samplesIn(path) >= n })
}

// samplesIn counts the samples that a recording has written so far, to a file that may not be there yet.
func samplesIn(path string) (n int) {
	r, err := perfdata.Open(path)
	if err != nil {
		return 0
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if err != nil {
			return n
		}
		if rec.Type() == perfring.RecordSample {
			n++
		}
	}
}

// touchUntil has a toucher touch pages, some at a time, until something is over.
func (p *toucher) touchUntil(what string, over func() bool) (touched int) {
	p.t.Helper()
	lane.Eventually(p.t, what, func() bool {
		p.touch(5)
		touched += 5
		return over()
	})
	return touched
}

// hasEnded reports whether a program has ended.
func (r *running) hasEnded() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, r.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err != nil && !errors.Is(err, unix.EINTR) || info.Signo != 0
}

// forEachSample calls f with the process of each sample that a recording has written so far.
func forEachSample(t testing.TB, path string, f func(pid uint32)) {
	t.Helper()
	samplesOfFile(t, path, func(_ int, pid uint32) { f(pid) })
}

// samplesByEvent counts the samples of each event that a recording has written so far.
func samplesByEvent(t testing.TB, path string, events int) []int {
	t.Helper()
	n := make([]int, events)
	samplesOfFile(t, path, func(event int, _ uint32) { n[event]++ })
	return n
}

// samplesOfFile calls f with the event and the process of each sample that a recording has written so far, to a file
// that may not be there yet.
func samplesOfFile(t testing.TB, path string, f func(event int, pid uint32)) {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		return
	}
	defer r.Close()
	var s perfring.Sample
	for {
		rec, err := r.Next()
		if err != nil {
			return
		}
		if rec.Type() != perfring.RecordSample {
			continue
		}
		if err := r.Format(rec).Sample(rec, &s); err != nil {
			t.Fatal(err)
		}
		f(max(0, r.Event(s.ID)), s.PID)
	}
}
