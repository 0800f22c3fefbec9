package priority

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The monitor is the one thread that sleeps for some microseconds at a time while others work.
func TestMonitorIsFound(t *testing.T) {
	pid := os.Getpid()
	tid := monitorOf(pid)
	if tid <= 0 || tid == pid {
		t.Fatalf("thread %d of %d", tid, pid)
	}
	sleeps := fmt.Sprintf("%d ", unix.SYS_NANOSLEEP)
	for began := time.Now(); ; {
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
		if err != nil {
			t.Skipf("skipped for want of what threads do: %v", err)
		}
		if strings.HasPrefix(string(call), sleeps) {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("thread %d does not sleep, but %s", tid, call)
		}
	}
}

// The monitor that is spared has slack and no real-time priority, before the highest level.
func TestMonitorIsSpared(t *testing.T) {
	monitor := monitorOf(os.Getpid())
	slack := func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", monitor))
		if err != nil {
			t.Skipf("skipped for want of timer slack: %v", err)
		}
		return strings.TrimSpace(string(b))
	}
	before := slack()
	r := Raise()
	defer r.Restore()
	if r.Level() == 0 {
		t.Skipf("skipped for want of real-time priority: %s", r)
	}
	if !IsRealTime(monitor) {
		t.Error("the monitor has no real-time priority, though nobody has spared it")
	}
	r.SpareMonitor()
	if is := slack(); is != monitorSlack || IsRealTime(monitor) || !IsRealTime(os.Getpid()) {
		t.Errorf("%s ns; real-time priority: the monitor %v, another thread %v", is, IsRealTime(monitor),
			IsRealTime(os.Getpid()))
	}
	if !r.Highest() || !IsRealTime(monitor) {
		t.Error("at the highest level the monitor has no real-time priority")
	}
	if r.Restore(); slack() != before || IsRealTime(monitor) {
		t.Errorf("in the end %s ns, before %s; real-time priority: %v", slack(), before, IsRealTime(monitor))
	}
	if r.SpareMonitor(); slack() != before {
		t.Errorf("%s ns without real-time priority", slack())
	}
}

// A thread that has no real-time priority, as one that a monitor has started, joins the others.
func TestThreadsJoin(t *testing.T) {
	if what, ok := Try(); !ok {
		t.Skipf("skipped for want of real-time priority: %s", what)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer func() {
			if set(0, unix.SchedAttr{}) == nil { // else the thread ends
				runtime.UnlockOSThread()
			}
		}()
		for _, level := range []uint32{lowest, highest} {
			if err := set(0, unix.SchedAttr{Nice: recorderNice}); err != nil {
				t.Error(err)
			}
			Join(level)
			is, err := unix.SchedGetAttr(0, 0)
			if err != nil || !IsRealTime(0) || is.Priority != level {
				t.Errorf("%+v, %v", is, err)
			}
		}
	}()
	<-done
}
