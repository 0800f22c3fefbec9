package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/priority"
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

// TestRecorderGoesFirst looks at nice values: the recorder's is better than that of the
// command, which is what it would be without the recorder.
func TestRecorderGoesFirst(t *testing.T) {
	needRoot(t)
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || raw != 20 {
		t.Skip("skipped for want of the ordinary nice value, which is chosen to be another one here")
	}
	dir := t.TempDir()
	r := start(t, dir, nil, "record", "-o", "perf.data", "--", "sh", "-c", "nice >nice; sleep 0.5")
	own := filepath.Join(dir, "nice")
	eventually(t, "the command", func() bool {
		b, err := os.ReadFile(own)
		return err == nil && strings.HasSuffix(string(b), "\n")
	})
	for _, nice := range niceValues(t, r.Process.Pid) {
		if nice != -10 {
			t.Errorf("a thread of the recorder has the nice value %d", nice)
		}
	}
	if b, _ := os.ReadFile(own); strings.TrimSpace(string(b)) != "0" {
		t.Errorf("the command's nice value is %s", b)
	}
	r.wait()
}

// TestRecorderHasRealTimePriority: nice values do nothing across the autogroups of sessions.
func TestRecorderHasRealTimePriority(t *testing.T) {
	needRoot(t)
	if _, ok := priority.Try(); !ok {
		t.Skip("skipped for want of real-time priority")
	}
	dir := t.TempDir()
	r := start(t, dir, nil, "record", "-o", "perf.data", "--stats", "stats.json", "--", "sh", "-c",
		"grep policy /proc/self/sched >policy; sleep 0.5")
	own := filepath.Join(dir, "policy")
	eventually(t, "the command", func() bool {
		b, err := os.ReadFile(own)
		return err == nil && strings.HasSuffix(string(b), "\n")
	})
	if a, err := unix.SchedGetAttr(r.Process.Pid, 0); err != nil || a.Policy != unix.SCHED_RR {
		t.Errorf("the recorder: %+v, %v", a, err)
	}
	if b, _ := os.ReadFile(own); strings.Join(strings.Fields(string(b)), "") != "policy:0" {
		t.Errorf("the command: %s", b)
	}
	r.wait()
	content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	if st := readStatistics(t, content); !strings.HasPrefix(st.Cost.Priority, "real-time ") {
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
	r := start(t, dir, nil, "record", "-o", "perf.data", "--stats", "stats.json", "--",
		"chrt", "-f", "5", "sleep", "0.5")
	r.wait()
	content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	if st := readStatistics(t, content); st.Cost.Priority != "real-time 99" {
		t.Errorf("the statistics: %q", st.Cost.Priority)
	}
}
