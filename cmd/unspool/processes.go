package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A missingProcess means that there is no process with a name, or of a user.
type missingProcess struct{ message string }

func (e *missingProcess) Error() string { return e.message }

// statusMissing is the exit status when no process is what -p or -u asks for, as pgrep's.
const statusMissing = 1

// ExitStatus is the one of unspool.
func (e *missingProcess) ExitStatus() int { return statusMissing }

// maxNameOfTask is how many bytes of a name the kernel keeps (TASK_COMM_LEN, include/linux/sched.h, and a
// zero).
const maxNameOfTask = 15

// processes gives the processes that the values of -p stand for: digits are a process ID, anything else is
// the name of all processes that have it, as pgrep -x finds them. This process is not among those. There must
// be one with each name.
func processes(values []string) (pids []int, err error) {
	var missing []string
	for _, v := range values {
		if numeric(v) {
			pid, err := strconv.Atoi(v)
			if err != nil || pid <= 0 || pid > math.MaxInt32 {
				return nil, fmt.Errorf("-p %s: a process ID must be 1 to %d", quoted(v), math.MaxInt32)
			}
			pids = append(pids, pid)
			continue
		}
		found, err := called(v)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			missing = append(missing, v)
		}
		pids = append(pids, found...)
	}
	if len(missing) > 0 {
		return nil, &missingProcess{"-p: no process is called " + strings.Join(missing, " or ")}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// numeric reports whether a value of -p is a process ID, and not a name.
func numeric(value string) bool { return strings.Trim(value, "-0123456789") == "" }

func isName(value string) bool { return !numeric(value) }

// called finds the processes with a name, of which the kernel keeps the beginning.
func called(name string) (pids []int, err error) {
	name = name[:min(len(name), maxNameOfTask)]
	err = eachProcess(func(pid int, comm string) {
		if comm == name && pid != os.Getpid() && pid != os.Getppid() && !isOver(pid) {
			pids = append(pids, pid)
		}
	})
	return pids, err
}

// isOver reports whether a process has ended, and only its parent has not asked how.
func isOver(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, state, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	return err != nil || strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

// eachProcess calls f for each process that can be seen, with its name.
func eachProcess(f func(pid int, comm string)) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if comm, err := os.ReadFile(filepath.Join("/proc", e.Name(), "comm")); err == nil {
			f(pid, strings.TrimSuffix(string(comm), "\n"))
		}
	}
	return nil
}
