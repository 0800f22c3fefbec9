package main

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// On a busy machine a program gets little CPU time, and a recording of it few samples: the least number to
// expect follows from the CPU time that it had.

// fewest is how many samples there are at least at hz samples a second of CPU time: half of what
// these make, and no more than want.
func fewest(hz int, cpu time.Duration, want uint64) uint64 {
	return min(want, uint64(max(0, cpu.Seconds())*float64(hz)/2))
}

// fewest is that of a recording of a command, which has ended.
func (r recording) fewest(hz int, want uint64) uint64 {
	return fewest(hz, r.cpu-time.Duration(r.stats.Cost.CPU*float64(time.Second)), want)
}

// cpuOf is the CPU time that a process has had so far.
func cpuOf(t testing.TB, pid int) time.Duration {
	t.Helper()
	var ts unix.Timespec
	// The clock of a process is made of its PID (CPUCLOCK_SCHED in linux/posix-timers.h).
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		t.Fatalf("CPU time of process %d: %v", pid, err)
	}
	return time.Duration(ts.Nano())
}
