package vmas

import (
	"os"
	"path/filepath"
	"testing"
)

// TestThreadsThatNoRecordToldOf ends a thread of a process whose other threads may not be known: the
// address space ends with the last thread, and not before.
func TestThreadsThatNoRecordToldOf(t *testing.T) {
	const pid = 5
	mapped := func(tab *Table) { tab.Mmap(pid, pages(1, 2, 0, "/a")) }
	lost := func(tab *Table) {
		tab.Comm(pid, pid, []byte("srv"), true)
		mapped(tab)
		tab.Lost() // the FORK of thread 6, say
	}
	told := func(tab *Table) {
		tab.Comm(pid, pid, []byte("srv"), true)
		mapped(tab)
		tab.Fork(pid, 6, pid, pid)
	}
	for _, c := range []struct {
		name    string
		known   func(*Table)   // applies the records
		threads map[int]string // in /proc, beside the leader; nil: there is no /proc
		exits   []uint32
		stays   bool
	}{
		{"a recording, another thread", mapped, nil, []uint32{6}, true},
		{"a recording, two others", mapped, nil, []uint32{6, 7}, true},
		{"a recording, the leader", mapped, nil, []uint32{pid}, false},
		{"a recording, the leader with another one known", told, nil, []uint32{pid}, true},
		{"a recording, both", told, nil, []uint32{pid, 6}, false},
		{"/proc has another", mapped, map[int]string{6: "io S"}, []uint32{pid}, true},
		{"/proc has another, and that one ends", mapped, map[int]string{6: "io S"}, []uint32{pid, 6}, false},
		{"/proc has another that has ended", mapped, map[int]string{6: "io Z"}, []uint32{pid}, false},
		{"/proc has the one that ends", mapped, map[int]string{}, []uint32{pid}, false},
		{"the FORK of another was lost", lost, map[int]string{6: "io S"}, []uint32{pid}, true},
		{"records lost, and no other", lost, map[int]string{}, []uint32{pid}, false},
		{"all records there: /proc is not asked", told, map[int]string{7: "io S"}, []uint32{pid, 6}, false},
	} {
		root := ""
		if c.threads != nil {
			root = fakeProc(t, fakeProcess{pid: pid, threads: c.threads, maps: "1000-2000 r-xp 00000000 00:00 0 /a\n"})
		}
		tab := NewTable(root)
		c.known(tab)
		for _, tid := range c.exits {
			tab.Exit(pid, tid)
		}
		if got := tab.Space(pid) != nil; got != c.stays {
			t.Errorf("%s: the address space stays: %v, want %v", c.name, got, c.stays)
		}
		if got := tab.ended.exited(pid); got == c.stays {
			t.Errorf("%s: remembered as ended: %v", c.name, got)
		}
		checkTable(t, tab)
	}
}

// TestProcessThatProcHasNoMore: if /proc has nothing about the process, an EXIT counts as the last one.
func TestProcessThatProcHasNoMore(t *testing.T) {
	root := fakeProc(t, fakeProcess{pid: 5, threads: map[int]string{6: "io S"}})
	tab := NewTable(root)
	tab.Mmap(5, pages(1, 2, 0, "/a"))
	if err := os.RemoveAll(filepath.Join(root, "5")); err != nil {
		t.Fatal(err)
	}
	if tab.Exit(5, 6); tab.Space(5) != nil {
		t.Error("the space outlives its process")
	}
}
