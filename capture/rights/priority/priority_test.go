package priority

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

// threads gives how many threads of this process have a scheduling policy, level and nice value.
func threads(t *testing.T) map[unix.SchedAttr]int {
	t.Helper()
	found := make(map[unix.SchedAttr]int)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if a, err := unix.SchedGetAttr(tid, 0); err == nil {
			found[unix.SchedAttr{Policy: a.Policy, Priority: a.Priority, Nice: a.Nice}]++
		}
	}
	return found
}

// TestRaise goes up and back, and leaves a thread alone for which somebody has chosen another priority.
func TestRaise(t *testing.T) {
	if what, ok := Try(); !ok {
		t.Skipf("skipped for want of real-time priority: %s", what)
	}
	chosen, end := make(chan error), make(chan bool)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // it may be the first thread, which would never end
		chosen <- set(0, unix.SchedAttr{Nice: 5})
		<-end
		chosen <- set(0, unix.SchedAttr{})
	}()
	defer func() {
		close(end)
		if err := <-chosen; err != nil {
			t.Error(err)
		}
	}()
	if err := <-chosen; err != nil {
		t.Fatal(err)
	}
	ordinary, own := unix.SchedAttr{}, unix.SchedAttr{Nice: 5}
	if all := threads(t); all[ordinary] == 0 || all[own] != 1 {
		t.Skipf("skipped for want of ordinary priority: %v", all)
	}

	r := Raise()
	defer r.Restore()
	for _, step := range []struct {
		says  string
		level uint32
	}{{"real-time 1", lowest}, {"real-time 99", highest}} {
		if r.String() != step.says {
			t.Errorf("%s, want %s", r, step.says)
		}
		all := threads(t)
		level := realTime(step.level)
		for a, n := range all {
			if a.Policy != level.Policy && a != own || a.Policy == level.Policy && a.Priority != level.Priority {
				t.Errorf("%s: %d threads have %+v", r, n, a)
			}
		}
		if all[own] != 1 {
			t.Errorf("%s: the thread with another priority: %v", r, all)
		}
		if up := r.Highest(); up != (step.level == lowest) {
			t.Errorf("%s: went up: %v", r, up)
		}
	}
	r.Restore()
	if all := threads(t); all[own] != 1 || len(all) != 2 || r.String() != "ordinary" {
		t.Errorf("%s, in the end: %v", r, all)
	}
}

// TestRaiseByLimit raises the priority without CAP_SYS_NICE, as RLIMIT_RTPRIO allows it, in a process of its own.
func TestRaiseByLimit(t *testing.T) {
	const variable = "UNSPOOL_TEST_RAISE"
	if os.Getenv(variable) == "" {
		if what, ok := Try(); !ok {
			t.Skipf("skipped for want of real-time priority: %s", what)
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestRaiseByLimit$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if bytes.Contains(out, []byte("--- SKIP")) {
			t.Skip("skipped for want of CAP_SYS_RESOURCE, which raises RLIMIT_RTPRIO")
		}
		return
	}
	if err := unix.Prlimit(0, unix.RLIMIT_RTPRIO, &unix.Rlimit{Cur: lowest, Max: lowest}, nil); err != nil {
		t.Skip(err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)),
		uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	if what, ok := Try(); !ok {
		t.Errorf("tried: %s", what)
	}
	r := Raise()
	if r.String() != "real-time 1" || r.Highest() {
		t.Errorf("raised: %s", r)
	}
	r.Restore()
	if all := threads(t); len(all) != 1 || all[unix.SchedAttr{}] == 0 {
		t.Errorf("in the end: %v", all)
	}
}

// TestTryLeavesNothing tries often, so that the first thread of the process, which never ends, has its turn.
func TestTryLeavesNothing(t *testing.T) {
	if what, ok := Try(); !ok {
		t.Skipf("skipped for want of real-time priority: %s", what)
	}
	for range 200 {
		Try()
	}
	lane.Eventually(t, "all threads with real-time priority to end", func() bool {
		return threads(t)[realTime(lowest)] == 0
	})
}

// TestThreadsThatStartMeanwhile goes up and back while threads start and end all the time: one that is being
// started has the priority that its parent had before.
func TestThreadsThatStartMeanwhile(t *testing.T) {
	if what, ok := Try(); !ok {
		t.Skipf("skipped for want of real-time priority: %s", what)
	}
	ordinary := unix.SchedAttr{}
	if !lane.Soon(func() bool { // the threads of other tests end
		all := threads(t)
		return len(all) == 1 && all[ordinary] > 0
	}) {
		t.Skipf("skipped for want of ordinary priority: %v", threads(t))
	}
	var starters sync.WaitGroup
	var over atomic.Bool
	for range 4 {
		starters.Go(func() {
			for !over.Load() {
				ended := make(chan bool)
				go func() {
					runtime.LockOSThread() // and never unlocked: the thread ends
					close(ended)
				}()
				<-ended
			}
		})
	}
	defer starters.Wait()
	defer over.Store(true)
	for range 40 {
		r := Raise()
		r.Highest()
		up := threads(t)
		r.Restore()
		if down := threads(t); len(up) != 1 || up[realTime(highest)] == 0 || len(down) != 1 {
			t.Fatalf("the highest level: %v; in the end: %v", up, down)
		}
	}
}
