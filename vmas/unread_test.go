package vmas

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/vmas/process"
)

// madeTexts are processes with a number of executable mappings each, and the clock of who reads them.
type madeTexts struct {
	lines   map[uint32]int
	owner   map[uint32]uint32
	threads map[uint32]int // beside the leader
	late    map[uint32]int // how often maps is not read in time

	now   time.Time
	each  time.Duration // that a read takes
	reads int
}

func newMade(lines map[uint32]int) *madeTexts {
	return &madeTexts{lines: lines, owner: make(map[uint32]uint32), threads: make(map[uint32]int),
		late: make(map[uint32]int), now: time.Unix(1000, 0)}
}

func (m *madeTexts) table() *Table {
	tab := NewTableOf(m, nil)
	tab.now = func() time.Time { return m.now }
	return tab
}

// madeRead is how many bytes a read of maps returns: the kernel returns a page at a time.
const madeRead = 4096

type madeText struct {
	*madeTexts
	io.Reader
}

func (t *madeText) Close() error { return nil }

func (t *madeText) Read(b []byte) (int, error) {
	t.now = t.now.Add(t.each)
	t.reads++
	return t.Reader.Read(b[:min(len(b), madeRead)])
}

func (m *madeTexts) Text(pid, tid uint32, name process.Text, most int) (io.ReadCloser, error) {
	n, ok := m.lines[pid]
	switch {
	case !ok:
		return nil, fs.ErrNotExist
	case name == process.Stat:
		stat := fmt.Sprintf("%d (p%d) S 3 5 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 42 0 0\n", tid, tid)
		return &madeText{m, strings.NewReader(stat)}, nil
	case m.late[pid] > 0:
		m.late[pid]--
		return nil, errors.New("not read in time")
	}
	text := madeMaps(n)
	if most > 0 {
		text = text[:min(most, len(text))]
	}
	return &madeText{m, strings.NewReader(text)}, nil
}

// madeLine is how long a line is.
const madeLine = len("00000000-00000000 r-xp 00000000 00:00 1 /file\n")

// allMaps is what madeMaps has made so far.
var allMaps strings.Builder

// madeMaps is a text with n mappings.
func madeMaps(n int) string {
	for i := allMaps.Len() / madeLine; i < n; i++ {
		fmt.Fprintf(&allMaps, "%08x-%08x r-xp 00000000 00:00 1 /file\n", (2*i+1)<<12, (2*i+2)<<12)
	}
	return allMaps.String()[:n*madeLine]
}

func (m *madeTexts) Numbers(pid uint32) (all []uint32, err error) {
	if pid == 0 {
		return slices.Sorted(maps.Keys(m.lines)), nil
	}
	if _, ok := m.lines[pid]; !ok {
		return nil, fs.ErrNotExist
	}
	for i := range m.threads[pid] + 1 {
		all = append(all, pid+uint32(i))
	}
	return all, nil
}

func (m *madeTexts) Owner(pid uint32) (uint32, error) { return m.owner[pid], nil }

func always() bool { return true }

// TestSmallProcessesAreReadFirst reads processes of many sizes, a piece at a time, in the order of their sizes.
func TestSmallProcessesAreReadFirst(t *testing.T) {
	made := newMade(map[uint32]int{10: 30000, 20: 5, 30: 2000, 40: 9000, 50: 1})
	tab := made.table()
	if err := tab.SeedLater(nil); err != nil {
		t.Fatal(err)
	}
	var order []uint32
	calls, before := 0, 0
	for tab.HasUnread() {
		// A slice is over after three reads.
		tab.SeedSome(func() bool {
			if made.reads > before+3 {
				t.Fatalf("%d reads in a slice of 3", made.reads-before)
			}
			return made.reads < before+3
		}, func(s *Space, err error) {
			if err != nil || s.Len() != made.lines[s.PID] || tab.IsUnread(s.PID) {
				t.Errorf("process %d has %d mappings: %v", s.PID, s.Len(), err)
			}
			order = append(order, s.PID)
		})
		before = made.reads
		calls++
	}
	if want := []uint32{20, 50, 30, 40, 10}; !slices.Equal(order, want) {
		t.Errorf("read in the order %v, want %v", order, want)
	}
	if calls < 50 {
		t.Errorf("all is read in %d slices", calls)
	}
	if n := tab.LeftOut(); n != 0 {
		t.Errorf("%d processes are left out", n)
	}
	checkTable(t, tab)
}

// TestIdleProcessesAreBounded has a user with very many mappings and threads, in one process and in many. They are not
// read, others are. What was not read is when it is sampled.
func TestIdleProcessesAreBounded(t *testing.T) {
	const user, large, threads = 4242, 100, 200
	made := newMade(map[uint32]int{10: 30000, 20: 5, large: mostIdleLines + 1000, threads: 1})
	made.threads[threads] = mostIdleLines + 1000
	made.owner[large], made.owner[threads] = user, user
	for i := range uint32(12) {
		made.lines[1000+i] = mostIdleLines / 3 * 2
		made.owner[1000+i] = user
	}
	tab := made.table()
	if err := tab.SeedLater(nil); err != nil {
		t.Fatal(err)
	}
	seen := 0
	tab.SeedSome(always, func(s *Space, _ error) {
		if seen++; s.Len() != made.lines[s.PID] {
			t.Errorf("process %d has %d mappings", s.PID, s.Len())
		}
	})
	if tab.Space(10).Len() != 30000 || tab.Space(20).Len() != 5 || tab.IsUnread(10) || tab.IsUnread(20) {
		t.Error("another user's are not read")
	}
	if n := tab.LeftOut(); n < 5 || int(n)+seen != len(made.lines) || !tab.IsUnread(large) {
		t.Errorf("%d processes are read, %d left out, of %d", seen, n, len(made.lines))
	}
	if lines := tab.accounts[user].lines; lines > mostIdleLinesOfUser+mostIdleLines {
		t.Errorf("%d lines are read of the user's processes", lines)
	}
	if tab.HasUnread() {
		t.Error("more is to be read")
	}
	out := tab.LeftOut()
	if s, err := tab.SeedNow(large); err != nil || s.Len() != made.lines[large] || tab.IsUnread(large) {
		t.Errorf("once sampled, the process has %d mappings: %v", s.Len(), err)
	}
	if n := tab.LeftOut(); n != out-1 {
		t.Errorf("%d are left out then, of %d before", n, out)
	}
	checkTable(t, tab)
}

// TestTimeForIdleProcesses reads processes of a user that take long each. Those of another user are read after that.
func TestTimeForIdleProcesses(t *testing.T) {
	made := newMade(map[uint32]int{5000: 1})
	for i := range uint32(2000) {
		made.lines[10+i], made.owner[10+i] = 1000, 4242
	}
	made.each = lineWork * time.Duration(madeRead/madeLine)
	tab := made.table()
	if err := tab.SeedLater(nil); err != nil {
		t.Fatal(err)
	}
	began := made.now
	tab.SeedSome(always, nil)
	if took := made.now.Sub(began); took > 2*mostIdleTimeOfUser || tab.LeftOut() == 0 {
		t.Errorf("%v, %d left out", took, tab.LeftOut())
	}
	if tab.IsUnread(5000) {
		t.Error("another user's process is not read")
	}
	checkTable(t, tab)
}

// TestSampledProcessesWait samples many large processes of a user at once: the records that follow wait for a bounded
// time. Another user's process is read at once, and the user's are between drains, for a share of the time.
func TestSampledProcessesWait(t *testing.T) {
	const user, other = 4242, 5000
	made := newMade(map[uint32]int{other: 100})
	for i := range uint32(12) {
		made.lines[10+i], made.owner[10+i] = mostIdleLines+5000, user
	}
	tab := made.table()
	if err := tab.SeedLater(nil); err != nil {
		t.Fatal(err)
	}
	tab.SeedSome(always, nil) // it takes no time
	made.each = lineWork * time.Duration(madeRead/madeLine)
	sample := func(pid uint32) (s *Space, took time.Duration) {
		began := made.now
		s, err := tab.SeedNow(pid)
		if err != nil {
			t.Error(err)
		}
		return s, made.now.Sub(began)
	}
	var waited time.Duration
	for i := range uint32(12) {
		for range 3 { // again and again
			_, took := sample(10 + i)
			waited += took
		}
	}
	if most := mostUserCredit * 3 / 2; waited > most || waited < mostUserCredit/2 {
		t.Errorf("records waited for %v, at most %v are right", waited, most)
	}
	if s, _ := sample(other); s.Len() != 100 || tab.IsUnread(other) {
		t.Errorf("the other user's process has %d mappings", s.Len())
	}
	unread := func() (n int) {
		for i := range uint32(12) {
			if tab.IsUnread(10 + i) {
				n++
			}
		}
		return n
	}
	if unread() < 11 {
		t.Fatalf("%d are unread", unread())
	}
	began, work := made.now, time.Duration(0)
	for round := 0; unread() > 0 && round < 10000; round++ {
		at := made.now
		tab.SeedSome(func() bool { return made.now.Sub(at) < 5*time.Millisecond }, func(s *Space, _ error) {
			if s.Len() != made.lines[s.PID] {
				t.Errorf("process %d has %d mappings", s.PID, s.Len())
			}
		})
		work += made.now.Sub(at)
		made.now = made.now.Add(100 * time.Millisecond)
	}
	if share := work.Seconds() / made.now.Sub(began).Seconds(); unread() > 0 || share > 1.1/userShare {
		t.Errorf("%d are unread; reading took %.2f of the time", unread(), share)
	}
	checkTable(t, tab)
}

// TestRingsWithoutRoom samples a large process while the rings are full: it is read between drains.
func TestRingsWithoutRoom(t *testing.T) {
	made := newMade(map[uint32]int{10: 20000})
	tab := made.table()
	room := false
	tab.Room = func() bool { return room }
	if s, err := tab.SeedNow(10); err != nil || s == nil || s.Len() != 0 || !tab.IsUnread(10) {
		t.Errorf("%+v: %v", s, err)
	}
	tab.SeedSome(always, nil)
	if s := tab.Space(10); s.Len() != 20000 || tab.IsUnread(10) {
		t.Errorf("%d mappings", s.Len())
	}
	checkTable(t, tab)
}

// TestManySampledProcesses: to find the next one of the processes that wait takes no look at each of them, nor at the
// rings for each.
func TestManySampledProcesses(t *testing.T) {
	const user, n = 4242, 1000
	made := newMade(map[uint32]int{1: mostIdleLinesOfUser})
	made.owner[1] = user
	for i := range uint32(n) {
		made.lines[10+i], made.owner[10+i] = 3, user
	}
	tab := made.table()
	looks, room := 0, false
	tab.Room = func() bool { looks++; return room }
	for i := range uint32(n) {
		if _, err := tab.SeedNow(10 + i); err != nil {
			t.Fatal(err)
		}
	}
	tab.accountOf(tab.Space(10)).lines = mostIdleLinesOfUser // all that is read without regard to records was read
	looks = 0
	if tab.HasUnread() || looks > 1 {
		t.Errorf("to find that no process may be read took %d looks at the rings", looks)
	}
	room = true
	for rounds := 0; tab.HasUnread() && rounds < 10*n; rounds++ {
		waits := 0
		for _, u := range tab.unread.wants {
			if u.state == wanted {
				waits++
			}
		}
		if got := len(tab.unread.wants); got > waits {
			t.Fatalf("%d processes are gone through, of which %d wait", got, waits)
		}
		once := true
		tab.SeedSome(func() bool { now := once; once = false; return now }, nil)
	}
	if tab.HasUnread() || tab.Len() != n {
		t.Errorf("%d of %d processes are known, some still wait: %v", tab.Len(), n, tab.HasUnread())
	}
	checkTable(t, tab)
}

// TestRefreshOfLargeProcesses reads a large process again and again for samples in no mapping. What does not fit into
// the credit of its user is read between drains, and nothing is read by two at a time.
func TestRefreshOfLargeProcesses(t *testing.T) {
	made := newMade(map[uint32]int{})
	for i := range uint32(8) {
		made.lines[10+i], made.owner[10+i] = 20000, 4242
	}
	tab := made.table()
	for pid := range made.lines {
		if _, err := tab.Seed(pid); err != nil {
			t.Fatal(err)
		}
	}
	made.each = lineWork * time.Duration(madeRead/madeLine)
	began := made.now
	for pid := range made.lines {
		made.lines[pid]++
		for range 2 {
			tab.Refresh(pid)
		}
	}
	if took := made.now.Sub(began); took > mostUserCredit*3/2 {
		t.Errorf("records waited for %v", took)
	}
	for range 1000 {
		tab.SeedSome(always, nil)
		made.now = made.now.Add(100 * time.Millisecond)
		for pid := range made.lines {
			tab.Refresh(pid)
		}
	}
	for pid, n := range made.lines {
		if tab.Space(pid).Len() != n {
			t.Errorf("process %d has %d mappings", pid, tab.Space(pid).Len())
		}
	}
	checkTable(t, tab)
}

// TestRecordsOfUnreadProcesses applies records about processes that are still to be read.
func TestRecordsOfUnreadProcesses(t *testing.T) {
	const pid, child = 10, 900
	comesAt := func(look int) func(*Table) { // the program that pid executes next
		return func(tab *Table) {
			looks := 0
			tab.Look = func() {
				if looks++; looks == look {
					tab.ToCome(pid, 7)
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		record func(*Table)
		unread bool   // afterwards
		now    string // what SeedNow shows
	}{
		{"none", func(*Table) {}, true, "1-2@0 /file\n3-4@0 /file\n"},
		{"an exec", func(tab *Table) { tab.Comm(pid, pid, []byte("new"), true) }, false, ""},
		{"a mapping", func(tab *Table) { tab.Mmap(pid, pages(8, 9, 0, "/lib")) }, true,
			"1-2@0 /file\n3-4@0 /file\n8-9@0 /lib\n"},
		{"the end of a thread", func(tab *Table) { tab.Exit(pid, pid+1) }, true, "1-2@0 /file\n3-4@0 /file\n"},
		{"a new process with its PID", func(tab *Table) { tab.Fork(pid, pid, 1, 1) }, false, ""},
		{"an exec that is to come", func(tab *Table) { tab.ToCome(pid, 7) }, true, ""},
		{"an exec that has come", func(tab *Table) {
			tab.ToCome(pid, 7)
			tab.Comm(pid, pid, []byte("new"), true)
			tab.HasCome(pid, 7)
		}, false, ""},
		{"an exec that is to come while its threads are read", comesAt(2), true, ""},
		{"an exec that is to come while its mappings are read", comesAt(3), true, ""},
	} {
		made := newMade(map[uint32]int{pid: 2})
		made.threads[pid] = 1
		tab := made.table()
		if err := tab.SeedLater([]uint32{pid}); err != nil {
			t.Fatal(err)
		}
		c.record(tab)
		if tab.IsUnread(pid) != c.unread {
			t.Errorf("%s: unread: %v", c.name, tab.IsUnread(pid))
		}
		if c.unread {
			tab.SeedNow(pid)
		}
		shown := ""
		if s := tab.Space(pid); s != nil {
			shown = dump(s)
		}
		if shown != c.now {
			t.Errorf("%s: %q, want %q", c.name, shown, c.now)
		}
		checkTable(t, tab)
	}

	made := newMade(map[uint32]int{pid: 2, 20: 1})
	tab := made.table()
	tab.SeedLater(nil)
	tab.Fork(child, child, pid, pid)
	if got := dump(tab.Space(child)); got != "1-2@0 /file\n3-4@0 /file\n" || tab.IsUnread(child) {
		t.Errorf("the child of an unread process has %q", got)
	}
	tab.Room = func() bool { return false }
	tab.Fork(child+1, child+1, 20, 20)
	if !tab.IsUnread(child+1) || tab.LeftOut() != 0 {
		t.Error("the child of a process that cannot be read now is not to be read")
	}
	tab.Comm(child+1, child+1, []byte("next"), true)
	if tab.IsUnread(child + 1) {
		t.Error("it is to be read after an exec")
	}
	checkTable(t, tab)
}

// TestProcessesThatAreLate cannot read a process in time: it is tried again, some times.
func TestProcessesThatAreLate(t *testing.T) {
	made := newMade(map[uint32]int{10: 3, 20: 3, 30: 3})
	made.late[10], made.late[20] = 1, mostTries
	tab := made.table()
	tab.SeedLater(nil)
	tab.SeedSome(always, nil)
	if tab.IsUnread(10) || tab.IsUnread(30) || !tab.IsUnread(20) || tab.LeftOut() != 1 {
		t.Errorf("unread: %v, %v, %v; %d are left out", tab.IsUnread(10), tab.IsUnread(30), tab.IsUnread(20),
			tab.LeftOut())
	}
	if s, err := tab.SeedNow(20); err != nil || s.Len() != 3 {
		t.Errorf("later: %v", err)
	}
	checkTable(t, tab)
}
