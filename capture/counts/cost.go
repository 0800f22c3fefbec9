package counts

import (
	"os"
	"strconv"
	"strings"
	"sync"
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

// Prepare opens what the costs of this process are read from. Once it is confined, it could not.
func Prepare() { _, _ = status() }

// status is open as long as the process lives.
var status = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/status") })

// MaxRSS is the most memory that this process has had, in bytes; 0 if that is not known. It is not that of
// getrusage(2): there the program that this process was before execve(2) counts, too.
func MaxRSS() uint64 {
	file, err := status()
	if err != nil {
		return 0
	}
	var text [4096]byte
	n, _ := file.ReadAt(text[:], 0)
	_, rest, _ := strings.Cut(string(text[:n]), "\nVmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	kb, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
	return kb << 10
}
