package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
