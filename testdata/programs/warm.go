package programs

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"unspool/vmas"
)

// Warm reads the files whose code a process has mapped, so that they are in the page cache, and how fast the
// disk is does not matter to a test. Where a machine is short of memory, what has not run yet is not there.
func Warm(t testing.TB, pid int) {
	t.Helper()
	space, err := vmas.NewTable("/proc").Seed(uint32(pid))
	if err != nil {
		t.Fatal(err)
	}
	root, read := filepath.Join("/proc", strconv.Itoa(pid), "root"), make(map[*vmas.File]bool)
	for m := range space.Mappings() {
		if read[m.File] || m.File.Kind != vmas.Regular {
			continue
		}
		read[m.File] = true
		f, err := os.Open(filepath.Join(root, m.File.Path))
		if err != nil {
			continue // it is gone
		}
		_, err = io.Copy(io.Discard, f)
		f.Close()
		if err != nil {
			t.Errorf("%s: %v", m.File.Path, err)
		}
	}
}
