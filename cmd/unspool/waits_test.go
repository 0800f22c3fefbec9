package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"unspool/testdata/lane"
)

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
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatalf("process %d has ended: %v", pid, err)
		}
		_, fields, _ := strings.Cut(string(text), ") ")
		if strings.HasPrefix(fields, "Z") || strings.HasPrefix(fields, "X") {
			t.Fatalf("process %d has ended", pid)
		}
		return strings.HasPrefix(fields, "T")
	})
}
