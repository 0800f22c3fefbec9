package counts

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProgressEvery is how often counts are shown while they grow.
const ProgressEvery = 500 * time.Millisecond

// CPUTime is the CPU time that this process has taken, user and system.
func CPUTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// MaxRSS is the most memory that this process has had, in bytes.
func MaxRSS() uint64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return uint64(u.Maxrss) << 10
}
