package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/programs"
)

// Counted recordings of programs that are still there when their samples are read, as stays.c is: it stops in the
// midst of its chain when it has been counted.

// A staying is a recording that is under way.
type staying struct {
	*running
	control     func(command string)
	path, stats string
}

// startStaying starts a recording that takes no samples yet, of processes that are there.
func startStaying(t testing.TB, args ...string) *staying {
	t.Helper()
	dir := t.TempDir()
	s := &staying{path: filepath.Join(dir, "perf.data"), stats: filepath.Join(dir, "stats.json")}
	s.running, s.control = startControlled(t, dir, slices.Concat([]string{"record", "-o", s.path, "--stats", s.stats},
		args)...)
	return s
}

// drained waits until all samples that there are have been drained from the rings and looked at. A drain leaves what
// is not a millisecond old; a command is acknowledged before a drain, and the next one not before that is over.
func (s *staying) drained() {
	time.Sleep(2 * time.Millisecond)
	s.control("ping")
	s.control("ping")
}

// until waits until what has been written holds what is wanted. That may take several seconds: the samples of a second
// are written at a time.
func (s *staying) until(t testing.TB, what string, holds func(*profile.Profile) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		r, err := perfdata.Open(s.path)
		if err != nil {
			continue // nothing has been written
		}
		p, err := profile.Load(r, symbols.New(symbols.Options{Kallsyms: os.DevNull}), profile.Options{})
		r.Close()
		if err == nil && holds(p) {
			return
		}
	}
	s.Process.Kill()
	t.Fatalf("waited in vain for %s\n%s", what, s.wait().stderr)
}

// end is the recording when it has ended by itself.
func (s *staying) end(t testing.TB) recording {
	t.Helper()
	e := s.finish(t, time.Minute)
	if e.status != 0 {
		t.Fatalf("%s: status %d\n%s", s.Cmd, e.status, e.stderr)
	}
	return made(t, s.path, s.stats, e)
}

// recordStaying records the program of proc, which is attached to. It goes on once its samples have been read.
func recordStaying(t testing.TB, proc *programs.Process, options ...string) recording {
	t.Helper()
	s := startStaying(t, slices.Concat(programs.Faults(), []string{"-p", strconv.Itoa(proc.Process.Pid)}, options)...)
	s.control("enable")
	proc.Continue()
	untilStopped(t, proc.Process.Pid)
	s.drained()
	proc.Continue()
	return s.end(t)
}

// recordStayingCommand records a program from its first instruction on. It goes on once its samples have been read.
func recordStayingCommand(t testing.TB, path string, args ...string) recording {
	t.Helper()
	fifo := programs.FIFO(t)
	s := startStaying(t, slices.Concat(programs.Faults(), []string{"-D", "0", "--", path, programs.Times(counted),
		fifo.Name()}, args)...)
	s.goOn(t, fifo)
	return s.end(t)
}

// goOn waits until a program has written its PID into the FIFO, as it is about to stop. It goes on once its samples
// have been read.
func (s *staying) goOn(t testing.TB, fifo *os.File) {
	t.Helper()
	var pid int
	fifo.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fscanln(fifo, &pid); err != nil {
		s.Process.Kill()
		t.Fatalf("%s: %v\n%s", s.Cmd, err, s.wait().stderr)
	}
	s.drained()
	untilStops(t, pid)
	syscall.Kill(pid, syscall.SIGCONT)
}

// untilStopped waits until a child has been stopped by a signal.
func untilStopped(t testing.TB, pid int) {
	t.Helper()
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		const stopped = 5 // CLD_STOPPED
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || info.Code != stopped:
			t.Fatalf("process %d has not stopped, but ended: %v", pid, err)
		}
		return
	}
}

// untilStops is untilStopped for a process that is no child.
func untilStops(t testing.TB, pid int) {
	t.Helper()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " T") {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
