package rest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

// TestThreadsThatRun asks of a thread whether it has run, while it waits and after it has run, and again once
// it has real-time priority, and once it has ended.
func TestThreadsThatRun(t *testing.T) {
	var work [2]int // a pipe: in a channel, it would not be seen when the thread waits
	if err := unix.Pipe2(work[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	var do func() error
	tids, worked := make(chan int), make(chan error)
	go func() {
		defer unix.Close(work[0])
		runtime.LockOSThread() // and ends
		tids <- unix.Gettid()
		for {
			if n, err := unix.Read(work[0], make([]byte, 1)); err != unix.EINTR && n <= 0 {
				close(worked)
				return
			} else if n > 0 {
				worked <- do()
			}
		}
	}()
	tid := uint32(<-tids)
	settle := func() {
		t.Helper()
		lane.Eventually(t, "a thread to wait", func() bool {
			where, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid))
			if err != nil {
				t.Skip("skipped for want of what the kernel says about threads: ", err)
			}
			return strings.HasPrefix(string(where), fmt.Sprintf("%d %#x ", unix.SYS_READ, work[0]))
		})
	}
	run := func(what func() error) {
		t.Helper()
		do = what
		if _, err := unix.Write(work[1], []byte{1}); err != nil {
			t.Fatal(err)
		}
		if err := <-worked; err != nil {
			t.Skipf("skipped for want of real-time priority: %v", err)
		}
		settle()
	}
	all := runtimes(make([]runTime, 2))
	settle()
	for range 3 {
		is := all.begin(linux{}, tid)
		if is == nil {
			t.Skip("skipped for want of CONFIG_SCHED_INFO")
		}
		if is.hasRun() {
			t.Error("a thread that waits has run")
		}
		all.begin(linux{}, tid)
		run(func() error { return nil })
		if !is.hasRun() {
			t.Error("a thread that has run has not")
		}
	}
	run(func() error { return unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 1}, 0) })
	if isOrdinary(linux{}, tid) {
		t.Error("a thread that has got real-time priority is one that is kept from its CPU")
	}
	run(func() error { return unix.SchedSetAttr(0, &unix.SchedAttr{}, 0) })
	is := all.begin(linux{}, tid)
	if is == nil || !isOrdinary(linux{}, tid) {
		t.Fatal("a thread that has ordinary priority again is not known")
	}
	unix.Close(work[1])
	<-worked
	for !is.hasRun() {
		runtime.Gosched()
	}
	if is := all.begin(linux{}, uint32(unix.Getpid())); is == nil {
		t.Error("another thread in the same place is not known")
	}
}
