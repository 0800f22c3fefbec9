package capture

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// recorderNice is the nice value of a recorder. What it does is little, but it has to be done before the
// rings are full: with 32 KiB of each stack, 8 MiB last for a quarter of a second, while a
// machine with more to do than CPUs lets a process of ordinary priority wait for as long.
const recorderNice = -10

// hurry gives this process precedence over those that it records, where it may. A
// command that was started before keeps its priority.
func hurry() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if nice, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && nice == 20 {
			// the system call returns 20 minus the nice value, which is 0 here: the default
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, recorderNice) // new threads inherit it
		}
	}
}
