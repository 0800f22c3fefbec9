package perfring

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock is CLOCK_MONOTONIC, by which samples are timed, as the distance from Go's clock, which is the same
// with another beginning.
var clock = startClock()

type monotonic struct {
	base  uint64
	began time.Time
}

// startClock reads both clocks one after the other, until that took so little time that the thread can't have
// waited for a CPU between them.
func startClock() (c monotonic) {
	const tries, near = 100, 5 * time.Microsecond
	for range tries {
		c = monotonic{readClock(), time.Now()}
		if passed := readClock() - c.base; passed < uint64(near) {
			break
		}
	}
	return c
}

// Now is the time of CLOCK_MONOTONIC in nanoseconds, by which the samples of a [Source] are timed. It is for
// loops: nothing is allocated, no system call is made, and Go's monitor thread is not woken, as system calls
// wake it.
func Now() uint64 { return clock.base + uint64(time.Since(clock.began)) }

func readClock() uint64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return uint64(now.Nano())
}
