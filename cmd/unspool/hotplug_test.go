package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestConfinedRecordingFollowsCPUs has a CPU come back, as far as a recording can tell: the list of the CPUs
// that are online is one that the test writes. The recording, which cannot open events any more, has the
// opener do so.
func TestConfinedRecordingFollowsCPUs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "mount")
	const online = "/sys/devices/system/cpu/online"
	if text, err := os.ReadFile(online); err != nil || strings.TrimSpace(string(text)) != "0-1" {
		t.Skipf("skipped for want of a machine with two CPUs: %q, %v", text, err)
	}
	dir := t.TempDir()
	list := filepath.Join(dir, "online")
	write := func(cpus string) {
		t.Helper()
		if err := os.WriteFile(list, []byte(cpus+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("0-1")
	errors, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer errors.Close()
	r := start(t, dir, func(c *exec.Cmd) {
		c.Stderr = errors
		const script = `mount --bind "$0" ` + online + ` && exec "$@"`
		c.Args = append([]string{"sh", "-c", script, list, binary}, c.Args[1:]...)
		c.Path = "/bin/sh"
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}, "record", "--sandbox", "-a", "-d", "60", "-o", "perf.data")
	recordsInto(t, filepath.Join(dir, "perf.data"))
	said := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			text, err := os.ReadFile(errors.Name())
			return err == nil && strings.Contains(string(text), what)
		})
	}
	write("0")
	said("CPU 1 went offline")
	write("0-1")
	said("CPU 1 is online again, and is recorded")
	r.Process.Signal(syscall.SIGINT)
	if e := r.finish(t, 20*time.Second); e.status != 0 {
		t.Errorf("status %d", e.status)
	}
}
