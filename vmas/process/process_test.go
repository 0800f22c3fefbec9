package process

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// self is this process, as a stranger to itself.
var self = uint32(os.Getpid())

func TestDirectReadsProcesses(t *testing.T) {
	t.Parallel()
	d := Direct("/proc")
	for _, name := range []Text{Stat, Maps, Syscall} {
		text, err := d.Text(self, self, name, 0)
		if err != nil {
			t.Fatal(name, err)
		}
		all, err := io.ReadAll(text)
		if text.Close(); err != nil || len(all) == 0 {
			t.Errorf("%v: %d bytes, %v", name, len(all), err)
		}
	}
	if all, err := d.Numbers(0); err != nil || !slices.Contains(all, self) {
		t.Errorf("processes: %v, %v", all, err)
	}
	if threads, err := d.Numbers(self); err != nil || !slices.Contains(threads, self) {
		t.Errorf("threads: %v, %v", threads, err)
	}
	if uid, err := d.Owner(self); err != nil || uid != uint32(os.Geteuid()) {
		t.Errorf("owner %d, %v", uid, err)
	}
}

// Memory is read across pages, more than one call takes, up to what is not there.
func TestDirectReadsMemoryAsFarAsItGoes(t *testing.T) {
	t.Parallel()
	const page, pages = 4096, 70
	mapped, err := unix.Mmap(-1, 0, (pages+1)*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	for i := range mapped {
		mapped[i] = byte(i * 7)
	}
	if err := unix.Mprotect(mapped[pages*page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	const at = 100
	buf := make([]byte, pages*page)
	n := Direct("/proc").ReadMemory(self, buf, uint64(uintptr(unsafe.Pointer(&mapped[at]))))
	if n != pages*page-at || !slices.Equal(buf[:n], mapped[at:pages*page]) {
		t.Errorf("%d bytes of %d", n, pages*page-at)
	}
}

// Links are followed within a root, whether the kernel does it or walkWithin.
func TestOpenWithin(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "a/file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"absolute": "/a/file", "relative": "a/b/../file", "a/b/up": "../../../../a/file", "twice": "/absolute",
		"loop": "loop", "outside": "/etc/passwd", "folder": "a/b", "magic": "/proc/self/root/etc/passwd",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	for path, want := range map[string]error{
		"a/file": nil, "/a/./file": nil, "//a//b/../file": nil, "../../a/file": nil, "absolute": nil,
		"relative": nil, "a/b/up": nil, "folder/up": nil, "twice": nil,
		"loop": unix.ELOOP, "outside": unix.ENOENT, "magic": unix.ENOENT, "absent": unix.ENOENT,
		"a/file/below": unix.ENOTDIR, "a": ErrNotRegular, "folder": ErrNotRegular,
	} {
		kernel, err := OpenWithin(root, path)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		if err == nil {
			kernel.Close()
		}
		fd, err := walkWithin(dir, path)
		if err == nil {
			var file int
			if file, err = Reopen(fd); err == nil {
				unix.Close(file)
			}
			unix.Close(fd)
		}
		if !errors.Is(err, want) {
			t.Errorf("%s by steps: %v, want %v", path, err, want)
		}
	}
}
