package vmas

import (
	"fmt"
	"strings"
	"testing"
)

// TestProcessesAreBounded is told of more processes than are kept: those that are not used are forgotten, the ones
// that were added first before the others, and counted.
func TestProcessesAreBounded(t *testing.T) {
	const first, inUse, more = 10, 7, MaxSpaces + MaxSpaces/2
	tab := NewTable("")
	tab.Comm(inUse, inUse, []byte("sampled"), true)
	tab.Mmap(inUse, pages(1, 2, 0, "/bin/sampled"))
	for i := range uint32(more) {
		if i%(MaxSpaces/2) == 0 && tab.Space(inUse) == nil {
			t.Fatalf("a process that is sampled is forgotten after %d others", i)
		}
		tab.Comm(first+i, first+i, []byte("p"), true)
	}
	switch {
	case tab.Len() != MaxSpaces:
		t.Errorf("%d processes are known", tab.Len())
	case tab.Space(inUse).Find(0x1000) == nil, tab.Space(first+more-1) == nil, tab.Space(first) != nil:
		t.Error("the wrong ones are known")
	}
	if got, want := tab.Forgotten(), (Forgotten{Processes: 1 + more - MaxSpaces}); got != want {
		t.Errorf("forgotten: %+v, want %+v", got, want)
	}
	// An address space without a mapping is no more than this, and so are the names of its thread.
	if n := testing.AllocsPerRun(100, func() { tab.Comm(first+more, first+more, []byte("p"), true) }); n > 4 {
		t.Errorf("%v allocations for a process", n)
	}
	tab.Exit(first+more-1, first+more-1)
	checkTable(t, tab)
}

// TestThreadsAreBounded is told of more threads than have names: the process lives on when all that have names end.
func TestThreadsAreBounded(t *testing.T) {
	tab := NewTable("")
	tab.Comm(5, 5, []byte("many"), true)
	tab.Comm(6, 6, []byte("other"), true)
	for i := range uint32(MaxThreads) {
		tab.Fork(5, 100+i, 5, 5)
	}
	if got := tab.Forgotten(); got != (Forgotten{Threads: 2}) || tab.threads != MaxThreads {
		t.Errorf("forgotten: %+v; %d threads", got, tab.threads)
	}
	tab.Exit(6, 6)
	tab.Fork(5, 1, 5, 5)
	if got := tab.Forgotten(); got != (Forgotten{Threads: 2}) {
		t.Errorf("forgotten after one has ended: %+v", got)
	}
	tab.Comm(5, 5, []byte("next"), true)
	if tab.threads != 1 {
		t.Errorf("%d threads after an exec", tab.threads)
	}
	checkTable(t, tab)
}

// TestMappingsOfAllAreBounded maps more in some processes than there is room for: they lose their older mappings,
// and others none.
func TestMappingsOfAllAreBounded(t *testing.T) {
	for _, c := range []struct {
		name  string
		files func(pid, i uint64) string
		each  uint64
		fork  bool
	}{
		{"many mappings", func(uint64, uint64) string { return "/file" }, maxLimit / 8, false},
		{"long names", func(pid, i uint64) string {
			return fmt.Sprint("/", pid, "/", i, strings.Repeat("/name", 800))
		}, 1024, false},
		{"of forked processes", func(uint64, uint64) string { return "/file" }, maxLimit / 8, true},
	} {
		tab := NewTable("")
		tab.maxWeight = 8 << 20
		tab.Mmap(5, pages(1, 2, 0, "/honest"))
		most := 0
		for pid := uint32(10); pid < 22; pid++ {
			if c.fork {
				tab.Fork(pid, pid, pid-1, pid-1)
			}
			for i := range c.each {
				tab.Mmap(pid, pages(10+2*i, 11+2*i, 0, c.files(uint64(pid), i)))
			}
			most = max(most, tab.files.weight)
		}
		if most > tab.maxWeight+tab.maxWeight/8 || tab.Forgotten().Mappings == 0 {
			t.Errorf("%s: %d MiB of %d; %+v", c.name, most>>20, tab.maxWeight>>20, tab.Forgotten())
		}
		if tab.Space(5).Find(0x1000) == nil {
			t.Errorf("%s: the mapping of another process is forgotten", c.name)
		}
		checkTable(t, tab)
	}
}
