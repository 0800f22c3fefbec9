package process

import (
	"os/exec"
	"syscall"
	"testing"
)

// TestLeash ends a process by each signal that a command is ended by.
func TestLeash(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		l, err := NewLeash(cmd.Process.Pid, s)
		if err != nil {
			_ = cmd.Process.Kill()
			t.Fatal(err)
		}
		l.Pull()
		_ = cmd.Wait()
		if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || w.Signal() != s {
			t.Errorf("%v: %v", s, cmd.ProcessState)
		}
		l.Close()
	}
}

// TestClosedLeashEndsNothing closes the sockets one after the other, as the end of this process does in some order.
func TestClosedLeashEndsNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l, err := NewLeash(cmd.Process.Pid, syscall.SIGTERM)
	if err != nil {
		_ = cmd.Process.Kill()
		t.Fatal(err)
	}
	l.Close()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || w.Signal() != syscall.SIGKILL {
		t.Errorf("%v", cmd.ProcessState)
	}
}
