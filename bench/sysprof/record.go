package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A scene is what runs while Sysprof records.
type scene struct {
	name     string
	scripts  []string // each is repeated
	programs []string // whose stacks are looked at
	seconds  int
}

const (
	compiles = `"$(g++ -print-prog-name=cc1plus)" -fpreprocessed work.ii -quiet -std=c++17 -O2 -o /dev/null`
	computes = `exec python3 -c '
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
words = ["word%d" % (i * 7919 % 1000) for i in range(2000)]
while True:
    fib(15)
    sorted(words, key=lambda w: (len(w), w[::-1]))
'`
	storms = "exec ./storm 1000 50 ./burn"
)

var scenes = []scene{
	{"cc1plus", []string{compiles}, []string{"cc1plus"}, 8},
	{"python3", []string{computes}, []string{"python3"}, 8},
	{"python3, 50 new processes a second", []string{computes, storms}, []string{"python3", "burn"}, 24},
	{"4 times python3", []string{computes, computes, computes, computes}, []string{"python3"}, 8},
}

const (
	stackSize = 16384
	// settle is how long a recording may take to read /proc and to see the running programs first.
	settle = 2 * time.Second
)

// A result is what a recording kept, and what the helper took for it between two times.
type result struct {
	samples, lost  int
	user, complete int // samples with user code of the scene's programs, and those that reach _start
	cpu            time.Duration
	memory, grown  float64 // MiB of memory of its own, at the end and since it had settled
	files          int     // open at the end
	ended          time.Duration
}

func (r *result) perSample() float64 {
	return float64(r.cpu.Nanoseconds()) / 1e3 / float64(max(1, r.samples))
}
func (r *result) share() float64 { return 100 * float64(r.complete) / float64(max(1, r.user)) }

// record records a scene with Sysprof's helper, or with unspool.
func (r *root) record(s *scene, ours bool) (res result, err error) {
	if err := r.use(ours); err != nil {
		return res, err
	}
	for _, script := range s.scripts {
		c := r.command("sh", "-c", "while :; do "+script+"; done")
		if err := c.Start(); err != nil {
			return res, err
		}
		defer func() {
			_ = unix.Kill(-c.Process.Pid, unix.SIGKILL) // its group
			_ = c.Wait()
		}()
	}
	time.Sleep(settle / 4)
	var output bytes.Buffer
	cli := r.command("sysprof-cli", "--force", "--no-decode", "--no-battery", "--no-cpu", "--no-disk",
		"--no-memory", "--no-network", fmt.Sprintf("--stack-size=%d", stackSize), "x.syscap")
	cli.Stdout, cli.Stderr = &output, &output
	if err := cli.Start(); err != nil {
		return res, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cli.Wait() }()
	defer func() { _ = cli.Process.Kill() }()
	pid, err := r.helper()
	if err != nil {
		return res, fmt.Errorf("%w: %s", err, &output)
	}
	time.Sleep(settle)
	from, before := monotonic(), measure(pid)
	time.Sleep(time.Duration(s.seconds) * time.Second)
	after, to := measure(pid), monotonic()
	_ = cli.Process.Signal(syscall.SIGINT)
	select {
	case err = <-ended:
	case <-time.After(30 * time.Second):
		err = errors.New("it does not end")
	}
	if err != nil {
		return res, fmt.Errorf("sysprof-cli: %w: %s", err, &output)
	}
	res = result{cpu: after.cpu - before.cpu, memory: after.memory, grown: after.memory - before.memory,
		files: after.files, ended: time.Duration(monotonic() - to)}
	return res, res.count(r, s, from, to)
}

// count reads the capture.
func (res *result) count(r *root, s *scene, from, to uint64) error {
	c, err := readCapture(r.in("tmp/x.syscap"))
	if err != nil {
		return err
	}
	for _, one := range c.samples {
		if from <= one.time && one.time < to {
			res.samples++
		}
	}
	res.lost = c.lost
	res.user, res.complete = c.reaches(r.dir, s.programs, from, to)
	if res.samples == 0 {
		return errors.New("no samples")
	}
	return nil
}

// helper waits for the program that sysprofd starts.
func (r *root) helper() (pid int, err error) {
	service := r.services[len(r.services)-1].Process.Pid
	for range 100 {
		for _, child := range children(service) {
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			if bytes.Contains(args, []byte("--capture-fd")) {
				return child, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return 0, fmt.Errorf("sysprofd starts no helper: %s", r.printed())
}

func children(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(word); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// taken is what a program has taken so far, with the processes that it has started.
type taken struct {
	cpu    time.Duration
	memory float64
	files  int
}

func measure(pid int) (t taken) {
	for _, p := range slices.Concat([]int{pid}, children(pid)) {
		var ts unix.Timespec
		// The clock of a process is made of its PID (CPUCLOCK_SCHED in linux/posix-timers.h).
		if unix.ClockGettime(int32(^p<<3|2), &ts) == nil {
			t.cpu += time.Duration(ts.Nano())
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
		for line := range strings.Lines(string(status)) {
			if kib, ok := strings.CutPrefix(line, "RssAnon:"); ok {
				n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kib), " kB"))
				t.memory += float64(n) / 1024
			}
		}
		open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p))
		t.files += len(open)
	}
	return t
}

// monotonic is the clock of Sysprof's samples.
func monotonic() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}
