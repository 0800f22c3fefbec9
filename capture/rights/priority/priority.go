// Package priority gives a recorder priority over the processes that it records, as far as the system
// permits, and says which one.
//
// A recorder does little, but has to do it before the rings are full: with 64 KiB of each stack, 16 MiB last
// for a quarter of a second, and on an overloaded machine a process of ordinary priority may wait as long for
// a CPU. A nice value (sched(7)) counts within a session's autogroup or a control group only, so it has no
// effect on the load of other groups. Real-time priority comes before all of these; the lowest level is
// enough unless the recorded program has real-time threads itself.
package priority

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	recorderNice  = -10
	recorderGroup = -20 // of the autogroup, if real-time priority is not permitted
	lowest        = 1   // real-time levels
	highest       = 99

	autogroup = "/proc/self/autogroup" // of all processes of the session
)

// Raised is the priority that processes were given.
type Raised struct {
	pids   []int
	level  uint32 // of real-time priority, 0 without it
	nice   bool
	group  int      // the autogroup's nice value before
	groups *os.File // the autogroup if it was changed, kept open as it may not be permitted to open it later
}

// Raise raises the priority of all threads of processes, of this one if none are named. Threads that do not
// have the default priority are left alone, as somebody has chosen theirs. New threads inherit it, and so
// would new processes.
func Raise(pids ...int) *Raised {
	if len(pids) == 0 {
		pids = []int{os.Getpid()}
	}
	r := &Raised{pids: pids}
	r.nice = r.setAll(unix.SchedAttr{Nice: recorderNice}, unix.SchedAttr{})
	switch {
	case r.setAll(realTime(lowest), unix.SchedAttr{Nice: recorderNice}, unix.SchedAttr{}): // by RLIMIT_RTPRIO alone, too
		r.level = lowest
	case r.nice:
		r.raiseGroup()
	}
	return r
}

// Highest raises real-time priority above that of all other threads, and reports whether it was lower before.
func (r *Raised) Highest() bool {
	if r.level == 0 || r.level == highest || !r.setAll(realTime(highest), realTime(lowest), r.without()) {
		return false
	}
	r.level = highest
	return true
}

// Restore undoes Raise and Highest.
func (r *Raised) Restore() {
	if r.level > 0 {
		r.setAll(r.without(), realTime(lowest), realTime(highest))
	}
	if r.nice {
		r.setAll(unix.SchedAttr{}, unix.SchedAttr{Nice: recorderNice}, realTime(lowest), realTime(highest))
	}
	if r.groups != nil {
		_ = writeGroup(r.groups, r.group)
		r.groups.Close()
	}
	*r = Raised{pids: r.pids}
}

// without is the priority without a real-time level.
func (r *Raised) without() (a unix.SchedAttr) {
	if r.nice {
		a.Nice = recorderNice
	}
	return a
}

const realTimeText = "real-time "

// SaysRealTime reports whether what [Raised.String] says is real-time priority.
func SaysRealTime(what string) bool { return strings.HasPrefix(what, realTimeText) }

// String returns what was raised: "real-time 1", "nice -10", "nice -10, autogroup -20", or "ordinary".
func (r *Raised) String() string {
	switch {
	case r != nil && r.level > 0:
		return fmt.Sprintf(realTimeText+"%d", r.level)
	case r == nil || !r.nice:
		return "ordinary"
	case r.groups != nil:
		return fmt.Sprintf("nice %d, autogroup %d", recorderNice, recorderGroup)
	}
	return fmt.Sprintf("nice %d", recorderNice)
}

// Try returns what Raise may do here, by doing it to a thread for a moment, and whether that is real-time
// priority.
func Try() (what string, isRealTime bool) {
	done := make(chan *Raised)
	go func() {
		runtime.LockOSThread()
		was, err := unix.SchedGetAttr(0, 0)
		r := &Raised{}
		r.nice = set(0, unix.SchedAttr{Nice: recorderNice}) == nil
		if set(0, realTime(lowest)) == nil {
			r.level = lowest
		}
		// Else the thread ends, unless it is the first one of the process, which never does.
		if err == nil && set(0, *was) == nil {
			runtime.UnlockOSThread()
		}
		done <- r
	}()
	r := <-done
	return r.String(), r.level > 0
}

func realTime(level uint32) unix.SchedAttr {
	return unix.SchedAttr{Policy: unix.SCHED_RR, Priority: level}
}

// starting is how long to wait for threads that are being started: they have the priority that their parent
// had before, and are listed only once the parent has got a CPU.
const starting = time.Millisecond

// setAll changes the threads that have one of several priorities to another, including threads that start
// meanwhile. It reports whether it changed any.
func (r *Raised) setAll(to unix.SchedAttr, from ...unix.SchedAttr) (done bool) {
	const most = 20 // rounds: few suffice
	waited := false // since there was something to change
	for range most {
		again := false
		for _, pid := range r.pids {
			again = setListed(pid, to, from) || again
		}
		switch {
		case again:
			done, waited = true, false
		case !done || waited:
			return done
		default:
			time.Sleep(starting)
			waited = true
		}
	}
	return done
}

// setListed is setAll for the present threads of one process.
func setListed(pid int, to unix.SchedAttr, from []unix.SchedAttr) (done bool) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		is, err := unix.SchedGetAttr(tid, 0)
		if err != nil {
			continue
		}
		has := func(a unix.SchedAttr) bool {
			return is.Policy == a.Policy && is.Priority == a.Priority &&
				(a.Policy != unix.SCHED_NORMAL || is.Nice == a.Nice)
		}
		if slices.ContainsFunc(from, has) {
			done = set(tid, to) == nil || done
		}
	}
	return done
}

// set changes the scheduling of a thread, 0 for this one.
func set(tid int, to unix.SchedAttr) error { return unix.SchedSetAttr(tid, &to, 0) }

// raiseGroup raises the priority of this session's autogroup.
func (r *Raised) raiseGroup() {
	file, err := os.OpenFile(autogroup, os.O_RDWR, 0)
	if err != nil {
		return
	}
	if group, ok := readGroup(file); ok && group == 0 && writeGroup(file, recorderGroup) == nil {
		r.group, r.groups = group, file
		return
	}
	file.Close()
}

// readGroup gives the nice value of this session's autogroup, "/autogroup-25 nice 0".
func readGroup(file *os.File) (nice int, ok bool) {
	var b [256]byte
	n, _ := file.ReadAt(b[:], 0)
	_, value, found := strings.Cut(strings.TrimSpace(string(b[:n])), " nice ")
	nice, err := strconv.Atoi(value)
	return nice, found && err == nil
}

func writeGroup(file *os.File, nice int) error {
	_, err := file.WriteAt([]byte(strconv.Itoa(nice)), 0)
	return err
}
