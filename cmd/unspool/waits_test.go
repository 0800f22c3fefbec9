package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"unspool/testdata/lane"
)

// ofRecorder sets u, in a shell that is the command, to the PID of the process that records: the opener is its parent.
const ofRecorder = "export u=$(($(ps -o ppid= -p $PPID))); "

// awaitFile waits until there is a file.
func awaitFile(t testing.TB, path string) {
	t.Helper()
	lane.Eventually(t, path, func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// untilStopped waits until a process has been stopped by a signal.
func untilStopped(t testing.TB, pid int) {
	t.Helper()
	lane.Eventually(t, fmt.Sprintf("process %d to stop", pid), func() bool {
		if hasEnded(pid) {
			t.Fatalf("process %d has ended", pid)
		}
		fields := statOf(pid)
		return len(fields) > 0 && fields[0] == "T"
	})
}

// hasEnded reports whether a process has ended, even if nobody has waited for it.
func hasEnded(pid int) bool {
	fields := statOf(pid)
	return len(fields) == 0 || fields[0] == "Z" || fields[0] == "X"
}

// statOf are the fields of a process in /proc/PID/stat (proc(5)) from its state on; none if it is gone.
func statOf(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, fields, _ := strings.Cut(string(text), ") ")
	return strings.Fields(fields)
}
