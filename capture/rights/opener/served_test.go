package opener

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/unwind/image/fusetest"
)

// A file of a file server can be read by way of the opener only, also in pieces, over its end, and when its
// descriptor is another one of the file. Two files that are read by turns are not mixed up.
func TestFileOfAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	contents := make(map[string][]byte)
	for i, name := range []string{"one", "two"} {
		content := bytes.Repeat([]byte{byte(i + 1)}, mostMemory+pieceSize+5)
		copy(content, "\x7fELF")
		contents[name] = content
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), make([]byte, 8192), 0o644); err != nil {
		t.Fatal(err)
	}
	server := fusetest.Show(t, dir)
	c := sealed(t)
	pid := uint32(os.Getpid())
	files := make(map[string]*os.File)
	for name := range contents {
		file, err := c.OpenPath(pid, filepath.Join(server.Dir, name), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if n, err := file.ReadAt(make([]byte, 4), 0); n != 0 || !errors.Is(err, unix.EBADF) {
			t.Errorf("%s: this process reads %d bytes, %v", name, n, err)
		}
		files[name] = file
	}
	for _, part := range []struct{ off, n, want int }{
		{0, 4, 4}, {1, mostMemory + 1, mostMemory + 1}, {0, 2 * mostMemory, mostMemory + pieceSize + 5},
		{mostMemory, 2 * pieceSize, pieceSize + 5}, {2 * mostMemory, 1, 0},
	} {
		for name, file := range files {
			buf := make([]byte, part.n)
			n, err := c.ReadFile(pid, file, buf, int64(part.off))
			if n != part.want || (err == io.EOF) != (n < part.n) || err != nil && err != io.EOF {
				t.Errorf("%s: %d bytes from %d: %d, %v; want %d", name, part.n, part.off, n, err, part.want)
			}
			if n > 0 && !bytes.Equal(buf[:n], contents[name][part.off:][:n]) {
				t.Errorf("%s: other contents from %d", name, part.off)
			}
		}
	}
	secret, err := os.Open(filepath.Join(server.Dir, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	if n, err := c.ReadFile(pid, secret, make([]byte, 8), 0); n != 0 || !errors.Is(err, unix.ENOEXEC) {
		t.Errorf("%d bytes of a file without code, %v", n, err)
	}
	directory, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	if n, err := c.ReadFile(pid, directory, make([]byte, 8), 0); n != 0 || err == nil {
		t.Errorf("%d bytes of a directory", n)
	}
	if file, err := c.OpenPath(pid, "/bin/sh", 0, 0); err != nil {
		t.Error(err)
	} else if n, err := file.ReadAt(make([]byte, 4), 0); n != 4 {
		t.Errorf("a file of this machine cannot be read: %v", err)
	}
}
