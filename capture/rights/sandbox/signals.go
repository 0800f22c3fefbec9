package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// roomNeeded is how many signals have to find room in the queue of this user: one for each thread.
const roomNeeded = 256

// errNoSignals is why something cannot be done on every thread.
var errNoSignals = errors.New("no room for signals of this user: raise 'ulimit -i'")

// roomForSignals makes sure that every thread of this process can be sent a signal. Go's runtime makes a system call
// on every thread by a real-time signal to each, and tries until that succeeds: where RLIMIT_SIGPENDING leaves no
// room, for ever.
func roomForSignals() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_SIGPENDING, &limit); err != nil {
		return nil // a kernel without that limit
	}
	wanted := queuedSignals() + roomNeeded
	if limit.Cur >= wanted {
		return nil
	}
	limit.Cur, limit.Max = wanted, max(limit.Max, wanted)
	if unix.Setrlimit(unix.RLIMIT_SIGPENDING, &limit) != nil {
		return errNoSignals
	}
	return nil
}

// queuedSignals is how many signals are queued for processes of this user, 0 if that is not known.
func queuedSignals() (n uint64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nSigQ:")
	_, _ = fmt.Sscanf(strings.TrimSpace(rest), "%d/", &n)
	return n
}
