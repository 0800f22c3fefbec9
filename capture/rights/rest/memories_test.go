package rest

import (
	"os"
	"os/exec"
	"testing"
)

// TestMemoriesAreKept has memory of processes opened once, and closed when they have ended or another process takes
// the place.
func TestMemoriesAreKept(t *testing.T) {
	open := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	none := open()
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	before := open()
	pid, self := uint32(child.Process.Pid), uint32(os.Getpid())
	all := memories(make([]memory, 1))
	of := func(pid uint32) ProcessMemory {
		if m := all.of(linux{}, pid); m != nil {
			return m.ProcessMemory
		}
		return nil
	}
	first := of(pid)
	if first == nil || of(pid) != first || open() != before+2 {
		t.Fatalf("%v is kept, and %d descriptors", first, open()-before)
	}
	if all.closeEnded(false); of(pid) != first {
		t.Error("that of a process that is there is closed")
	}
	if own := of(self); own == nil || own == first || of(self) != own || open() != before+2 {
		t.Errorf("in the same place, %v is kept, and %d descriptors", own, open()-before)
	}
	of(pid)
	in.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if all.closeEnded(false); open() != none {
		t.Errorf("%d descriptors of a process that has ended", open()-none)
	}
	if of(pid) != nil || open() != none {
		t.Errorf("%d descriptors for a process that is not there", open()-none)
	}
	of(self)
	if all.closeEnded(true); open() != none {
		t.Errorf("%d descriptors while there are no samples", open()-none)
	}
	if n := len(newMemories()); n < leastMemories || n > enoughMemories {
		t.Errorf("%d are kept", n)
	}
}
