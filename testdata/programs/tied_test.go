package programs

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestTiedProgramsOutliveOtherThreads ends many threads while programs run. They are started at the same
// time, as the first thread of a process does not end.
func TestTiedProgramsOutliveOtherThreads(t *testing.T) {
	var sleepers [8]*exec.Cmd
	var starts sync.WaitGroup
	for i := range sleepers {
		sleepers[i] = exec.Command("sleep", "60")
		starts.Go(func() {
			if err := StartTied(t, sleepers[i]); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	for range 100 {
		ended := make(chan struct{})
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends
			close(ended)
		}()
		<-ended
	}
	time.Sleep(100 * time.Millisecond) // the last ones are ending
	for _, s := range sleepers {
		var status syscall.WaitStatus
		if pid, err := syscall.Wait4(s.Process.Pid, &status, syscall.WNOHANG, nil); pid != 0 || err != nil {
			t.Errorf("a program has ended: %v, %v", status, err)
		}
		s.Process.Kill()
		s.Wait()
	}
}
