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
			alive = true
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

// subset says whether all of a, sorted, is in b, sorted.
func subset(a, b []int) bool {
	for _, v := range a {
		if _, ok := slices.BinarySearch(b, v); !ok {
			return false
		}
	}
	return true
}
