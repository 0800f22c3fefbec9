package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// executable is the unspool that is measured, built if none was named.
func (b *bench) executable() (string, error) {
	if b.unspool != "" {
		return b.unspool, nil
	}
	path := filepath.Join(b.dir, "unspool")
	c := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/unspool")
	c.Dir = b.root
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	b.unspool = path
	return path, nil
}

// A cost is the time and memory that a process took.
type cost struct {
	elapsed, user, system time.Duration
	memory                float64 // largest resident set, MiB
	cut                   bool    // it was killed when its time was over
}

// execute measures a command, for at most as long as limit if that is not 0.
func execute(limit time.Duration, cmd *exec.Cmd) (c cost, err error) {
	stderr := new(tail)
	cmd.Stderr = stderr
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return c, err
	}
	if limit > 0 {
		timer := time.AfterFunc(limit, func() {
			_ = cmd.Process.Kill()
			c.cut = true
		})
		defer timer.Stop()
	}
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				c.memory = max(c.memory, largestResident(cmd.Process.Pid))
			}
		}
	}()
	err = cmd.Wait()
	c.elapsed = time.Since(begun)
	close(over)
	<-watched
	c.user, c.system = cmd.ProcessState.UserTime(), cmd.ProcessState.SystemTime()
	if err != nil && !c.cut {
		return c, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, stderr.text)
	}
	return c, nil
}

// largestResident is the largest resident set that a running process has had, in MiB.
// getrusage reports this process's own size for a child if this process was larger when it started the child.
func largestResident(pid int) float64 {
	for line := range strings.Lines(readText(fmt.Sprintf("/proc/%d/status", pid))) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// residentRings is how much of a process's resident set its rings are, in MiB. Newer kernels do not count
// them.
func residentRings(pid int) (mib float64) {
	ring := false
	for line := range strings.Lines(readText(fmt.Sprintf("/proc/%d/smaps", pid))) {
		switch f := strings.Fields(line); {
		case len(f) > 4 && strings.Contains(f[0], "-"): // the addresses of a mapping
			ring = len(f) > 5 && strings.Contains(f[5], "[perf_event]")
		case len(f) > 1 && ring && f[0] == "Rss:":
			kib, _ := strconv.ParseFloat(f[1], 64)
			mib += kib / 1024
		}
	}
	return mib
}

// A tail keeps the end of the text that is written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-1000):]
	return len(p), nil
}

// fastest runs a command several times and keeps the fastest run.
func fastest(times int, name string, args ...string) (best cost, err error) {
	for i := range times {
		c, err := execute(0, exec.Command(name, args...))
		if err != nil {
			return c, err
		}
		if i == 0 || c.elapsed < best.elapsed {
			best = c
		}
	}
	return best, nil
}

// readOnly is the cost of only reading a file, in blocks of this size.
func readOnly(times int, path string, block int) (best cost, err error) {
	buf := make([]byte, block)
	for i := range times {
		var before, after syscall.Rusage
		f, err := os.Open(path)
		if err != nil {
			return best, err
		}
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		begun := time.Now()
		for err == nil {
			_, err = io.ReadFull(f, buf)
		}
		c := cost{elapsed: time.Since(begun)}
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		f.Close()
		if err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
			return best, err
		}
		c.user = time.Duration(after.Utime.Nano() - before.Utime.Nano())
		c.system = time.Duration(after.Stime.Nano() - before.Stime.Nano())
		if i == 0 || c.elapsed < best.elapsed {
			best = c
		}
	}
	return best, nil
}
