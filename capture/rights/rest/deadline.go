package rest

import (
	"bytes"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// A deadline lets a reader go before threads of real-time priority, whatever theirs is: by SCHED_DEADLINE (sched(7)).
// The kernel wants such a thread to be free to run on all CPUs. Mostly it stays on its own one even so, as it is the
// only one of its kind there; where the kernel has moved it, try takes it back.
type deadline struct {
	cpu    int
	isOn   bool
	failed bool
	text   [1024]byte
}

const (
	// Of each deadlinePeriod a reader may run for deadlineTime, and longer where no other thread of its kind wants the
	// CPU. The period is short, as Go's scheduler yields now and then: such a thread then waits for its next period.
	deadlineTime   = deadlinePeriod / part
	deadlinePeriod = 2 * time.Millisecond
	deadlineFlags  = 1 | 2 // SCHED_FLAG_RESET_ON_FORK, SCHED_FLAG_RECLAIM (linux/sched.h)
	schedDeadline  = 6
	highest        = 99 // of real-time priorities
)

// readers are those of this process that have real-time priority, and whether they are to go first.
var readers struct {
	sync.Mutex
	tids  []int
	first atomic.Bool
}

// GoFirst makes all readers of this process go before threads of real-time priority, from now on. It is for whoever
// finds that such threads are recorded: the readers themselves may never get a CPU.
func GoFirst() {
	readers.first.Store(true)
	readers.Lock()
	defer readers.Unlock()
	for _, tid := range readers.tids { // so that they get a turn, in which they do the rest: see try
		_ = unix.SchedSetAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: highest}, 0)
	}
}

// add adds the calling thread to the readers. Before it ends it has to remove itself, as the kernel uses its ID again.
func add() {
	readers.Lock()
	defer readers.Unlock()
	readers.tids = append(readers.tids, unix.Gettid())
}

// remove removes the calling thread from the readers, if it is one.
func remove() {
	tid := unix.Gettid()
	readers.Lock()
	defer readers.Unlock()
	readers.tids = slices.DeleteFunc(readers.tids, func(t int) bool { return t == tid })
}

// try makes the calling thread, which has a CPU now, go first on its own one if readers are to. Where that fails it
// stays as it is.
func (d *deadline) try() {
	if !readers.first.Load() || d.failed || d.isOn && d.isHome() {
		return
	}
	var own, all unix.CPUSet
	own.Set(d.cpu)
	for i := range all {
		all[i] = ^all[i]
	}
	if d.isOn { // the kernel has moved it
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: highest}, 0)
		_ = unix.SchedSetaffinity(0, &own)
	}
	d.isOn = unix.SchedSetaffinity(0, &all) == nil &&
		unix.SchedSetAttr(0, &unix.SchedAttr{Policy: schedDeadline, Flags: deadlineFlags, Runtime: uint64(deadlineTime),
			Deadline: uint64(deadlinePeriod), Period: uint64(deadlinePeriod)}, 0) == nil
	if d.failed = !d.isOn; d.failed {
		_ = unix.SchedSetaffinity(0, &own)
	}
}

// isHome reports whether the calling thread, the reader, is on its own CPU.
func (d *deadline) isHome() bool {
	cpu, err := sys.Getcpu()
	return err == nil && cpu == d.cpu
}

// keeps reports whether a thread of real-time priority waits for the CPU that the reader has. If there is another one
// for it, the kernel moves it there at once.
func (d *deadline) keeps(tid uint32) bool {
	if !d.isOn || !d.isHome() {
		return false
	}
	fd, err := unix.Open("/proc/"+strconv.FormatUint(uint64(tid), 10)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, d.text[:])
	if err != nil {
		return false
	}
	cpu, ok := lastCPU(d.text[:n])
	return ok && cpu == d.cpu
}

// lastCPU returns the CPU of a thread by its stat line (proc_pid_stat(5), field 39).
func lastCPU(stat []byte) (cpu int, ok bool) {
	rest := stat[bytes.LastIndexByte(stat, ')')+1:] // behind field 2, the name, which may hold spaces
	for range 39 - 2 {
		_, after, found := bytes.Cut(rest, []byte(" "))
		if !found {
			return 0, false
		}
		rest = after
	}
	text, _, _ := bytes.Cut(rest, []byte(" "))
	cpu, err := strconv.Atoi(string(text))
	return cpu, err == nil
}
