package image

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas"
	"unspool/vmas/process"
)

// openAndWait opens a file and returns its build ID.
func openAndWait(s *Store, pid uint32, m *vmas.Mapping) []byte {
	s.Open(pid, m)
	return s.BuildID(pid, m)
}

// TestRewrittenFiles maps a file that is overwritten with two builds in turn, by its inode alone, as a new
// process does.
func TestRewrittenFiles(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	from := []string{libc(t), "/bin/sh"}
	ids := []vmas.BuildID{copyELF(t, from[0], path), copyELF(t, from[1], path)}
	pid := uint32(os.Getpid())
	images := NewStore("/proc")
	table := vmas.NewTableOf(nil, images.Forget)
	mapped := vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path), ID: identity(t, path)}
	var last *Image
	for i := range 6 {
		copyELF(t, from[i%2], path)
		m := table.Mmap(pid, mapped)
		if id := openAndWait(images, pid, m); vmas.NewBuildID(id) != ids[i%2] {
			t.Fatalf("round %d: build ID %x, want %v", i, id, ids[i%2])
		}
		im := images.Lookup(pid, m)
		if im == last || !im.opened || im.source == nil {
			t.Fatalf("round %d: %+v", i, im)
		}
		if id := openAndWait(images, pid, m); images.Lookup(pid, m) != im || !bytes.Equal(id, im.BuildID) {
			t.Fatalf("round %d: an unchanged file became another image", i)
		}
		last = im
	}

	// A file that is only removed, or given another mode, can still be read.
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	m := table.Mmap(pid, mapped)
	if id := openAndWait(images, pid, m); vmas.NewBuildID(id) != ids[1] || images.Lookup(pid, m).err != nil ||
		images.Lookup(pid, m).source == nil {
		t.Errorf("removed: build ID %x, %v", id, images.Lookup(pid, m).err)
	}

	// A file with two names is one image; when it is rewritten, each name notices by itself.
	copyELF(t, own, path)
	other := path + "-too"
	if err := os.Link(path, other); err != nil {
		t.Skip(err)
	}
	copyELF(t, from[0], path)
	two := [2]vmas.Map{mapped, mapped}
	two[0].ID, two[1].ID = identity(t, path), identity(t, path)
	two[1].Name, two[1].Addr = []byte(other), 0x8000
	for i := range 4 {
		copyELF(t, from[i%2], path)
		for _, which := range two {
			m := table.Mmap(pid, which)
			if id := openAndWait(images, pid, m); vmas.NewBuildID(id) != ids[i%2] {
				t.Errorf("round %d, %s: build ID %x, want %v", i, which.Name, id, ids[i%2])
			}
		}
	}
	if len(images.byKey) > 2 {
		t.Errorf("%d images are kept", len(images.byKey))
	}
}

// TestFileThatWasBeingWritten: a file that was looked at while a program was being written to it is that
// program for whoever maps it afterwards, a process that has ended by then, too.
func TestFileThatWasBeingWritten(t *testing.T) {
	const gone = 1 << 30
	script := "#!/bin/sh\n" + strings.Repeat("#", 4096)
	for name, until := range map[string]string{"another file": script, "empty": ""} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(path, []byte(until), 0o700); err != nil {
				t.Fatal(err)
			}
			images := NewStore("/proc")
			table := vmas.NewTableOf(nil, images.Forget)
			mapped := vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path),
				ID: identity(t, path)}
			if id := openAndWait(images, uint32(os.Getpid()), table.Mmap(uint32(os.Getpid()), mapped)); id != nil {
				t.Fatalf("build ID %x", id)
			}
			id := copyELF(t, libc(t), path)
			for _, pid := range []uint32{gone, uint32(os.Getpid())} {
				mapped.Addr += 0x1000
				m := table.Mmap(pid, mapped)
				if got := openAndWait(images, pid, m); vmas.NewBuildID(got) != id {
					t.Errorf("process %d: build ID %x, want %v", pid, got, id)
				}
			}
		})
	}
}

// noEmptyFiles does not hand out empty files, as the opener does not.
type noEmptyFiles struct{ process.Access }

func (a noEmptyFiles) OpenPath(pid uint32, path string, start, end uint64) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && st.Size() == 0 {
		return nil, process.ErrEmpty
	}
	return a.Access.OpenPath(pid, path, start, end)
}

// TestWhatWasMappedBeforeAFileWasEmptied: it is not known any more, and does not become what is written next.
func TestWhatWasMappedBeforeAFileWasEmptied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	images := New(Config{Processes: noEmptyFiles{process.Direct("/proc")}})
	table := vmas.NewTableOf(nil, images.Forget)
	mapped := vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path), ID: identity(t, path)}
	mapped.Time = 1
	before := table.Mmap(1<<30, mapped)
	openAndWait(images, 1<<30, before)
	id := copyELF(t, libc(t), path)
	mapped.Addr, mapped.Time = 0x8000, 1<<62
	after := table.Mmap(1<<30, mapped)
	if got := openAndWait(images, 1<<30, after); vmas.NewBuildID(got) != id {
		t.Errorf("build ID %x, want %v", got, id)
	}
	if im := images.Lookup(1<<30, before); im == images.Lookup(1<<30, after) || !errors.Is(im.err, errWritten) {
		t.Errorf("what was mapped before: %q, %v", im.BuildID, im.err)
	}
}

// TestFileThatWasPerhapsRewritten maps a file that was written to a while before or after that, by its time: this is
// that of the last tick, so what was written after a program was mapped may look a little older than that.
func TestFileThatWasPerhapsRewritten(t *testing.T) {
	const gone = 1 << 30
	here := uint32(os.Getpid())
	for _, c := range []struct {
		before int64 // that the file was written to before it was mapped, in ns
		pid    uint32
		want   error
	}{
		{-int64(tick), here, errWritten},
		{-int64(tick), gone, errWritten},
		{int64(tick) / 2, here, nil},
		{int64(tick) / 2, gone, errWritten},
		{2 * int64(tick), here, nil},
		{2 * int64(tick), gone, nil},
	} {
		path := filepath.Join(t.TempDir(), "program")
		copyELF(t, libc(t), path)
		monotonic, realtime, ok := clocks()
		if !ok {
			t.Fatal("no clocks")
		}
		const ago = int64(time.Second)
		written := time.Unix(0, realtime-ago-c.before)
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
		images := New(Config{Proc: "/proc"})
		table := vmas.NewTableOf(nil, images.Forget)
		m := table.Mmap(c.pid, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path),
			ID: identity(t, path), Time: uint64(monotonic - ago)})
		openAndWait(images, c.pid, m)
		if im := images.Lookup(c.pid, m); !errors.Is(im.err, c.want) || (c.want == nil) != (im.err == nil) {
			t.Errorf("written to %d ns before, process %d: %v", c.before, c.pid, im.err)
		}
	}
}

// TestFilesWithAnotherName: perf's build-ID cache gives files a second name, package managers change
// modes. What was mapped before is what it was, and so is what is mapped after that.
func TestFilesWithAnotherName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	id := copyELF(t, libc(t), path)
	pid := uint32(os.Getpid())
	var told []error
	images := New(Config{Proc: "/proc",
		Hooks: Hooks{Failed: func(_ string, err error) { told = append(told, err) }}})
	table := vmas.NewTableOf(nil, images.Forget)
	mapped := vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path), ID: identity(t, path)}
	now := func() uint64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return uint64(ts.Nano())
	}
	time.Sleep(10 * time.Millisecond) // a file's times are those of the last tick
	mapped.Time = now()
	before := table.Mmap(pid, mapped)
	openAndWait(images, pid, before)
	im := images.Lookup(pid, before)
	for i, change := range []func() error{
		func() error { return os.Link(path, path+"-too") },
		func() error { return os.Chmod(path, 0o700) },
		func() error { return os.Remove(path + "-too") },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		mapped.Addr += 0x1000
		mapped.Time = now()
		after := table.Mmap(pid, mapped)
		if got := openAndWait(images, pid, after); vmas.NewBuildID(got) != id {
			t.Errorf("change %d: build ID %x, want %v", i, got, id)
		}
		for _, m := range []*vmas.Mapping{before, after} {
			if now := images.Lookup(pid, m); now != im {
				t.Errorf("change %d: what was mapped at %#x has another image: %v", i, m.Start, now.err)
			}
		}
	}
	if len(told) > 0 {
		t.Errorf("told of %v", told)
	}
}

// TestFileOfGeneratedCode: a file to which a runtime writes code stays one image, whether that was looked at
// or not. Written over with a program it is another one, and so it is the next time.
func TestFileOfGeneratedCode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "code")
	pid := uint32(os.Getpid())
	images := NewStore("/proc")
	table := vmas.NewTableOf(nil, images.Forget)
	size := 0
	write := func() {
		size += 100
		if err := os.WriteFile(path, make([]byte, size), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write()
	mapped := vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path), ID: identity(t, path)}
	open := func() *Image {
		m := table.Mmap(pid, mapped)
		openAndWait(images, pid, m)
		return images.Lookup(pid, m)
	}
	im := open()
	for _, read := range []bool{false, true} {
		write()
		if got := open(); got != im {
			t.Errorf("read: %v: the image has changed to one with the error %v", read, got.err)
		}
		if err := im.Parse(); err != nil || !im.IsGenerated() {
			t.Errorf("read: %v: %v", read, err)
		}
	}
	id := copyELF(t, libc(t), path)
	program := open()
	if program == im || vmas.NewBuildID(program.BuildID) != id || program.Parse() != nil ||
		program.IsGenerated() {
		t.Errorf("a program: build ID %x, %v", program.BuildID, program.err)
	}
	write()
	if got := open(); got == program || got.Parse() != nil || !got.IsGenerated() {
		t.Errorf("code again: build ID %x, %v", got.BuildID, got.err)
	}
}

// TestStrangersTwin: a file of somebody else's with the build ID and the segments of ours is another image.
func TestStrangersTwin(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours")
	copyELF(t, libc(t), theirs)
	if err := os.Chown(theirs, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	copyELF(t, libc(t), ours)
	pid := uint32(os.Getpid())
	table, images := vmas.NewTable(""), NewStore("/proc")
	var found []*Image
	for i, path := range []string{theirs, ours} {
		m := table.Mmap(pid, vmas.Map{Addr: 0x10000 * uint64(i+1), Len: 0x1000, Prot: vmas.ProtExec,
			Name: []byte(path),
			ID:   identity(t, path)})
		openAndWait(images, pid, m)
		found = append(found, images.Lookup(pid, m))
	}
	if found[0] == found[1] || found[1].source == nil || found[1].source.name == theirs {
		t.Error("our file has the image of a stranger's")
	}
}
