package programs

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Warm reads the files whose code a process has mapped, so that they are in the page cache, and how fast the
// disk is does not matter to a test. Where a machine is short of memory, what has not run yet is not there.
func Warm(t testing.TB, pid int) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	read := make(map[string]bool)
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) != 6 || !strings.Contains(fields[1], "x") || fields[5][0] != '/' || read[fields[5]] {
			continue
		}
		read[fields[5]] = true
		if f, err := os.Open(filepath.Join(proc, "root", fields[5])); err == nil {
			_, err = io.Copy(io.Discard, f)
			f.Close()
			if err != nil {
				t.Errorf("%s: %v", fields[5], err)
			}
		}
	}
}
