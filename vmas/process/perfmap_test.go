package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPerfMapsThatAUserMayNotRead: the capability to read every file does not open a perf map to an ordinary user that
// only its owner may read.
func TestPerfMapsThatAUserMayNotRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	const nobody = 65534
	proc := t.TempDir()
	path := filepath.Join(proc, "1/root/tmp/perf-1.map")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		owner int
		mode  os.FileMode
		opens bool
	}{
		{"everybody's", 0, 0o644, true}, {"another's", 0, 0o600, false}, {"the user's own", nobody, 0o600, true},
		{"a group's", 0, 0o640, false},
	} {
		err := errors.Join(os.WriteFile(path, []byte("10 8 f\n"), c.mode), os.Chmod(path, c.mode),
			os.Chown(path, c.owner, nobody))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		var open func()
		open = func() {
			runtime.LockOSThread() // and never unlocked: the thread ends as nobody, with a capability
			if unix.Gettid() == os.Getpid() {
				defer runtime.UnlockOSThread() // the main thread would not end
				another := make(chan struct{})
				go func() {
					defer close(another)
					open()
				}()
				<-another
				return
			}
			caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			const search = 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_DAC_OVERRIDE
			data := [2]unix.CapUserData{{Effective: search, Permitted: search}}
			if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
				done <- err
				return
			}
			unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
			if err := unix.Capset(&caps, &data[0]); err != nil {
				done <- err
				return
			}
			file, err := Direct(proc).OpenPerfMap(1, 1)
			if err == nil {
				file.Close()
			}
			done <- err
		}
		go open()
		if err := <-done; (err == nil) != c.opens || err != nil && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
