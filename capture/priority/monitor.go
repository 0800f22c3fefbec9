package priority

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Go program has a thread that watches the others (sysmon in runtime/proc.go). As long as one of them
// works, it sleeps for 20 µs at a time, until it has seen nothing new fifty times. The kernel wakes a
// thread of ordinary priority when that suits it, up to its timer slack later, but one of real-time
// priority at once: there, watching takes up to a sixth of a recorder's CPU time.

// monitorSlack is in ns.
const monitorSlack = "10000000"

// SpareMonitor takes real-time priority from the monitor of this program, and gives it the slack that the
// runtime takes itself when nothing has happened for long. On a busy machine, the runtime can find out much
// later then that a system call blocks, and let others go on: this is for programs that have more processors
// (GOMAXPROCS) than calls that block. Threads that the monitor starts have its priority: see [Join].
//
// At the highest level the monitor has that, too, as real-time threads of others may leave no CPU to it.
func (r *Raised) SpareMonitor() {
	if r.level != lowest {
		return
	}
	if r.monitor = monitorOf(os.Getpid()); set(r.monitor, unix.SchedAttr{Nice: recorderNice}) == nil {
		setSlack(r.monitor, monitorSlack)
	}
}

// monitorOf is the monitor of a Go program, -1 if that is not known: the first thread that it has started.
func monitorOf(pid int) (tid int) {
	tasks, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return -1
	}
	defer tasks.Close()
	names, _ := tasks.Readdirnames(2) // in the order in which they were started
	if len(names) < 2 {
		return -1
	}
	if tid, err = strconv.Atoi(names[1]); err != nil {
		return -1
	}
	return tid
}

// setSlack sets the timer slack of a thread, which is what it was before with 0.
func setSlack(tid int, ns string) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), []byte(ns), 0)
}
