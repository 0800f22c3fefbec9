package opener

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/output"
	"unspool/unwind/image/fusetest"
	"unspool/vmas/process"
)

// forReading is an opener of a client that reads recordings, with an output and a temporary folder.
func forReading(t *testing.T, dir, folder string) (*Client, *output.Place) {
	t.Helper()
	c := startOpener(t)
	place, err := output.Find(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(place.Close)
	if err := errors.Join(place.HandOver(c.GrantOutput), c.GrantFolder(folder)); err != nil {
		t.Fatal(err)
	}
	if err := c.SealForNames(); err != nil {
		t.Fatal(err)
	}
	return c, place
}

// TestOpenerForNames opens jitdumps and perf maps, and nothing else of processes.
func TestOpenerForNames(t *testing.T) {
	t.Parallel()
	dir, folder := t.TempDir(), t.TempDir()
	self := uint32(os.Getpid())
	perfMap := fmt.Sprintf("/tmp/perf-%d.map", self)
	write := func(path, text string) string {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(perfMap, "1000 10 generated\n")
	defer os.Remove(perfMap)
	dump := write(filepath.Join(dir, "jit-1.dump"), "JiTD and more")
	secret := write(filepath.Join(dir, "secret"), "a secret")
	linked := self + 1<<22 // no process has such a PID
	if err := os.Symlink(secret, fmt.Sprintf("/tmp/perf-%d.map", linked)); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(fmt.Sprintf("/tmp/perf-%d.map", linked))
	c, _ := forReading(t, dir, folder)
	names := c.Names()
	for _, pid := range []uint32{0, self} {
		for path, want := range map[string]string{perfMap: "1000 10 generated\n", dump: "JiTD and more"} {
			file, err := names.Open(pid, path)
			if err != nil {
				t.Fatalf("%s of process %d: %v", path, pid, err)
			}
			if text, err := io.ReadAll(file); string(text) != want {
				t.Errorf("%s: %q, %v", path, text, err)
			}
			file.Close()
		}
		for _, path := range []string{secret, "/proc/self/exe", "/bin/sh", "/etc/passwd",
			fmt.Sprintf("/tmp/perf-%d.map", linked), "/tmp/../etc/passwd", "relative"} {
			if file, err := names.Open(pid, path); err == nil {
				t.Errorf("%s was opened", path)
				file.Close()
			}
		}
		if _, err := names.Open(pid, "/tmp/perf-4294967295.map"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a perf map that is not there: %v", err)
		}
	}
	if _, err := c.Text(self, self, process.Maps, 0); !errors.Is(err, unix.ENOSYS) {
		t.Errorf("a text: %v", err)
	}
	if n := c.ReadMemory(self, make([]byte, 8), 0x1000); n != 0 {
		t.Error("memory was read")
	}
	if _, err := c.OpenPath(0, "/bin/sh", 0, 0); !errors.Is(err, unix.ENOSYS) {
		t.Errorf("a program: %v", err)
	}
	if _, err := c.Stat(0, "/bin/sh"); !errors.Is(err, unix.ENOSYS) {
		t.Errorf("a status: %v", err)
	}
}

// TestOpenerKeepsOutputsAndFolders has an opener keep an old recording, remove an output, and remove what is
// temporary.
func TestOpenerKeepsOutputsAndFolders(t *testing.T) {
	t.Parallel()
	dir, parent := t.TempDir(), t.TempDir()
	folder := filepath.Join(parent, "temporary")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	c, place := forReading(t, dir, folder)
	for _, text := range []string{"first", "second"} {
		file, err := place.Create()
		if err != nil {
			t.Fatal(err)
		}
		file.WriteString(text)
		if err := file.KeepOld(); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	for name, want := range map[string]string{"out": "second", "out.old": "first"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := place.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "out")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the output is still there: %v", err)
	}
	if err := (&Output{client: c}).Remove(); err != nil {
		t.Errorf("what was removed: %v", err)
	}
	if err := (&Output{client: c, number: 1}).Remove(); !errors.Is(err, unix.EACCES) {
		t.Errorf("an output that was not granted: %v", err)
	}
	if err := c.RemoveFolders(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(parent); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestOpenerRemovesFoldersInTheEnd ends the client without asking for that.
func TestOpenerRemovesFoldersInTheEnd(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	folder := filepath.Join(parent, "temporary")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	c, _ := forReading(t, t.TempDir(), folder)
	c.Close()
	if end, err := c.process.Wait(); err != nil || !end.Success() {
		t.Errorf("it ended with %v, %v", end, err)
	}
	if left, _ := os.ReadDir(parent); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestNamesOfAServer reads a jitdump of a file server, which this process has no readable descriptor of. What
// was not opened for its names is not read.
func TestNamesOfAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"jit-1.dump": "JiTD and more", "jit-2.dump": "JiTD", "secret": "a secret",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := fusetest.Show(t, dir)
	c, _ := forReading(t, t.TempDir(), t.TempDir())
	names := c.Names()
	file, err := names.Open(0, filepath.Join(server.Dir, "jit-1.dump"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if n, err := file.File.ReadAt(make([]byte, 4), 0); n != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("this process reads %d bytes, %v", n, err)
	}
	if text, err := io.ReadAll(io.NewSectionReader(file, 0, 100)); string(text) != "JiTD and more" {
		t.Errorf("%q, %v", text, err)
	}
	secret, err := os.Open(filepath.Join(server.Dir, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	if n, err := file.By(secret, make([]byte, 8), 0); n != 0 || !errors.Is(err, unix.EACCES) {
		t.Errorf("%d bytes of another file, %v", n, err)
	}
	server.Be(t, fusetest.HangOpen)
	defer server.Be(t, fusetest.Answer)
	for range 2 {
		if _, err := names.Open(0, filepath.Join(server.Dir, "jit-2.dump")); !errors.Is(err, errUnanswered) {
			t.Errorf("a server that hangs: %v", err)
		}
	}
}
