package doctor

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMappingsOfOthers tries to read what the processes of this machine map, with and without privileges.
func TestMappingsOfOthers(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("skipped for want of root, to give privileges up")
	}
	m := Local()
	// Few are hidden from root, too.
	if r := m.look(); 4*r.maps > r.all || 4*r.mem > r.all || r.files || r.all == 0 {
		t.Errorf("root: %+v", r)
	}
	done := make(chan refusals)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends without its privileges
		const nobody = 65534
		unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		done <- m.look()
	}()
	if r := <-done; r.maps == 0 || r.maps == r.all || r.mem == 0 || !r.files {
		t.Errorf("nobody: %+v", r)
	}
}

// TestRefusals: who may not look into processes is told so, and what gives the right.
func TestRefusals(t *testing.T) {
	root := t.TempDir()
	put(t, root, "proc/self/status", noCaps)
	m := &Environment{Proc: filepath.Join(root, "proc")}
	for _, c := range []struct {
		of   refusals
		says string
	}{
		{refusals{all: 9, maps: 2}, "the mappings of 2 of 9 cannot be read"},
		{refusals{all: 9, mem: 3}, "the memory of 3 of 9 cannot be read"},
		{refusals{all: 9, files: true}, "deleted or replaced"},
	} {
		if got := m.others(c.of); got.State != Warning || !strings.Contains(got.Detail, c.says) || got.Fix == "" {
			t.Errorf("%+v: %+v", c.of, got)
		}
	}
}
