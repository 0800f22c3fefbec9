package session

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/counts"
	"unspool/capture/session/sessiontest"
	"unspool/testdata/programs"
)

// asNobody calls fn in a thread without privileges. The thread ends with the test.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	if unix.Geteuid() != 0 {
		t.Skip("skipped for want of root, to give privileges up")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if err := becomeNobody(); err != nil {
			done <- err
			return
		}
		fn()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Skip(err)
	}
}

// becomeNobody gives up the privileges of the calling thread.
func becomeNobody() error {
	const nobody = 65534
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
		return errno
	}
	return nil
}

// hideOthers mounts /proc for the calling thread so that it does not show other users' processes.
func hideOthers() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("proc", "/proc", "proc", 0, "hidepid=2,gid=65533") // whose group sees all
}

// TestProcessesThatProcHides samples another user's process that /proc does not show, and one that has ended.
func TestProcessesThatProcHides(t *testing.T) {
	t.Parallel()
	if unix.Geteuid() != 0 {
		t.Skip("skipped for want of root, to mount /proc")
	}
	programs.NeedMounts(t)
	cmd, ended := exec.Command("sleep", "600"), exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	format := sessiontest.Format()
	s := New(Config{Format: &format, Sink: sessiontest.Discard{}, Proc: "/proc", MaxStack: 2048})
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if err := hideOthers(); err != nil {
			failed <- err
			return
		}
		if err := becomeNobody(); err != nil {
			failed <- err
			return
		}
		for range 3 {
			s.Record(sessiontest.UserSample(uint32(cmd.Process.Pid), 0x1234).Record())
			s.Record(sessiontest.UserSample(uint32(ended.Process.Pid), 0x1234).Record())
		}
		failed <- nil
	}()
	if err := <-failed; err != nil {
		t.Skipf("/proc cannot hide processes here: %v", err)
	}
	if s.Stats.User != 6 || s.Stats.Denied != 3 {
		t.Errorf("%d samples, %d denied", s.Stats.User, s.Stats.Denied)
	}
}

// TestMappingsThatMayNotBeRead samples a process of another user that ran before the recording.
func TestMappingsThatMayNotBeRead(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	format := sessiontest.Format()
	s := New(Config{Format: &format, Sink: sessiontest.Discard{}, Proc: "/proc", MaxStack: 2048})
	asNobody(t, func() {
		for range 3 {
			s.Record(sessiontest.UserSample(uint32(cmd.Process.Pid), 0x1234).Record())
		}
	})
	if s.Stats.User != 3 || s.Stats.Denied != 3 {
		t.Errorf("%d samples, %d denied", s.Stats.User, s.Stats.Denied)
	}
	var b strings.Builder
	counts.WriteSummary(&b, &s.Stats, s.Trouble(), counts.Settings{StackSize: 32768, MaxStack: 2048}, "")
	for _, want := range []string{"3 samples are of processes whose mappings", "may not be read (3)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary does not say %q:\n%s", want, &b)
		}
	}
	// What its records tell later is known.
	s.table.Comm(uint32(cmd.Process.Pid), uint32(cmd.Process.Pid), []byte("next"), true)
	s.Record(sessiontest.UserSample(uint32(cmd.Process.Pid), 0x1234).Record())
	if s.Stats.Denied != 3 {
		t.Errorf("after an exec %d denied", s.Stats.Denied)
	}
}
