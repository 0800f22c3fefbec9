package main

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestReaderThatStopsReading records into a pipe whose reader stops reading: the recording ends, and prints its
// summary. The samples of a Python's page faults are more than the pipe holds.
func TestReaderThatStopsReading(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "python3")
	recorded := strconv.Itoa(neighbour(t, pythonItself(t), "-c", "import mmap, time\n"+
		"while True:\n"+
		" with mmap.mmap(-1, 64 * mmap.PAGESIZE) as m:\n"+
		"  for i in range(0, len(m), mmap.PAGESIZE): m[i] = 1\n"+
		" time.sleep(.01)"))
	for _, c := range []struct {
		name, output string
		args         []string
		interrupt    bool
	}{
		{"-d, standard output", "-", []string{"-d", "1"}, false},
		{"-d, a descriptor", "/dev/fd/3", []string{"-d", "1"}, false},
		{"an interrupt", "-", nil, true},
		{"compressed", "-", []string{"-z", "-d", "1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			defer writer.Close()
			if _, err := unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
				t.Skip("skipped for want of a small pipe: ", err)
			}
			what := slices.Concat([]string{"record", "-o", c.output}, programs.Faults(), c.args)
			if c.name == "compressed" {
				// Of much more than the pipe holds, compressed.
				what = append(what, "--", programs.Build(t, "deep"), programs.Times(300), "200")
			} else {
				what = append(what, "-p", recorded)
			}
			r := start(t, t.TempDir(), func(cmd *exec.Cmd) {
				cmd.Stdout, cmd.ExtraFiles = writer, []*os.File{writer}
			}, what...)
			if c.interrupt {
				waitUntilFull(t, writer)
				r.Process.Signal(syscall.SIGINT)
			}
			e := r.finish(t, 2*time.Minute)
			if e.status == 0 || !strings.Contains(e.stderr, "its reader has stopped reading") ||
				!hasSummary(e.stderr) {
				t.Errorf("status %d\n%s", e.status, e.stderr)
			}
		})
	}
}

// waitUntilFull waits until a pipe takes no more.
func waitUntilFull(t *testing.T, pipe *os.File) {
	t.Helper()
	lane.Eventually(t, "a pipe to be full", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pipe.Fd()), Events: unix.POLLOUT}}, 0)
		return err == nil && n == 0
	})
}
