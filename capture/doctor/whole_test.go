package doctor

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMappingsOfOthers tries to read what the processes of this machine map, with and without privileges.
func TestMappingsOfOthers(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("skipped for want of root, to give privileges up")
	}
	m := Local()
	if all, refused := m.mappings(); 4*refused > all || all == 0 { // few are hidden from root, too
		t.Errorf("root: %d of %d are refused", refused, all)
	}
	type counts struct{ all, refused int }
	done := make(chan counts)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends without its privileges
		const nobody = 65534
		unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		all, refused := m.mappings()
		done <- counts{all, refused}
	}()
	if c := <-done; c.refused == 0 || c.refused == c.all {
		t.Errorf("nobody: %d of %d are refused", c.refused, c.all)
	}
}
