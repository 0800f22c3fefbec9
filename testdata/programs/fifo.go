package programs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// FIFO makes a FIFO, opened for both ends, so that neither waits for the other. It is closed and removed when the test
// ends. Its path has no comma, which options would take for the end of it.
func FIFO(t testing.TB) *os.File {
	t.Helper()
	dir, err := os.MkdirTemp("", "unspool-fifo") // a test's own folder has the name of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} { // for programs of other users
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
