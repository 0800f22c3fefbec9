package vmas

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestCodeThatIsMovedOverOtherCode moves pages of a file to where another one is, of which no record tells.
func TestCodeThatIsMovedOverOtherCode(t *testing.T) {
	t.Parallel()
	page := uintptr(os.Getpagesize())
	path := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(path, make([]byte, 8*page), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	room, err := unix.MmapPtr(-1, 0, nil, 16*page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.MunmapPtr(room, 16*page)
	place := func(n uintptr) unsafe.Pointer { return unsafe.Add(room, n*page) }
	const pieces = 8
	for i := range uintptr(pieces) {
		if _, err := unix.MmapPtr(int(f.Fd()), int64(i*page), place(2*i+1), page,
			unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
			t.Skipf("memory cannot be executed here: %v", err)
		}
	}
	tab := NewTable("/proc")
	s, err := tab.Seed(uint32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	addr := uint64(uintptr(place(1)))
	offset := func() uint64 { return s.Find(addr).Offset / uint64(page) }
	for i := uintptr(1); i < pieces; i++ {
		if _, err := unix.MremapPtr(place(2*i+1), page, place(1), page,
			unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED); err != nil {
			t.Fatal(err)
		}
		if !reloads(tab, s) || offset() != uint64(i) {
			t.Fatalf("page %d is there, want page %d", offset(), i)
		}
	}
	for _, i := range []uint64{pieces - 2, pieces - 1, pieces - 2, pieces - 1} { // code that comes back
		if _, err := unix.MmapPtr(int(f.Fd()), int64(i)*int64(page), place(1), page,
			unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
			t.Fatal(err)
		}
		if !reloads(tab, s) || offset() != i {
			t.Fatalf("page %d is there, want page %d", offset(), i)
		}
	}
}

// TestMapsAreAheadOfRecords reads the maps of a process that executes another program by now, of
// which no record has told yet: older samples are of the one before.
func TestMapsAreAheadOfRecords(t *testing.T) {
	t.Parallel()
	tab := NewTable("/proc")
	pid := uint32(os.Getpid())
	s, err := tab.Seed(pid)
	if err != nil {
		t.Fatal(err)
	}
	var code Mapping
	for m := range s.Mappings() {
		if m.File.Kind == Regular {
			code = *m
			break
		}
	}
	if code.File == nil {
		t.Fatal("this program has no code")
	}
	const earlier = "/a/program/that/is/gone"
	tab.Mmap(pid, Map{Addr: code.Start, Len: code.End - code.Start, Prot: ProtExec, Name: []byte(earlier)})
	if reloads(tab, s); s.Find(code.Start).File.Path != earlier {
		t.Errorf("%s is there", s.Find(code.Start).File.Path)
	}
	tab.Lost()
	if reloads(tab, s); s.Find(code.Start).File.Path == earlier {
		t.Error("what was lost is not read again")
	}
}

// TestMappingsToCome reads maps that show a library where another one is in the table. Where a record of a mapping is
// still in the rings, that is what it tells of; else code was moved there.
func TestMappingsToCome(t *testing.T) {
	t.Parallel()
	library := &Mapping{Start: 0x1000, End: 0x2000, File: &File{Path: "/b.so"}, Time: 9}
	for _, c := range []struct {
		name  string
		looks func(*Table)
		moved bool
	}{
		{"a record is in the rings", func(tab *Table) { tab.MappingToCome(5, library) }, false},
		{"of another process", func(tab *Table) { tab.MappingToCome(6, library) }, true},
		{"it was applied", func(tab *Table) { tab.MappingToCome(5, library); tab.MappingHasCome(5, 9) }, true},
		{"an earlier one was applied", func(tab *Table) { tab.MappingToCome(5, library); tab.MappingHasCome(5, 8) }, false},
	} {
		root := fakeProc(t, fakeProcess{pid: 5, maps: "1000-2000 r-xp 00000000 00:00 1 /a.so\n" +
			"8000-9000 r-xp 00000000 00:00 2 /b.so\n"})
		tab := NewTable(root)
		s, err := tab.Seed(5)
		if err != nil {
			t.Fatal(err)
		}
		tab.Look = func() { c.looks(tab) } // as the rings are looked at when maps has been read
		writeFakeProc(t, root, fakeProcess{pid: 5, maps: "1000-2000 r-xp 00000000 00:00 2 /b.so\n" +
			"8000-9000 r-xp 00000000 00:00 2 /b.so\n"})
		if reloads(tab, s); (s.Find(0x1000).File.Path == "/b.so") != c.moved {
			t.Errorf("%s: %s is there", c.name, s.Find(0x1000).File.Path)
		}
	}
}

// TestFirstReadingIsAheadOfRecords reads a process for the first time when the record of a library is in the rings
// still. The samples before that were of the library that was there before.
func TestFirstReadingIsAheadOfRecords(t *testing.T) {
	t.Parallel()
	tab := NewTable(fakeProc(t, fakeProcess{pid: 5, maps: "1000-2000 r-xp 00000000 00:00 1 /a.so\n" +
		"8000-9000 r-xp 00000000 00:00 2 /b.so\n"}))
	later := &Mapping{Start: 0x1000, End: 0x2000, File: &File{Path: "/a.so"}, Time: 9}
	tab.Look = func() { tab.MappingToCome(5, later) }
	s, err := tab.Seed(5)
	if err != nil {
		t.Fatal(err)
	}
	if s.Find(0x1000) != nil || s.Find(0x8000) == nil {
		t.Errorf("found %v and %v", s.Find(0x1000), s.Find(0x8000))
	}
}

// TestMapsOfAProgramToCome reads maps for a sample in no mapping when the record is in the rings still that the process
// executes another program.
func TestMapsOfAProgramToCome(t *testing.T) {
	t.Parallel()
	tab := NewTable(fakeProc(t, fakeProcess{pid: 5, maps: "1000-2000 r-xp 00000000 00:00 1 /a.so\n"}))
	tab.Fork(5, 5, 4, 4) // of a process that is not known
	tab.Look = func() { tab.ToCome(5, 9) }
	if tab.Refresh(5); tab.Space(5).Find(0x1000) != nil {
		t.Error("the next program is taken for this one")
	}
	tab.Look = nil
	tab.HasCome(5, 9)
	tab.Comm(5, 5, []byte("next"), true)
	if tab.Refresh(5); tab.Space(5).Find(0x1000) == nil {
		t.Error("a program is not read when it has come")
	}
}

// TestNamesOfAProgramToCome reads the names of threads when the record is in the rings still that the process executes
// another program, or that its PID is given again: neither the process nor a child that it has had before gets them.
func TestNamesOfAProgramToCome(t *testing.T) {
	t.Parallel()
	root := fakeProc(t, fakeProcess{pid: 5, comm: "next", threads: map[int]string{7: "other S"}, maps: "\n"})
	for _, looks := range []func(*Table){nil, func(tab *Table) { tab.ToCome(5, 9) }} {
		want := ""
		if looks == nil {
			want = "next"
		}
		for pieces := range 4 { // of the process, that were read when it is known that it has a child
			tab := NewTable(root)
			if err := tab.SeedLater([]uint32{5}); err != nil {
				t.Fatal(err)
			}
			if looks != nil {
				tab.Look = func() { looks(tab) }
			}
			tab.SeedSome(func() bool { pieces--; return pieces > 0 }, nil)
			tab.Fork(6, 6, 5, 5)
			if s := tab.Space(6); s == nil || s.Comm(6) != want {
				t.Errorf("a child of %q is known as %v", want, s)
			}
			checkTable(t, tab)
		}

		tab := NewTable(root)
		tab.Mmap(5, pages(1, 2, 0, "/a"))
		if looks != nil {
			tab.Look = func() { looks(tab) }
		}
		tab.Lost()
		tab.Reread(5)
		if s := tab.Space(5); s.Comm(5) != want || s.lacksThreads() != (looks != nil) {
			t.Errorf("read again, it is called %q, want %q; threads are lacking: %v", s.Comm(5), want, s.lacksThreads())
		}
		checkTable(t, tab)
	}
}

// TestRecordsAreYoungerThanMaps applies the record of a library when maps is open and not read yet: it shows what was
// there before.
func TestRecordsAreYoungerThanMaps(t *testing.T) {
	t.Parallel()
	tab := NewTable(fakeProc(t, fakeProcess{pid: 5, maps: "1000-2000 r-xp 00000000 00:00 1 /a.so\n" +
		"5000-6000 r-xp 00000000 00:00 1 /a.so\n" + "8000-9000 r-xp 00000000 00:00 1 /a.so\n"}))
	if err := tab.SeedLater([]uint32{5}); err != nil {
		t.Fatal(err)
	}
	open := func() bool { return tab.unread.now == nil || tab.unread.now.under.maps == nil }
	tab.SeedSome(open, nil)
	tab.Mmap(5, Map{Addr: 0x5000, Len: 0x1000, Prot: ProtExec, Name: []byte("/b.so")})
	tab.SeedSome(func() bool { return true }, nil)
	s := tab.Space(5)
	if s.Find(0x1000) == nil || s.Find(0x5000).File.Path != "/b.so" || s.Find(0x8000) == nil {
		t.Errorf("found %v, %v and %v", s.Find(0x1000), s.Find(0x5000), s.Find(0x8000))
	}
}

// TestMapsWithoutCodeAreAheadOfRecords reads maps while a library is being loaded where another one was: all of it is
// mapped without code first. Samples of the library before are still to come.
func TestMapsWithoutCodeAreAheadOfRecords(t *testing.T) {
	t.Parallel()
	root := fakeProc(t, fakeProcess{pid: 5, maps: "1000-2000 r-xp 00000000 00:00 1 /program\n"})
	tab := NewTable(root)
	s, err := tab.Seed(5)
	if err != nil {
		t.Fatal(err)
	}
	tab.Mmap(5, pages(8, 9, 1, "/before.so"))
	loading := fakeProcess{pid: 5,
		maps: "1000-2000 r-xp 00000000 00:00 1 /program\n7000-a000 r--p 00000000 00:00 2 /after.so\n"}
	writeFakeProc(t, root, loading)
	if reloads(tab, s); s.Find(0x8000) == nil || s.Find(0x8000).File.Path != "/before.so" {
		t.Errorf("%+v is at the place of /before.so", s.Find(0x8000))
	}
	tab.Lost() // one of the records may have told
	if reloads(tab, s); s.Find(0x8000) != nil {
		t.Errorf("%+v is there, though maps shows no code", s.Find(0x8000))
	}
}

// TestMemoryThatIsNoCodeAnyMore has a program take the right to execute from memory and from a part of its file, of
// which no record tells. The rest of both is code still.
func TestMemoryThatIsNoCodeAnyMore(t *testing.T) {
	t.Parallel()
	root := fakeProc(t, fakeProcess{pid: 5, maps: "1000-3000 r-xp 00000000 00:00 1 /program\n" +
		"8000-a000 rwxp 00000000 00:00 0\n"})
	tab := NewTable(root)
	s, err := tab.Seed(5)
	if err != nil {
		t.Fatal(err)
	}
	writeFakeProc(t, root, fakeProcess{pid: 5, maps: "1000-2000 r--p 00000000 00:00 1 /program\n" +
		"2000-3000 r-xp 00001000 00:00 1 /program\n8000-9000 rw-p 00000000 00:00 0\n9000-a000 rwxp 00000000 00:00 0\n"})
	if got, want := reloads(tab, s), "1-3@0 /program\n9-10@1 //anon\n"; !got || dump(s) != want {
		t.Errorf("%v\n%swant\n%s", got, dump(s), want)
	}
	tab.Lost() // one of the records may have told of the file
	if got, want := reloads(tab, s), "2-3@1 /program\n9-10@1 //anon\n"; !got || dump(s) != want {
		t.Errorf("after a loss: %v\n%swant\n%s", got, dump(s), want)
	}
	checkTable(t, tab)
}

// reloads reads the mappings of a process again, and reports whether they are different.
func reloads(tab *Table, s *Space) bool {
	different, _ := tab.reload(s)
	return different
}
