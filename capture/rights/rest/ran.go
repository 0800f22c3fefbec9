package rest

import (
	"bytes"
	"runtime"

	"golang.org/x/sys/unix"
)

// runtimes tell whether threads have run, by /proc/TID/schedstat: how long they have, and how often. Of some
// threads it has that file open.
type runtimes []runTime

// The files that are open for all CPUs together, and for one.
const (
	mostOpen  = 1024
	leastOpen = 8
	enough    = 64
)

func newRuntimes() runtimes {
	return make(runtimes, min(enough, max(leastOpen, mostOpen/runtime.NumCPU())))
}

type runTime struct {
	tid  uint32
	file Schedstat // nil for none
	text [64]byte
	n    int
}

// begin returns how long a thread has run, nil if that cannot be known.
func (r runtimes) begin(kernel Kernel, tid uint32) *runTime {
	t := &r[tid%uint32(len(r))]
	if t.file != nil && t.tid == tid && t.read() {
		return t
	}
	if t.file != nil { // of another thread, or of one that has ended
		t.file.Close()
		t.file = nil
	}
	file, err := kernel.OpenSchedstat(tid)
	if err != nil {
		return nil
	}
	if t.tid, t.file = tid, file; !t.read() {
		return nil
	}
	return t
}

// read reads the file, and reports whether it tells anything: without CONFIG_SCHED_INFO it does not.
func (t *runTime) read() bool {
	n, ok := t.file.Read(t.text[:])
	t.n = n
	return ok && !bytes.HasPrefix(t.text[:n], []byte("0 "))
}

// hasRun reports whether the thread has run since begin.
func (t *runTime) hasRun() bool {
	before, n := t.text, t.n
	return !t.read() || t.n != n || t.text != before
}

// isOrdinary reports whether a thread has no real-time priority. One that has is not kept from running by a signal to
// another thread: see deadline.
func isOrdinary(kernel Kernel, tid uint32) bool {
	policy, err := kernel.Policy(tid)
	if err != nil {
		return false
	}
	switch policy {
	case unix.SCHED_NORMAL, unix.SCHED_BATCH, unix.SCHED_IDLE:
		return true
	}
	return false
}
