package capture

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the CPU time that this process has taken, user and system.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// maxRSS is the most memory that this process has had, in bytes.
func maxRSS() uint64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return uint64(u.Maxrss) << 10
}
