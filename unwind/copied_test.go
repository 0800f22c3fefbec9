package unwind

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/testdata/programs"
	"unspool/vmas"
)

// TestCopiedCode has a copy of a program's code in the test's own memory, at first
// under way, then there, and another time something else in its stead.
func TestCopiedCode(t *testing.T) {
	path := programs.Build(t, "plain")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path, _ = filepath.EvalSymlinks(path)
	const size = 1 << 12 // the page at this offset is code
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	addr := uint64(uintptr(unsafe.Pointer(&memory[0])))
	pid := uint32(os.Getpid())
	for _, c := range []struct {
		name    string
		content []byte
		same    bool
	}{
		{"the code", file[size:][:size], true},
		{"zeroes", make([]byte, size), false},
		{"other code", file[64:][:size], false},
	} {
		t.Run(c.name, func(t *testing.T) {
			clear(memory)
			table, images := vmas.NewTable(""), NewImages("/proc")
			told := 0
			images.Copied = func(uint32, *vmas.Mapping) { told++ }
			code := vmas.Map{Addr: addr, Len: size, Offset: size, Prot: vmas.ProtRead | vmas.ProtExec, Name: []byte(path)}
			table.Mmap(pid, code)
			code.Name, code.Offset = []byte("//anon"), addr
			m := table.Mmap(pid, code)
			if im := images.of(pid, m); im != nil || m.Offset != addr {
				t.Fatal("a copy before it is there")
			}
			copy(memory, c.content)
			var im *Image
			for range 4 {
				im = images.of(pid, m)
			}
			switch {
			case (im != nil) != c.same || (told == 1) != c.same:
				t.Errorf("image %v, told %d times", im, told)
			case im != nil && (im.Path != path || m.Offset != size):
				t.Errorf("%s from %#x on", im.Path, m.Offset)
			case im == nil && m.Offset != addr:
				t.Errorf("the offset of memory is %#x", m.Offset)
			}
			if n := testing.AllocsPerRun(100, func() { images.of(pid, m) }); c.same && n > 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}
