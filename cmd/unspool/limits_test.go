package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"unspool/testdata/lane"
)

// limited are commands that limits keep from their work.
func limited(t *testing.T) (all [][]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perf.data")
	return [][]string{
		{"record", "-o", path, "--", "true"}, {"record", "--no-sandbox", "-o", path, "--", "true"},
		{"report", "testdata/none"}, {"convert", "testdata/none"}, {"top", "-d", "1"}, {"doctor"},
	}
}

// endsInOneLine expects a command to name a limit, in one line, instead of a dump of the runtime's state.
func endsInOneLine(t *testing.T, cmd *exec.Cmd, begins, ends string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	line, rest, _ := strings.Cut(string(out), "\n")
	if !strings.HasPrefix(line, "unspool: "+begins) || !strings.HasSuffix(line, ends) || rest != "" ||
		cmd.ProcessState.ExitCode() != statusFailure {
		t.Errorf("%s: %v: %.500q, want status %d and %s…%s", cmd, err, out, statusFailure, begins, ends)
	}
}

// TestLowLimits runs commands with less memory, stack or files than they need. With some of these, the Go runtime
// cannot start.
func TestLowLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ limit, want string }{
		{"-v 1000000", "the address space is limited to 976 MiB (ulimit -v), and at least 1536 MiB are needed"},
		{"-v 100000", "the address space is limited to 97 MiB (ulimit -v), and at least 1536 MiB are needed"},
		{"-d 40000", "the memory of a process is limited to 39 MiB (ulimit -d), and at least 320 MiB are needed"},
		{"-d 100000", "the memory of a process is limited to 97 MiB (ulimit -d), and at least 320 MiB are needed"},
		{"-d 200000", "the memory of a process is limited to 195 MiB (ulimit -d), and at least 320 MiB are needed"},
		{"-s 64", "the stack is limited to 64 KiB (ulimit -s), and at least 128 KiB are needed"},
		{"-n 3", "the number of open files is limited to 3 (ulimit -n), and at least 256 are needed"},
		{"-n 6", "the number of open files is limited to 6 (ulimit -n), and at least 256 are needed"},
		{"-n 8", "the number of open files is limited to 8 (ulimit -n), and at least 256 are needed"},
		{"-n 40", "the number of open files is limited to 40 (ulimit -n), and at least 256 are needed"},
	} {
		for _, args := range limited(t) {
			sh := append([]string{"-c", "ulimit " + c.limit + ` && exec "$0" "$@"`, binary}, args...)
			endsInOneLine(t, exec.Command("sh", sh...), c.want, "")
		}
	}
}

// needed is how many more threads and processes there have to be room for.
func needed() string { return fmt.Sprintf(", and at least %d more are needed", 36+2*runtime.NumCPU()) }

// TestFewProcesses runs commands in a cgroup that may have few threads and processes.
func TestFewProcesses(t *testing.T) {
	t.Parallel()
	needRoot(t)
	cgroup := cgroupWith(t, "pids.max", "/sys/fs/cgroup/pids", "/sys/fs/cgroup")
	if cgroup == "" {
		t.Skip("skipped for want of a cgroup that limits processes")
	}
	for _, most := range []int{1, 2, 3, 4, 5, 6, 8, 12, 16, 24} {
		if err := os.WriteFile(filepath.Join(cgroup, "pids.max"), fmt.Append(nil, most), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range limited(t) {
			sh := append([]string{"-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, cgroup, binary}, args...)
			begins := fmt.Sprintf("the number of processes and threads is limited to %d (pids.max of %s), there are ",
				most, cgroup)
			endsInOneLine(t, exec.Command("sh", sh...), begins, needed())
		}
	}
}

// cgroupWith makes a cgroup that has a file below one of the roots, until the test ends; "" if none has.
func cgroupWith(t *testing.T, file string, roots ...string) string {
	t.Helper()
	for _, root := range roots {
		cgroup, err := os.MkdirTemp(root, "unspool-test")
		if err != nil {
			continue
		}
		t.Cleanup(func() { lane.Soon(func() bool { return os.Remove(cgroup) == nil }) })
		if _, err := os.Stat(filepath.Join(cgroup, file)); err == nil {
			return cgroup
		}
	}
	return ""
}

// TestFewProcessesOfAUser runs commands as a user who may have few threads and processes.
func TestFewProcessesOfAUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	uid := uint32(70000 + os.Getpid())
	for _, most := range []int{1, 2, 3, 4, 6, 10, 20, 30} {
		for _, args := range limited(t) {
			// The shell of root sets the limit, and the program begins as the user.
			sh := append([]string{"-c", fmt.Sprintf(`ulimit -u %d && exec setpriv --reuid %d --clear-groups "$0" "$@"`,
				most, uid), binary}, args...)
			begins := fmt.Sprintf("the number of this user's processes and threads is limited to %d (ulimit -u), ", most)
			endsInOneLine(t, exec.Command("bash", sh...), begins, needed()[2:])
		}
	}
}
