package perfring

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Target is what to record: exactly one of AllCPUs, PIDs and Command is set. The other fields narrow that.
type Target struct {
	AllCPUs bool  // everything on every CPU
	PIDs    []int // running processes: their threads, and the threads and processes that these start
	Command int   // a child that waits before its exec, at which the kernel enables the events

	MayEnd bool     // processes of PIDs that have ended are no error, if there is another one
	CPUs   []int    // sample only what runs on these CPUs; nil: on all
	TIDs   []int    // of PIDs, sample only these threads, and nothing that they start; nil: all
	Cgroup *os.File // of AllCPUs, sample only what is in this cgroup's directory; it is open until Close
}

func (t *Target) check() error {
	kinds := 0
	for _, set := range []bool{t.AllCPUs, len(t.PIDs) > 0, t.Command > 0} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return errors.New("the target must be either all CPUs, processes or a command")
	case len(t.TIDs) > 0 && len(t.PIDs) == 0:
		return errors.New("threads need the processes that they are of")
	case t.Cgroup != nil && !t.AllCPUs:
		return errors.New("a cgroup is recorded on all CPUs")
	}
	return nil
}

// checkCPUs returns an error if one of the CPUs is not online.
func (t *Target) checkCPUs(online []int) error {
	for _, cpu := range t.CPUs {
		if !slices.Contains(online, cpu) {
			return fmt.Errorf("CPU %d is not online", cpu)
		}
	}
	return nil
}

// samples reports whether a task, -1 for all, is sampled on a CPU.
func (t *Target) samples(pid, cpu int) bool {
	return (t.TIDs == nil || slices.Contains(t.TIDs, pid)) && t.samplesOn(cpu)
}

// samplesOn reports whether anything is sampled on a CPU.
func (t *Target) samplesOn(cpu int) bool { return t.CPUs == nil || slices.Contains(t.CPUs, cpu) }

// listRounds is how often a list of threads is read again while it changes.
const listRounds = 10

// openProcesses opens the events on every thread of the processes. A new thread inherits the events of
// the thread that starts it; it would be missed if that thread has no events yet. So the threads are
// listed again at the end. If there are new ones, everything is opened again, as it is not known whether
// they have inherited events.
func (op *opener) openProcesses(cpus []int) error {
	for range listRounds {
		listed, err := op.threads()
		if err != nil {
			return err
		}
		alive := false
		for _, tid := range listed {
			err := op.openTask(tid, cpus)
			if errors.Is(err, unix.ESRCH) {
				continue // it has exited meanwhile
			}
			if err != nil {
				return err
			}
			alive = alive || op.target.TIDs == nil || slices.Contains(op.target.TIDs, tid)
		}
		if !alive {
			return &OpenError{What: "process", PID: op.target.PIDs[0], CPU: -1, Errno: unix.ESRCH}
		}
		again, err := op.threads()
		if err != nil || subset(again, listed) {
			return nil // a process that exits now is recorded up to its end
		}
		op.close()
	}
	// Nearly all of the threads that were started meanwhile have inherited the events.
	op.note("threads were started faster than they could be listed: some may be missing")
	listed, err := op.threads()
	if err != nil {
		return err
	}
	for _, tid := range listed {
		if err := op.openTask(tid, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// threads lists the threads of all target processes, sorted.
func (op *opener) threads() ([]int, error) {
	var all []int
	for _, pid := range op.target.PIDs {
		tids, err := op.sys.threads(pid)
		if op.target.MayEnd && errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, tids...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// threads lists the threads of a process, until two lists in a row are the same: reading a
// directory that changes can miss entries.
func (sys system) threads(pid int) ([]int, error) {
	var last []int
	for range listRounds {
		tids, err := sys.listTask(pid)
		if err != nil {
			return nil, err
		}
		if slices.Equal(tids, last) {
			break
		}
		last = tids
	}
	return last, nil
}

func (sys system) listTask(pid int) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(sys.proc, strconv.Itoa(pid), "task"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && len(entries) == 0 {
		return nil, &OpenError{What: "process", PID: pid, CPU: -1, Errno: unix.ESRCH}
	}
	if err != nil {
		return nil, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	slices.Sort(tids)
	return tids, nil
}

// subset reports whether all of a, sorted, is in b, sorted.
func subset(a, b []int) bool {
	for _, v := range a {
		if _, ok := slices.BinarySearch(b, v); !ok {
			return false
		}
	}
	return true
}
