package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unspool/testdata/lane"
	"unspool/unwind/image/fusetest"
	"unspool/unwind/rule"
	"unspool/vmas"
	"unspool/vmas/process"
)

// copiesOf writes n programs to a directory that differ in their build IDs, and returns their paths.
func copiesOf(t *testing.T, dir string, n int) (paths []string) {
	t.Helper()
	own := filepath.Join(dir, "own")
	id := copyELF(t, "/bin/true", own).Bytes()
	content, err := os.ReadFile(own)
	if err != nil || len(id) < 8 {
		t.Skip("skipped for want of a /bin/true with a build ID: ", err)
	}
	for i := range n {
		other := binary.LittleEndian.AppendUint64(nil, uint64(i)+1)
		other = append(other, id[len(other):]...)
		path := filepath.Join(dir, fmt.Sprint("copy-", i))
		if err := os.WriteFile(path, bytes.Replace(content, id, other, 1), 0o755); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// mapAll maps files in a process, one behind the other, and has them opened.
func mapAll(t *testing.T, s *Store, pid uint32, paths []string) (maps []*vmas.Mapping) {
	t.Helper()
	table := vmas.NewTable("")
	table.Comm(pid, pid, []byte("test"), true)
	for i, path := range paths {
		m := table.Mmap(pid, vmas.Map{Addr: uint64(i+1) << 20, Len: 1 << 18, Prot: vmas.ProtExec,
			Name: []byte(path),
			ID:   identity(t, path)})
		s.Open(pid, m)
		s.BuildID(pid, m)
		at := *m // whose place others take
		maps = append(maps, &at)
	}
	return maps
}

// hasRule reports whether there is a rule for a PC in the code of a mapped file.
func hasRule(t *testing.T, s *Store, m *vmas.Mapping) bool {
	t.Helper()
	return s.Lookup(1, m).Rule(m, m.Start+codeOffset(t, m.File.Path)) != rule.Unreadable
}

// settle waits until no more than n files are open.
func (ds *descriptors) settle(t *testing.T, n int) {
	t.Helper()
	lane.Eventually(t, fmt.Sprintf("no more than %d open files", n), func() bool {
		ds.mu.Lock()
		defer ds.mu.Unlock()
		return ds.open <= n
	})
}

// TestFewerDescriptorsThanFiles maps more files than may be open: each can be read as long as it is mapped,
// even if its name leads to another file by then; a file that cannot be opened again is reported.
func TestFewerDescriptorsThanFiles(t *testing.T) {
	const most, files = 32, 100
	var failed []string
	s := New(Config{Proc: "/proc", Hooks: Hooks{
		Failed: func(_ string, err error) { failed = append(failed, err.Error()) },
	}})
	s.find.files = newDescriptors(most)
	paths := copiesOf(t, t.TempDir(), files)
	before := openDescriptors(t)
	maps := mapAll(t, s, uint32(os.Getpid()), paths)
	s.find.files.settle(t, most)
	if n := openDescriptors(t) - before; n > most+2 { // and what other tests open
		t.Errorf("%d files are open", n)
	}
	replaced, rewritten := maps[3], maps[4]
	if err := os.Rename(paths[30], paths[3]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(paths[4], []byte("something else"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, m := range maps {
			switch m.File.Path {
			case paths[30]: // is gone
			case paths[3], paths[4]:
				if r := s.Lookup(1, m).Rule(m, m.Start+0x3000); r != rule.Unreadable {
					t.Errorf("%s: %v", m.File.Path, r)
				}
				if im := s.Lookup(1, m); !errors.Is(im.err, errClosed) {
					t.Errorf("%s: %v", m.File.Path, im.err)
				}
			default:
				if !hasRule(t, s, m) {
					t.Fatalf("%s cannot be read: %v", m.File.Path, s.Lookup(1, m).err)
				}
			}
		}
	}
	s.find.files.settle(t, most)
	if len(failed) != 2 || !strings.Contains(failed[0],
		replaced.File.Path+": closed, as too many files were open") ||
		!strings.Contains(failed[1], rewritten.File.Path+": closed, as too many files were open") {
		t.Errorf("%q", failed)
	}
	for _, m := range maps {
		s.Forget(m.File)
	}
	s.find.files.settle(t, 0)
	if len(s.find.files.users) > 0 {
		t.Errorf("%d users are left", len(s.find.files.users))
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestDescriptorsOfTwoUsers has one user map more files than may be open, on a file system whose server
// does not answer when they are closed: the files of another user stay open.
func TestDescriptorsOfTwoUsers(t *testing.T) {
	const most = 64
	dir := t.TempDir()
	copiesOf(t, dir, 2*most)
	server := fusetest.Show(t, dir)
	server.Be(t, fusetest.HangClose)
	defer server.Be(t, fusetest.Answer)
	ds := newDescriptors(most)
	var r reader
	open := func(uid uint32, name string) (*source, error) {
		if err := ds.room(uid); err != nil {
			return nil, err
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		find := &finder{access: process.Direct("/proc"), files: ds, reader: &r}
		at := &vmas.Mapping{File: &vmas.File{Path: name}}
		return find.identify(file, uid, 0, find.opener(uint32(os.Getpid()), at))
	}
	var honest []*source
	const few = 8
	for range few {
		s, err := open(1, libc(t))
		if err != nil {
			t.Fatal(err)
		}
		honest = append(honest, s)
	}
	refused := 0
	for i := range 2 * most {
		if _, err := open(2, filepath.Join(server.Dir, fmt.Sprint("copy-", i))); err != nil {
			refused++
		}
	}
	ds.mu.Lock()
	if n := ds.users[2].open; n > ds.mostOfOne()+ds.mostClosing() || refused == 0 {
		t.Errorf("%d files are open, %d refused", n, refused)
	}
	ds.mu.Unlock()
	for range few {
		s, err := open(1, libc(t))
		if err != nil {
			t.Fatal(err)
		}
		honest = append(honest, s)
	}
	for _, s := range honest {
		if !s.isOpen() {
			t.Error("a file of another user was closed")
		}
	}
}
