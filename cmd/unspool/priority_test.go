package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/priority"
	"unspool/testdata/lane"
)

// niceValues are those of the threads of a process.
func niceValues(t *testing.T, pid int) (values []int) {
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil {
			values = append(values, 20-raw) // the system call's own way to tell
		}
	}
	return values
}

// startWaiting starts a recording of a shell that executes commands, which write to a file called told and wait. It
// returns what they have written, and what lets them go on.
func startWaiting(t *testing.T, dir, commands string, command ...string) (r *running, told string, goOn func()) {
	t.Helper()
	input, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	args := slices.Concat([]string{"record", "-o", "perf.data", "--stats", "stats.json", "--"}, command,
		[]string{"sh", "-c", "{ " + commands + "; } >told; >all; read line"})
	r = start(t, dir, func(cmd *exec.Cmd) { cmd.Stdin = input }, args...)
	input.Close()
	awaitFile(t, filepath.Join(dir, "all"))
	text, err := os.ReadFile(filepath.Join(dir, "told"))
	if err != nil {
		t.Fatal(err)
	}
	return r, strings.TrimSpace(string(text)), func() { in.Close() }
}

// TestRecorderGoesFirst looks at nice values: the recorder's is better than that of the
// command, which is what it would be without the recorder.
func TestRecorderGoesFirst(t *testing.T) {
	t.Parallel()
	needRoot(t)
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || raw != 20 {
		t.Skip("skipped for want of the ordinary nice value, which is chosen to be another one here")
	}
	r, nice, goOn := startWaiting(t, t.TempDir(), "nice")
	for _, nice := range niceValues(t, r.Process.Pid) {
		if nice != -10 {
			t.Errorf("a thread of the recorder has the nice value %d", nice)
		}
	}
	if nice != "0" {
		t.Errorf("the command's nice value is %s", nice)
	}
	goOn()
	r.finish(t, time.Minute)
}

// TestRecorderHasRealTimePriority: nice values do nothing across the autogroups of sessions.
func TestRecorderHasRealTimePriority(t *testing.T) {
	t.Parallel()
	needRoot(t)
	if _, ok := priority.Try(); !ok {
		t.Skip("skipped for want of real-time priority")
	}
	dir := t.TempDir()
	r, policy, goOn := startWaiting(t, dir, "grep policy /proc/self/sched")
	if a, err := unix.SchedGetAttr(r.Process.Pid, 0); err != nil || a.Policy != unix.SCHED_RR {
		t.Errorf("the recorder: %+v, %v", a, err)
	}
	if strings.Join(strings.Fields(policy), "") != "policy:0" {
		t.Errorf("the command: %s", policy)
	}
	goOn()
	r.finish(t, time.Minute)
	if st := statsIn(t, dir); !strings.HasPrefix(st.Cost.Priority, "real-time ") {
		t.Errorf("the statistics: %q", st.Cost.Priority)
	}
}

// TestRecorderGoesBeforeRealTimeThreads records a program that has real-time priority from its beginning and
// does not use the CPU: the recorder raises its priority before it is kept from a CPU.
func TestRecorderGoesBeforeRealTimeThreads(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "chrt")
	if _, ok := priority.Try(); !ok {
		t.Skip("skipped for want of real-time priority")
	}
	dir := t.TempDir()
	r, _, goOn := startWaiting(t, dir, ":", "chrt", "-f", "5")
	lane.Eventually(t, "the recorder's highest priority", func() bool {
		a, err := unix.SchedGetAttr(r.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		return a.Priority == 99
	})
	goOn()
	r.finish(t, time.Minute)
	if st := statsIn(t, dir); st.Cost.Priority != "real-time 99" {
		t.Errorf("the statistics: %q", st.Cost.Priority)
	}
}
