package process

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Beside returns the descriptors of a process that is to be started (see [syscall.ProcAttr]): standard, for 0 to 2,
// others, and all that it inherits anyway, under the numbers that these have: what a user has opened may be meant for a
// command that the process starts. The others get the lowest numbers that are free, in their order.
func Beside(standard [3]int, others ...int) (files []uintptr, numbers []int) {
	for _, fd := range standard {
		files = append(files, uintptr(fd))
	}
	for len(numbers) < len(others) {
		fd := len(files)
		if !isInherited(fd) {
			numbers = append(numbers, fd)
			fd = others[len(numbers)-1]
		}
		files = append(files, uintptr(fd))
	}
	return files, numbers
}

// CloseInherited closes what a shell has opened, for a process that another one has started to work for it: others may
// wait for the end of a pipe, and a thread of the process can hang beyond theirs. It keeps the standard ones, and what
// the process was started with, which it makes be closed on exec. What the runtime has opened is.
func CloseInherited(keep ...int) {
	for _, fd := range keep {
		unix.CloseOnExec(fd)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err == nil && fd > 2 && !slices.Contains(keep, fd) && isInherited(fd) {
			unix.Close(fd)
		}
	}
}

// isInherited reports whether a program that this process runs inherits a descriptor.
func isInherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}
