package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/vmas"
	"unspool/vmas/process"
)

// TestCopiedCode has a copy of a program's code in the test's own memory, first incomplete, then complete,
// and in another case something else in its place.
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
			table, images := vmas.NewTable(""), NewStore("/proc")
			told := 0
			images.hooks.Copied = func(uint32, *vmas.Mapping) { told++ }
			code := vmas.Map{Addr: addr, Len: size, Offset: size, Prot: vmas.ProtRead | vmas.ProtExec,
				Name: []byte(path)}
			table.Mmap(pid, code)
			code.Name, code.Offset = []byte("//anon"), addr
			m := table.Mmap(pid, code)
			if im := images.Lookup(pid, m); im != nil || m.Offset != addr {
				t.Fatal("a copy before it is there")
			}
			copy(memory, c.content)
			var im *Image
			for range 4 {
				im = images.Lookup(pid, m)
			}
			switch {
			case (im != nil) != c.same || (told == 1) != c.same:
				t.Errorf("image %v, told %d times", im, told)
			case im != nil && (im.Path != path || m.Offset != size):
				t.Errorf("%s from %#x on", im.Path, m.Offset)
			case im == nil && m.Offset != addr:
				t.Errorf("the offset of memory is %#x", m.Offset)
			}
			// A copy that is known already and is made executable again is reported again.
			if m = table.Mmap(pid, code); c.same {
				if images.Lookup(pid, m) != im || told != 2 || m.Offset != size {
					t.Errorf("afterwards told %d times, from %#x on", told, m.Offset)
				}
			}
			if n := testing.AllocsPerRun(100, func() { images.Lookup(pid, m) }); c.same && n > 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// lateFiles opens no file before it is released, and reads memory in time only for those who do not drain the
// rings.
type lateFiles struct {
	process.Access
	released chan struct{}
}

func (l lateFiles) OpenPath(pid uint32, path string, start, end uint64) (*os.File, error) {
	<-l.released
	return l.Access.OpenPath(pid, path, start, end)
}

func (l lateFiles) OpenMapped(pid uint32, start, end uint64) (*os.File, string, error) {
	<-l.released
	return l.Access.OpenMapped(pid, start, end)
}

func (lateFiles) ReadMemory(uint32, []byte, uint64) int { return 0 }

func (l lateFiles) Aside() process.Reader { return l.Access }

// TestCopyOfAFileThatComesLate asks for a copy many times while its file is not open, as a busy machine has
// it: once it is, the copy is found at once.
func TestCopyOfAFileThatComesLate(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const size, offset = 1 << 16, 1 << 18
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(memory, content[offset:])
	addr, pid := uint64(uintptr(unsafe.Pointer(&memory[0]))), uint32(os.Getpid())
	late := lateFiles{process.Direct("/proc"), make(chan struct{})}
	images, table := New(Config{Processes: late, Hurried: true}), vmas.NewTable("")
	code := vmas.Map{Addr: addr, Len: size, Offset: offset, Prot: vmas.ProtRead | vmas.ProtExec,
		Name: []byte(path)}
	file := *table.Mmap(pid, code)
	code.Name, code.Offset = []byte("//anon"), addr
	m := table.Mmap(pid, code)
	for range 33 {
		if images.Lookup(pid, m) != nil {
			t.Fatal("the file is not open yet")
		}
	}
	close(late.released)
	lane.Eventually(t, "the file to be opened", func() bool { return images.Lookup(pid, &file).Opened() })
	for range 8 {
		if images.Lookup(pid, m) != nil {
			return
		}
		time.Sleep(8 * time.Second) // a busy machine may not have read it in the time that a question waits
	}
	t.Error("the copy is not found")
}

func TestOffsetBehindAPartOfAFile(t *testing.T) {
	gnu := []elf.Load{{Vaddr: 0, Filesz: 0x6a8, Flags: elf.PF_R},
		{Offset: 0x1000, Vaddr: 0x1000, Filesz: 0x3000, Flags: elf.PF_R | elf.PF_X}}
	lld := []elf.Load{{Vaddr: 0, Filesz: 0x1770, Flags: elf.PF_R},
		{Offset: 0x1770, Vaddr: 0x2770, Filesz: 0x3000, Flags: elf.PF_R | elf.PF_X}}
	for _, c := range []struct {
		name      string
		loads     []elf.Load
		off, want uint64
	}{
		{"one piece", gnu, 0x1000, 0x1000},
		{"in the code", gnu, 0x3000, 0x3000},
		{"a page twice", lld, 0x2000, 0x1000},
		{"in the code of that", lld, 0x3000, 0x3000},
		{"behind the code", gnu, 0x5000, 0x5000},
		{"before the file", gnu, 0, 0},
	} {
		im := Image{tables: &tables{loads: c.loads}}
		if got := im.offsetBehind(c.off); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}
