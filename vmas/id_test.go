package vmas

import "testing"

// What is remembered of an address space by its ID is not that of the next one with its PID.
func TestIDOfASpace(t *testing.T) {
	t.Parallel()
	table := NewTable("")
	seen := make(map[uint64]string)
	is := func(what string, s *Space, fresh bool) {
		t.Helper()
		if before, known := seen[s.ID()]; known == fresh {
			t.Errorf("%s: ID %d, which is that of %q", what, s.ID(), before)
		}
		seen[s.ID()] = what
	}
	table.Comm(10, 10, []byte("first"), true)
	s := table.Space(10)
	is("a process", s, true)
	table.Mmap(10, Map{Addr: 0x1000, Len: 0x1000, Prot: ProtExec, Name: []byte("/bin/true")})
	is("the same with another mapping", s, false)
	table.Fork(10, 11, 10, 10)
	is("the same with another thread", s, false)
	table.Fork(20, 20, 10, 10)
	is("its child", table.Space(20), true)
	table.Comm(10, 10, []byte("second"), true)
	is("another program", table.Space(10), true)
	table.Exit(20, 20)
	table.Fork(20, 20, 10, 10)
	is("another process with the PID", table.Space(20), true)
}
