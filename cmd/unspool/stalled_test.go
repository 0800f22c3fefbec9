package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/programs"
)

// TestReaderThatStopsReading records into a pipe whose reader stops reading: the recording ends in time, and
// prints its summary.
func TestReaderThatStopsReading(t *testing.T) {
	needRoot(t)
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
			args := append([]string{"record", "-F", "4999", "-o", c.output}, c.args...)
			r := start(t, t.TempDir(), func(cmd *exec.Cmd) {
				cmd.Stdout, cmd.ExtraFiles = writer, []*os.File{writer}
			}, append(args, "--", programs.Build(t, "burn"), "0")...)
			if c.interrupt {
				waitForOutput(t, reader)
				time.Sleep(time.Second) // until the pipe is full
				r.Process.Signal(syscall.SIGINT)
			}
			e := r.finish(t, 20*time.Second)
			if e.status == 0 || !strings.Contains(e.stderr, "its reader has stopped reading") ||
				!strings.Contains(e.stderr, " samples in ") {
				t.Errorf("status %d\n%s", e.status, e.stderr)
			}
		})
	}
}

// waitForOutput waits until there is something in a pipe, and leaves it there.
func waitForOutput(t *testing.T, pipe *os.File) {
	t.Helper()
	in := []unix.PollFd{{Fd: int32(pipe.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(in, int(20*time.Second/time.Millisecond))
		if err == nil && n == 1 {
			return
		}
		if err != unix.EINTR {
			t.Fatalf("nothing was written: %v", err)
		}
	}
}
