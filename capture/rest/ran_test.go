package rest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestThreadsThatRun asks of a thread whether it has run, while it waits and after it has run, and again once
// it has real-time priority, and once it has ended.
func TestThreadsThatRun(t *testing.T) {
	tids, work, worked := make(chan int), make(chan func() error), make(chan error)
	go func() {
		runtime.LockOSThread() // and ends
		tids <- unix.Gettid()
		for do := range work {
			worked <- do()
		}
		close(worked)
	}()
	tid := uint32(<-tids)
	run := func(do func() error) {
		t.Helper()
		work <- do
		if err := <-worked; err != nil {
			t.Skipf("skipped for want of real-time priority: %v", err)
		}
		settle(t, tid)
	}
	all := runtimes(make([]runTime, 2))
	settle(t, tid)
	for range 3 {
		is := all.begin(tid)
		if is == nil {
			t.Skip("skipped for want of CONFIG_SCHED_INFO")
		}
		if is.hasRun() {
			t.Error("a thread that waits has run")
		}
		all.begin(tid)
		run(func() error { return nil })
		if !is.hasRun() {
			t.Error("a thread that has run has not")
		}
	}
	run(func() error { return unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 1}, 0) })
	if all.begin(tid) != nil {
		t.Error("a thread that has got real-time priority is one that is kept from its CPU")
	}
	run(func() error { return unix.SchedSetAttr(0, &unix.SchedAttr{}, 0) })
	is := all.begin(tid)
	if is == nil {
		t.Fatal("a thread that has ordinary priority again is not known")
	}
	close(work)
	<-worked
	for !is.hasRun() {
		runtime.Gosched()
	}
	if is := all.begin(uint32(unix.Getpid())); is == nil {
		t.Error("another thread in the same place is not known")
	}
}

// settle waits until a thread waits.
func settle(t *testing.T, tid uint32) {
	t.Helper()
	of := runtimes(make([]runTime, 1))
	for range 1000 {
		is := of.begin(tid)
		if is == nil {
			break // it has real-time priority
		}
		if unix.Nanosleep(&unix.Timespec{Nsec: 2_000_000}, nil); !is.hasRun() {
			break
		}
	}
	if of[0].fd != 0 {
		unix.Close(of[0].fd)
	}
}
