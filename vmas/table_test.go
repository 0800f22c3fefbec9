package vmas

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestForkCopiesAndChildGoesItsWay(t *testing.T) {
	tab := NewTable("")
	tab.Comm(1, 1, []byte("sh\x00junk"), true)
	tab.Mmap(1, pages(10, 20, 0, "/bin/sh"))
	tab.Fork(2, 2, 1, 1)
	if got := tab.Space(2).Comm(2); got != "sh" {
		t.Errorf("the child is called %q", got)
	}
	if tab.Space(1).layout != tab.Space(2).layout {
		t.Error("a child that changed nothing has its own copy")
	}
	tab.Mmap(1, pages(30, 40, 0, "/lib"))
	tab.Mmap(2, pages(12, 14, 0, "/plugin"))
	if got, want := dump(tab.Space(1)), "10-20@0 /bin/sh\n30-40@0 /lib\n"; got != want {
		t.Errorf("parent\n%s", got)
	}
	if got, want := dump(tab.Space(2)), "10-12@0 /bin/sh\n12-14@0 /plugin\n14-20@4 /bin/sh\n"; got != want {
		t.Errorf("child\n%s", got)
	}
	tab.Exit(1, 1)
	checkTable(t, tab)
	tab.Comm(2, 2, []byte("ls"), true)
	if got := dump(tab.Space(2)); got != "" {
		t.Errorf("after exec\n%s", got)
	}
	checkTable(t, tab)
}

func TestLastThreadTakesTheSpace(t *testing.T) {
	tab := NewTable("")
	tab.Comm(5, 5, []byte("srv"), true)
	tab.Fork(5, 6, 5, 5)
	tab.Fork(5, 7, 5, 6)
	tab.Comm(5, 7, []byte("worker-with-a-very-long-name"), false)
	s := tab.Space(5)
	if got := fmt.Sprint(s.Threads()); got != "[{5 srv} {6 srv} {7 worker-with-a-v}]" {
		t.Errorf("threads %s", got)
	}
	tab.Exit(5, 5) // the leader first
	tab.Exit(5, 6)
	tab.Exit(5, 6) // twice: two events on one CPU both report it
	if tab.Space(5) == nil {
		t.Fatal("the space is gone before its last thread")
	}
	tab.Exit(5, 7)
	if tab.Space(5) != nil {
		t.Fatal("the space outlives its last thread")
	}
}

func TestExecInThreadEndsTheOthers(t *testing.T) {
	tab := NewTable("")
	tab.Comm(5, 5, []byte("srv"), true)
	tab.Fork(5, 6, 5, 5)
	tab.Fork(5, 7, 5, 5)
	// Thread 7 execs: 5 and 6 exit, and 7 becomes 5 without an EXIT of 7.
	tab.Exit(5, 5)
	tab.Exit(5, 6)
	tab.Comm(5, 5, []byte("new"), true)
	if got := fmt.Sprint(tab.Space(5).Threads()); got != "[{5 new}]" {
		t.Errorf("threads %s", got)
	}
	tab.Exit(5, 5)
	if tab.Space(5) != nil {
		t.Error("the old TID of the thread that called exec keeps the process")
	}
}

func TestReusedPIDIsAnotherProcess(t *testing.T) {
	tab := NewTable("")
	tab.Mmap(1, pages(1, 2, 0, "/init"))
	tab.Mmap(5, pages(10, 20, 0, "/old"))
	tab.Fork(5, 5, 1, 1) // the EXIT of the old 5 was lost
	if got := dump(tab.Space(5)); got != "1-2@0 /init\n" {
		t.Errorf("mappings\n%s", got)
	}
	tab.Exit(5, 5)
	tab.Fork(5, 5, 1, 1)
	if tab.Mmap(5, pages(3, 4, 0, "/new")) == nil {
		t.Error("a PID that lives again takes no mapping")
	}
	checkTable(t, tab)
}

func TestLateRecordsBringNothingBack(t *testing.T) {
	tab := NewTable("")
	tab.Comm(5, 5, []byte("x"), true)
	tab.Exit(5, 5)
	if tab.Mmap(5, pages(1, 2, 0, "/late")) != nil || tab.Space(5) != nil {
		t.Error("a late MMAP2 brings the process back")
	}
	tab.Comm(5, 5, []byte("late"), false)
	tab.Exit(5, 5)
	if tab.Len() != 0 {
		t.Error("a late COMM or EXIT brings the process back")
	}
	tab.Lost()
	if tab.Mmap(5, pages(1, 2, 0, "/new")) == nil {
		t.Error("after lost records, the PID is still taken for dead")
	}
}

func TestKernelMappingsAreNobodys(t *testing.T) {
	tab := NewTable("")
	tab.Mmap(noPID, pages(1, 2, 0, "[kernel.kallsyms]_text"))
	tab.Fork(noPID, noPID, 0, 0)
	tab.Comm(noPID, noPID, []byte("x"), true)
	tab.Exit(noPID, noPID)
	if tab.Len() != 0 {
		t.Errorf("%d processes", tab.Len())
	}
}

func TestForgottenFilesAreReported(t *testing.T) {
	closed := map[string]int{}
	tab := NewTableOf(nil, func(f *File) { closed[f.Path]++ })
	for i := range 3 * maxIdle {
		tab.Comm(5, 5, []byte("x"), true)
		m := tab.Mmap(5, pages(1, 2, 0, "/libc"))
		m.File.Image = "parsed"
		tab.Mmap(5, pages(2, 3, 0, fmt.Sprintf("/bin%d", i)))
		tab.Exit(5, 5)
		if i == 10 {
			// A process that keeps running keeps its file.
			tab.Comm(6, 6, []byte("x"), true)
			tab.Mmap(6, pages(1, 2, 0, "/libc"))
		}
	}
	if closed["/libc"] != 0 || tab.Space(6).Find(4096).File.Image != "parsed" {
		t.Error("a file in use was given up")
	}
	if closed["/bin0"] != 1 || closed[fmt.Sprintf("/bin%d", 3*maxIdle-1)] != 0 {
		t.Error("files do not leave in order of their last use")
	}
	checkTable(t, tab)
}

// Only two maps, whose buckets never shrink, and the stores of bounded size may stay in memory.
func TestMemoryLevelsOff(t *testing.T) {
	tab := NewTable("")
	tab.Comm(1, 1, []byte("init"), true)
	for i := range uint64(20) {
		tab.Mmap(1, pages(i*2, i*2+1, 0, fmt.Sprintf("/lib/%d", i)))
	}
	heap := func() uint64 {
		runtime.GC()
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		return ms.HeapAlloc
	}
	run := func(first, n uint32) {
		for i := range n {
			pid := first + i
			tab.Fork(pid, pid, 1, 1)
			tab.Comm(pid, pid, fmt.Appendf(nil, "cmd%d", i), true)
			for j := range uint64(4) {
				m := pages(j*2, j*2+1, 0, fmt.Sprintf("/build/%d/file%d", pid, j))
				m.ID.Inode = uint64(pid)*4 + j
				tab.Mmap(pid, m).File.Image = make([]byte, 1024)
			}
			tab.Fork(pid, pid+1<<20, pid, pid)
			tab.Exit(pid, pid)
			tab.Exit(pid, pid+1<<20)
		}
	}
	run(1000, 5000)
	before := heap()
	run(10000, 20000)
	after := heap()
	t.Logf("heap %d KiB after 5,000 processes, %d KiB after 25,000", before>>10, after>>10)
	if after > before+256<<10 {
		t.Errorf("heap grew from %d to %d bytes", before, after)
	}
	if tab.Len() != 1 || len(tab.files.byKey) > 20+maxIdle {
		t.Errorf("%d processes and %d files stay", tab.Len(), len(tab.files.byKey))
	}
	checkTable(t, tab)
	runtime.KeepAlive(tab)
}

func TestRefreshHoldsBack(t *testing.T) {
	root := fakeProc(t, fakeProcess{pid: 5, maps: "1000-2000 r-xp 00000000 00:00 0 /a\n"})
	tab := NewTable(root)
	now := time.Unix(1000, 0)
	tab.now = func() time.Time { return now }
	if _, err := tab.Seed(5); err != nil {
		t.Fatal(err)
	}
	try := func(what string, want bool, reads int) {
		t.Helper()
		before := tab.Space(5).reread
		if got := tab.Refresh(5); got != want {
			t.Errorf("%s: Refresh = %v", what, got)
		}
		if read := tab.Space(5).reread != before; read != (reads == 1) {
			t.Errorf("%s: read again: %v", what, read)
		}
	}
	try("first miss", false, 1)
	try("at once", false, 0)
	now = now.Add(time.Hour)
	try("much later, though no record has come", false, 1)
	tab.Mmap(5, pages(100, 101, 0, "/b"))
	now = now.Add(time.Hour)
	try("after a record", false, 1)
	tab.Mmap(5, pages(102, 103, 0, "/b"))
	try("too soon", false, 0)
	now = now.Add(time.Second)
	writeFakeProc(t, root, fakeProcess{pid: 5,
		maps: "1000-2000 r-xp 00000000 00:00 0 /a\n8000-9000 r-xp 00000000 00:00 0 /new\n"})
	try("later", true, 1)
	if tab.Space(5).Find(0x8000) == nil || tab.Space(5).Find(102<<12) == nil {
		t.Error("re-reading loses what records told or does not find the new mapping")
	}
	writeFakeProc(t, root, fakeProcess{pid: 5, start: 777, maps: "a000-b000 r-xp 00000000 00:00 0 /other\n"})
	tab.Mmap(5, pages(104, 105, 0, "/b"))
	now = now.Add(time.Hour)
	try("the PID is another process's now", false, 1)
	if tab.Refresh(99) {
		t.Error("an unknown PID is refreshed")
	}
}

// TestLostRecordsAreReadAgain loses what two processes did: one executed another program, in the place of the
// other there is a new process.
func TestLostRecordsAreReadAgain(t *testing.T) {
	before := "1000-2000 r-xp 00000000 00:00 0 /old\n"
	root := fakeProc(t, fakeProcess{pid: 5, comm: "old", start: 100, maps: before},
		fakeProcess{pid: 6, comm: "old", start: 100, maps: before})
	tab := NewTable(root)
	now := time.Unix(1000, 0)
	tab.now = func() time.Time { // each look at the clock takes longer than re-reads have credit for
		now = now.Add(mostReread + time.Millisecond)
		return now
	}
	for _, pid := range []uint32{5, 6} {
		if _, err := tab.Seed(pid); err != nil {
			t.Fatal(err)
		}
	}
	after := "1000-3000 r-xp 00000000 00:00 0 /new\n" +
		strings.Repeat("8000-9000 rw-p 00000000 00:00 0\n", int(mostReread/lineWork))
	writeFakeProc(t, root, fakeProcess{pid: 5, comm: "new", start: 100, maps: after})
	writeFakeProc(t, root, fakeProcess{pid: 6, comm: "other", start: 777, maps: after})
	for _, pid := range []uint32{5, 6} {
		if tab.Reread(pid) || tab.Space(pid).Find(0x1000).File.Path != "/old" {
			t.Errorf("process %d is read again though nothing was lost", pid)
		}
	}
	tab.Lost()
	for pid, name := range map[uint32]string{5: "new", 6: "other"} {
		if !tab.Space(pid).Doubted() || !tab.Reread(pid) {
			t.Errorf("process %d is not read again", pid)
		}
		s := tab.Space(pid)
		m := s.Find(0x1000)
		if m == nil || m.File.Path != "/new" || s.Find(0x2000) == nil || s.Comm(pid) != name {
			t.Errorf("process %d, %s: %s", pid, s.Comm(pid), dump(s))
		}
		if s.Doubted() || tab.Reread(pid) {
			t.Errorf("process %d is read twice", pid)
		}
	}
	tab.Lost()
	if tab.Reread(5) || !tab.Space(5).Doubted() {
		t.Error("a process is read again too soon, or never")
	}
	now = now.Add(time.Minute)
	if tab.Reread(5); tab.Space(5).Doubted() {
		t.Error("a process stays in doubt")
	}
	checkTable(t, tab)
}

// TestRereadsThatTakeLong moves a mapping again and again: a read that waits long does not keep the next one
// from being made, but in the long run reads take a fiftieth of the time, and a quarter if they only wait.
func TestRereadsThatTakeLong(t *testing.T) {
	for _, c := range []struct {
		name  string
		took  time.Duration
		lines int
		share float64 // of the time
	}{
		{"work", 9 * time.Millisecond, 700, 0.02},
		{"little work", 2 * time.Millisecond, 1, 0.02},
		{"waiting", 80 * time.Millisecond, 1, 0.19},
		{"a long time", 500 * time.Millisecond, 1, 0.23},
	} {
		t.Run(c.name, func(t *testing.T) {
			process := fakeProcess{pid: 5, comm: "moves", start: 100, maps: ""}
			root := fakeProc(t, process)
			tab := NewTable(root)
			now := time.Unix(1000, 0)
			tab.now = func() time.Time { now = now.Add(c.took); return now }
			if _, err := tab.Seed(5); err != nil {
				t.Fatal(err)
			}
			data := strings.Repeat("8000-9000 rw-p 00000000 00:00 0\n", c.lines-1)
			moves := 0
			move := func() {
				moves++
				process.maps = fmt.Sprintf("%x0000-%x1000 r-xp 00000000 00:00 0 /code\n", moves, moves) + data
				writeFakeProc(t, root, process)
			}
			refresh := func() bool {
				began := now
				if !tab.Refresh(5) {
					now = began // as a look at the clock takes no time
					return false
				}
				move()
				return true
			}
			move()
			for range 2 {
				if c.took < 100*time.Millisecond && !refresh() {
					t.Error("a read that took long keeps the next one from being made")
				}
			}
			for tab.Space(5).rereads.Has() > 0 {
				refresh()
			}
			const reads = 20
			began := now
			for read := 0; read < reads; now = now.Add(time.Millisecond) {
				if refresh() {
					read++
				}
			}
			share := float64(reads*c.took) / float64(now.Sub(began))
			if share < 0.9*c.share || share > 1.1*c.share {
				t.Errorf("%d reads of %v take %.3f of the time", reads, c.took, share)
			}
		})
	}
}
