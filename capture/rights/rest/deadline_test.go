package rest

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

func TestLastCPU(t *testing.T) {
	t.Parallel()
	const line = "7 (a) b (c) R 1 7 7 0 -1 4194304 10 0 0 0 0 0 0 0 20 0 1 0 99 " +
		"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 17 63 0 0\n"
	for text, want := range map[string]int{line: 63, "7 (a) R 1\n": -1, "": -1, "no parenthesis": -1} {
		cpu, ok := lastCPU([]byte(text))
		if ok != (want >= 0) || ok && cpu != want {
			t.Errorf("%q: %d, %v", text, cpu, ok)
		}
	}
	stat, err := os.ReadFile("/proc/thread-self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if cpu, ok := lastCPU(stat); !ok || cpu < 0 || cpu >= 1<<13 {
		t.Errorf("%s: %d, %v", stat, cpu, ok)
	}
}

// TestReadersGoFirst makes a reader go before threads of real-time priority: it gets SCHED_DEADLINE on its own CPU, and
// goes back there when it has been moved.
func TestReadersGoFirst(t *testing.T) {
	lane.Root(t)
	done, tid := make(chan struct{}), 0
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		tid = unix.Gettid()
		var one, own unix.CPUSet
		if err := unix.SchedGetaffinity(0, &one); err != nil {
			t.Error(err)
			return
		}
		cpu := 0
		for !one.IsSet(cpu) {
			cpu++
		}
		own.Set(cpu)
		if err := unix.SchedSetaffinity(0, &own); err != nil {
			t.Error(err)
			return
		}
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 2}, 0); err != nil {
			t.Logf("real-time priority: %v", err)
			return
		}
		d := deadline{cpu: cpu}
		if d.try(); d.isOn || d.failed {
			t.Error("it goes first before anybody has asked for that")
		}
		add()
		defer remove()
		GoFirst()
		defer readers.first.Store(false)
		if d.try(); !d.isOn {
			t.Log("SCHED_DEADLINE is not permitted here")
			return
		}
		is, err := unix.SchedGetAttr(0, 0)
		if err != nil || is.Policy != schedDeadline || !d.isHome() {
			t.Errorf("%+v, %v, on its CPU: %v", is, err, d.isHome())
		}
		if d.keeps(uint32(unix.Gettid())) != d.isHome() {
			t.Error("this thread is not on this CPU")
		}
		d.cpu = (cpu + 1) % runtime.NumCPU() // as if it had been moved
		if d.try(); d.isOn && !d.isHome() {
			t.Error("it has not gone back")
		}
	}()
	<-done
	readers.Lock()
	defer readers.Unlock()
	if slices.Contains(readers.tids, tid) {
		t.Error("a thread that has ended is a reader still: its ID may be that of another program by now")
	}
}

// TestReaderWaits has a reader that goes first find that there are no samples, so that it closes what it has open.
func TestReaderWaits(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine, as its mask of signals is another one
		var blocked unix.Sigset_t
		blocked.Val[0] = signals
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, nil); err != nil {
			t.Error(err)
			return
		}
		idle := 0
		for idle < mostIdle {
			if before := idle; wait(&idle, true) || idle != before+1 {
				t.Errorf("a signal that nobody sent, or %d intervals after %d", idle, before)
				return
			}
		}
		if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), Signal); err != nil {
			t.Error(err)
			return
		}
		if !wait(&idle, true) || idle != 0 {
			t.Errorf("no signal after one was sent, and %d intervals without", idle)
		}
	}()
	<-done
}
