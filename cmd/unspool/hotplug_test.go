package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestConfinedRecordingFollowsCPUs has a CPU come back, as far as a recording can tell: the list of the CPUs
// that are online is one that the test writes. The recording, which cannot open events any more, has the
// opener do so.
func TestConfinedRecordingFollowsCPUs(t *testing.T) {
	t.Parallel()
	program := hotplugMark.build(t)
	need(t, "taskset")
	programs.NeedMounts(t)
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
	}, slices.Concat([]string{"record", "--sandbox", "-a", "-o", "perf.data"}, hotplugMark.options())...)
	said := func(what string) {
		t.Helper()
		lane.Eventually(t, what, func() bool {
			text, err := os.ReadFile(errors.Name())
			return err == nil && strings.Contains(string(text), what)
		})
	}
	lane.Eventually(t, "a recording", func() bool { // that takes samples when its file is there
		_, err := os.Stat(filepath.Join(dir, "perf.data"))
		return err == nil
	})
	write("0")
	said("CPU 1 went offline")
	write("0-1")
	said("CPU 1 is online again, and is recorded")
	for _, cpu := range []string{"0", "1"} {
		output(t, dir, "taskset", "-c", cpu, program, programs.Times(counted))
	}
	r.Process.Signal(syscall.SIGINT)
	if e := r.finish(t, time.Minute); e.status != 0 {
		t.Errorf("status %d", e.status)
	}
	// The events of CPU 1 that were there before may count on, as it has not gone.
	of := make(map[uint32]uint64)
	own := ownProfile(t, filepath.Join(dir, "perf.data"))
	for _, s := range own.Samples {
		of[own.Threads[s.Thread].PID] += s.Count
	}
	for pid, n := range of {
		if n < counted {
			t.Errorf("%d samples of process %d, of %d", n, pid, counted)
		}
	}
	if len(of) != 2 {
		t.Errorf("samples of %d processes, of 2", len(of))
	}
}
