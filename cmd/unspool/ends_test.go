package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/lane"
)

// TestRecordingsEnd: a recording ends whoever is dead, stuck or in the way. It writes what it has, its COMMAND and its
// opener are gone, and Go's runtime says nothing.
func TestRecordingsEnd(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "bash")
	const terminated = 128 + int(syscall.SIGTERM) // as the command is, which decides the status
	interrupt := func(t *testing.T, r *inTrouble) { r.send(t, r.Process.Pid, syscall.SIGINT) }
	for _, c := range []struct {
		name    string
		shell   string // begins the recording, in bash's words
		trouble func(*testing.T, *inTrouble)
		status  int
		says    string
	}{
		{"the opener is killed", "", func(t *testing.T, r *inTrouble) {
			r.send(t, r.opener, syscall.SIGKILL)
		}, statusFailure, "the process that opens files for this one was killed, so the recording ends here"},
		{"the opener is stopped", "", func(t *testing.T, r *inTrouble) {
			r.send(t, r.opener, syscall.SIGSTOP)
			untilStopped(t, r.opener)
			interrupt(t, r)
		}, statusFailure, "the exit status of sleep is not known"}, // it is a child of the opener
		{"the process for the build-ID cache is stopped", "", func(t *testing.T, r *inTrouble) {
			r.send(t, r.cache, syscall.SIGSTOP)
			untilStopped(t, r.cache)
			interrupt(t, r)
		}, terminated, ""},
		{"the command is frozen", "", func(t *testing.T, r *inTrouble) {
			freeze(t, r.command)
			r.command = 0 // which nothing ends before it is thawed
			interrupt(t, r)
		}, statusFailure, "its cgroup is frozen"},
		{"no room for signals", "ulimit -i 0 && ", interrupt, terminated, "no room for signals"},
		{"by another process of nobody's", "", func(t *testing.T, r *inTrouble) {
			need(t, "setpriv")
			_ = exec.Command("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "kill", "-STOP",
				strconv.Itoa(r.Process.Pid)).Run() // which is not permitted
			interrupt(t, r)
		}, terminated, ""},
		{"in the background of a script", "trap '' INT && ", interrupt, terminated, ""},
		{"SIGQUIT", "", func(t *testing.T, r *inTrouble) {
			r.send(t, r.Process.Pid, syscall.SIGQUIT)
		}, terminated, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := startInTrouble(t, c.shell)
			c.trouble(t, r)
			e := r.finish(t, time.Minute)
			if e.status != c.status || !strings.Contains(e.stderr, c.says) ||
				strings.Contains(e.stderr, "goroutine ") {
				t.Errorf("status %d, want %d and %q:\n%s", e.status, c.status, c.says, e.stderr)
			}
			for _, pid := range []int{r.command, r.opener, r.cache} {
				if pid != 0 && !lane.Soon(func() bool { return hasEnded(pid) }) {
					t.Errorf("process %d is left behind", pid)
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			if e := unspool(t, "", "report", r.path); e.status != 0 && !strings.Contains(e.stderr, "no samples") {
				t.Errorf("report: status %d\n%s", e.status, e.stderr)
			}
		})
	}
}

// inTrouble is a recording of a command that sleeps.
type inTrouble struct {
	*running
	path                   string
	command, opener, cache int
}

func startInTrouble(t *testing.T, shell string) *inTrouble {
	t.Helper()
	dir := t.TempDir()
	r := &inTrouble{path: filepath.Join(dir, "perf.data")}
	var control func(string)
	r.running, control = startControlledAs(t, dir, func(cmd *exec.Cmd) {
		if shell != "" {
			cmd.Args = append([]string{"bash", "-c", shell + `exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
			cmd.Path = "/bin/bash"
		}
	}, "record", "-o", r.path, "--", "sleep", "600")
	control("enable")
	for pid, args := range childrenOf(t, r.Process.Pid) {
		switch name, _, _ := strings.Cut(args, "\x00"); name {
		case "unspool (opener)":
			r.opener = pid
			for child := range childrenOf(t, pid) {
				r.command = child
			}
		case "unspool (build-ID cache)":
			r.cache = pid
		}
	}
	if r.command == 0 || r.opener == 0 || r.cache == 0 {
		t.Fatalf("the recording's children are %v", childrenOf(t, r.Process.Pid))
	}
	return r
}

func (r *inTrouble) send(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// freeze has a process's cgroup frozen, until the test ends.
func freeze(t *testing.T, pid int) {
	t.Helper()
	for _, kind := range []struct{ root, file, frozen, thawed string }{
		{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
		{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
		{"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
	} {
		group := cgroupWith(t, kind.file, kind.root)
		if group == "" {
			continue
		}
		write := func(file, text string) error { return os.WriteFile(filepath.Join(group, file), []byte(text), 0o644) }
		t.Cleanup(func() {
			_ = write(kind.file, kind.thawed)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		})
		if write("cgroup.procs", strconv.Itoa(pid)) == nil && write(kind.file, kind.frozen) == nil {
			return
		}
	}
	t.Skip("skipped for want of a cgroup that can be frozen")
}
