package process

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes what a shell has opened, for a process that another one has started to work for it: others may
// wait for the end of a pipe, and a thread of the process can hang beyond theirs. It keeps the descriptors from first
// to last, and the standard ones. What the runtime has opened is closed on exec.
func CloseInherited(first, last int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		switch {
		case fd >= first && fd <= last:
			unix.CloseOnExec(fd)
		case err == nil && flags&unix.FD_CLOEXEC == 0 && fd > 2:
			unix.Close(fd)
		}
	}
}
