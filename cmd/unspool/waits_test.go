package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// eventually waits for a condition, for so long that nobody waits in vain on a busy machine.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// awaitFile waits until there is a file.
func awaitFile(t testing.TB, path string) {
	t.Helper()
	eventually(t, path, func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// untilStopped waits until a process has been stopped by a signal.
func untilStopped(t testing.TB, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d to stop", pid), func() bool {
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
