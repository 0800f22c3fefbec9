package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// startControlled starts a recording that takes no samples yet. control sends it a command, such as enable, disable
// or stop, and waits until that has been followed.
func startControlled(t testing.TB, dir string, args ...string) (r *running, control func(command string)) {
	t.Helper()
	return startControlledAs(t, dir, nil, args...)
}

// startControlledAs is startControlled; change, if not nil, changes how the recording is started.
func startControlledAs(t testing.TB, dir string, change func(*exec.Cmd), args ...string) (r *running,
	control func(command string),
) {
	t.Helper()
	commands, acks := programs.FIFO(t), programs.FIFO(t)
	lines := bufio.NewReader(acks)
	args = slices.Insert(args, 1, "-D", "-1", "--control", "fifo:"+commands.Name()+","+acks.Name())
	r = start(t, dir, change, args...)
	return r, func(command string) {
		t.Helper()
		if _, err := commands.WriteString(command + "\n"); err != nil {
			t.Fatal(err)
		}
		if err := acks.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); line != "ack\n" {
			r.Process.Kill()
			t.Fatalf("%s: %q, %v\n%s", command, line, err, r.wait().stderr)
		}
	}
}

// A controlled recording is under way, and does what control tells it.
type controlled struct {
	*running
	control     func(command string)
	path, stats string
}

// startUnsampled starts a recording of processes that are there, or of a command, which takes no samples yet.
func startUnsampled(t testing.TB, args ...string) *controlled {
	t.Helper()
	dir := t.TempDir()
	s := &controlled{path: filepath.Join(dir, "perf.data"), stats: filepath.Join(dir, "stats.json")}
	s.running, s.control = startControlled(t, dir, slices.Concat([]string{"record", "-o", s.path, "--stats", s.stats},
		args)...)
	return s
}

// startRecording is startUnsampled for a recording that takes samples when it returns.
func startRecording(t testing.TB, args ...string) *controlled {
	t.Helper()
	s := startUnsampled(t, args...)
	s.control("enable")
	return s
}

// drained waits until what has been sampled has been taken from the rings and looked at.
func (s *controlled) drained() { s.control("ping") }

// until waits until what has been written holds what is wanted. That may take several seconds: the samples of a second
// are written at a time.
func (s *controlled) until(t testing.TB, what string, holds func(*profile.Profile) bool) {
	t.Helper()
	lane.Eventually(t, what, func() bool {
		r, err := perfdata.Open(s.path)
		if err != nil {
			return false // nothing has been written
		}
		defer r.Close()
		p, err := profile.Load(r, symbols.New(symbols.Options{Kallsyms: os.DevNull}), profile.Options{})
		return err == nil && holds(p)
	})
}

// goOn waits until a program has written its PID into the FIFO, as it is about to stop. It goes on once its samples
// have been read.
func (s *controlled) goOn(t testing.TB, fifo *os.File) {
	t.Helper()
	var pid int
	fifo.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fscanln(fifo, &pid); err != nil {
		s.Process.Kill()
		t.Fatalf("%s: %v\n%s", s.Cmd, err, s.wait().stderr)
	}
	s.drained()
	untilStopped(t, pid)
	syscall.Kill(pid, syscall.SIGCONT)
}

// stop ends the recording and returns it.
func (s *controlled) stop(t testing.TB) recording {
	t.Helper()
	s.control("stop")
	return s.end(t)
}

// end returns the recording, which ends by itself.
func (s *controlled) end(t testing.TB) recording {
	t.Helper()
	e := s.finish(t, time.Minute)
	if e.status != 0 {
		t.Fatalf("%s: status %d\n%s", s.Cmd, e.status, e.stderr)
	}
	return made(t, s.path, s.stats, e)
}
