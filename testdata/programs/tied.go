package programs

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// StartTied starts a command that is killed when this process ends, as a test may panic. The kernel goes by
// the thread that started it, and a thread of Go ends with a goroutine that has locked it: so this one is
// held until the test ends.
func StartTied(t testing.TB, cmd *exec.Cmd) error {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, ended := make(chan error), make(chan struct{})
	t.Cleanup(func() { close(ended) })
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-ended
	}()
	return <-started
}
