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
	recorded := neighbour(t, pythonItself(t), "-c", "import mmap, time\n"+
		"while True:\n"+
		" with mmap.mmap(-1, 64 * mmap.PAGESIZE) as m:\n"+
		"  for i in range(0, len(m), mmap.PAGESIZE): m[i] = 1\n"+
		" time.sleep(.01)")
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
				what = append(what, "-p", strconv.Itoa(recorded))
			}
			change := func(cmd *exec.Cmd) { cmd.Stdout, cmd.ExtraFiles = writer, []*os.File{writer} }
			var r *running
			if c.interrupt {
				var control func(string)
				r, control = startControlledAs(t, t.TempDir(), change, what...)
				control("enable")
				before := minorFaults(t, recorded)
				lane.Eventually(t, "more samples than the pipe holds", func() bool {
					return minorFaults(t, recorded) > before+1000
				})
				r.Process.Signal(syscall.SIGINT)
			} else {
				r = start(t, t.TempDir(), change, what...)
			}
			e := r.finish(t, 2*time.Minute)
			if e.status == 0 || !strings.Contains(e.stderr, "its reader has stopped reading") ||
				!hasSummary(e.stderr) {
				t.Errorf("status %d\n%s", e.status, e.stderr)
			}
		})
	}
}

// minorFaults is how many page faults a process has had for which nothing was read.
func minorFaults(t *testing.T, pid int) (n int) {
	t.Helper()
	fields := statOf(pid)
	if len(fields) > 7 {
		n, _ = strconv.Atoi(fields[7])
	}
	if n == 0 {
		t.Fatalf("process %d has no page faults: %q", pid, fields)
	}
	return n
}
