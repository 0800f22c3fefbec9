package rest

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// delays tell whether this thread, which has no precedence, got the CPU as soon as it was woken: by
// /proc/thread-self/schedstat, how long it has waited for a CPU. The kernel wakes it in the interrupt that takes the
// sample. If it waits no longer than that takes, the sampled thread, which has the same CPU, has not got back to its
// code.
type delays struct {
	fd     int
	waited uint64 // ns in all
}

// atOnce is how long waiting may take, in ns: the rest of the interrupt, and the switch.
const atOnce = 20_000

func newDelays() (*delays, error) {
	fd, err := unix.Open("/proc/thread-self/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &delays{fd: fd}, nil
}

// beganAtOnce reports whether the thread has not waited for a CPU since it was called last. Without one, for a thread
// that goes before all others, that is so.
func (d *delays) beganAtOnce() bool {
	if d == nil {
		return true
	}
	var text [64]byte
	n, err := sys.Pread(d.fd, text[:], 0)
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(text[:n], []byte(" "))
	field, _, _ := bytes.Cut(rest, []byte(" "))
	waited, err := strconv.ParseUint(string(field), 10, 64)
	before := d.waited
	d.waited = waited
	return err == nil && waited-before <= atOnce
}
