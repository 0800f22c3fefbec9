package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/vmas"
)

// mappedAt opens a file as if it were mapped whole at base.
func mappedAt(t testing.TB, path string, base uint64) (*vmas.Space, *Store) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	table := vmas.NewTable("")
	table.Comm(1, 1, []byte("test"), true)
	table.Mmap(1, vmas.Map{
		Addr: base, Len: uint64(info.Size()+4095) &^ 4095, Prot: vmas.ProtExec | vmas.ProtRead, Name: []byte(path),
	})
	return table.Space(1), NewStore("/proc")
}

// offset is where the file has what is at an address of the image.
func (im *Image) offset(addr uint64) (uint64, bool) {
	for _, l := range im.loads {
		if addr >= l.Vaddr && addr-l.Vaddr < l.Filesz {
			return addr - l.Vaddr + l.Offset, true
		}
	}
	return 0, false
}

func TestWantOfDescriptorsIsNotRemembered(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	space, images := mappedAt(t, path, 0x400000)
	m := firstMapping(space)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	im := images.Lookup(1, m)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(im.err, unix.EMFILE) {
		t.Fatalf("without descriptors: %v", im.err)
	}
	if im := images.Lookup(1, m); im.err != nil {
		t.Errorf("with descriptors again: %v", im.err)
	}
}

// TestNameThatEndsAsOfARemovedFile has a file whose own name is that of a removed one, for a process that is
// there and for one that has ended. Its build ID is told for that name.
func TestNameThatEndsAsOfARemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so (deleted)")
	id := copyELF(t, libc(t), path)
	for _, pid := range []uint32{uint32(os.Getpid()), 1 << 30} {
		table, images := vmas.NewTable(""), NewStore("/proc")
		m := table.Mmap(pid, vmas.Map{Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path), ID: identity(t, path)})
		im := images.Lookup(pid, m)
		if im.err != nil {
			t.Fatalf("process %d: %v", pid, im.err)
		}
		im.Rule(m, 0)
		told := 0
		images.Sampled(func(name string, found []byte) {
			if told++; name != path || vmas.NewBuildID(found) != id {
				t.Errorf("process %d: %s has build ID %x", pid, name, found)
			}
		})
		if told != 1 {
			t.Errorf("process %d: build IDs of %d files", pid, told)
		}
	}
}

func TestVDSOOf32BitProcessIsNotOurs(t *testing.T) {
	own := vmas.NewTable("/proc")
	if _, err := own.Seed(uint32(os.Getpid())); err != nil {
		t.Skip("skipped for want of /proc: ", err)
	}
	for m := range own.Space(uint32(os.Getpid())).Mappings() {
		if m.File.Kind != vmas.VDSO {
			continue
		}
		for _, c := range []struct {
			start uint64
			taken bool
		}{{0x7fff_0000_0000, true}, {0xf7f0_0000, false}} {
			table := vmas.NewTable("")
			table.Comm(1<<30, 1, []byte("gone"), true)
			gone := table.Mmap(1<<30, vmas.Map{Addr: c.start, Len: m.End - m.Start, Prot: vmas.ProtExec,
				Name: []byte("[vdso]")})
			im := NewStore("/proc").Lookup(1<<30, gone)
			if taken := im.err == nil; taken != c.taken {
				t.Errorf("vDSO at %#x of a process that is gone, as large as ours: ours was taken: %v", c.start, taken)
			}
		}
		return
	}
	t.Skip("skipped for want of a vDSO")
}

// TestJitdumpOfAnother does not read a jitdump that belongs to another user.
func TestJitdumpOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	path := filepath.Join(t.TempDir(), "jit-1.dump")
	s := NewStore("/proc")
	for _, c := range []struct {
		owner int
		taken bool
	}{{0, true}, {4711, false}} {
		err := os.WriteFile(path, nil, 0o644)
		if err == nil {
			err = os.Chown(path, c.owner, c.owner)
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.find.files.room(0); err != nil {
			t.Fatal(err)
		}
		source, err := s.find.identify(file, 0, 0, opener{})
		if err != nil {
			t.Fatal(err)
		}
		if taken := s.ownedBy(source, uint32(os.Getpid())); taken != c.taken {
			t.Errorf("the file of user %d: taken %v", c.owner, taken)
		}
		source.close()
	}
}

func firstMapping(s *vmas.Space) *vmas.Mapping {
	for m := range s.Mappings() {
		return m
	}
	return nil
}
