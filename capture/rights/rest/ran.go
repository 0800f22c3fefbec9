package rest

import (
	"bytes"
	"runtime"
	"strconv"
	"unsafe"

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
	fd   int // 0 for none
	text [64]byte
	n    int
}

// begin returns how long a thread has run, nil if that cannot be known.
func (r runtimes) begin(tid uint32) *runTime {
	t := &r[tid%uint32(len(r))]
	if t.fd != 0 && t.tid == tid && t.read() {
		return t
	}
	if t.fd != 0 { // of another thread, or of one that has ended
		unix.Close(t.fd)
		t.fd = 0
	}
	path := "/proc/" + strconv.FormatUint(uint64(tid), 10) + "/schedstat"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if t.tid, t.fd = tid, fd; !t.read() {
		return nil
	}
	return t
}

// read reads the file, and reports whether it tells anything: without CONFIG_SCHED_INFO it does not.
func (t *runTime) read() bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(t.fd), uintptr(unsafe.Pointer(&t.text[0])),
		uintptr(len(t.text)), 0, 0, 0)
	t.n = int(n)
	return errno == 0 && !bytes.HasPrefix(t.text[:n], []byte("0 "))
}

// hasRun reports whether the thread has run since begin.
func (t *runTime) hasRun() bool {
	before, n := t.text, t.n
	return !t.read() || t.n != n || t.text != before
}

// isOrdinary reports whether a thread has no real-time priority. One that has is not kept from running by a signal to
// another thread: see deadline.
func isOrdinary(tid uint32) bool {
	is, err := unix.SchedGetAttr(int(tid), 0)
	if err != nil {
		return false
	}
	switch is.Policy {
	case unix.SCHED_NORMAL, unix.SCHED_BATCH, unix.SCHED_IDLE:
		return true
	}
	return false
}
