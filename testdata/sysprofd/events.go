package sysprofd

import (
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attr is how Sysprof opens its events where there are no hardware counters: the CPU clock, every
// millisecond.
func attr(stackSize int) unix.PerfEventAttr {
	return unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: 1e6,
		Wakeup: 149,
		Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_IDENTIFIER |
			unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_STACK_USER | unix.PERF_SAMPLE_REGS_USER |
			unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitDisabled | unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitTask |
			unix.PerfBitExcludeIdle | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID,
		Clockid:           unix.CLOCK_MONOTONIC,
		Sample_stack_user: uint32(stackSize),
		Sample_regs_user:  0xff01ff, // ax bx cx dx si di bp sp ip and r8 to r15
	}
}

// event is one open event.
type event struct{ fd, cpu int }

// open opens an event on each CPU for all tasks, or on each task for all CPUs.
func open(o *Options) (events []event, err error) {
	defer func() {
		if err != nil {
			closeEvents(events)
		}
	}()
	ofTasks, ofCPUs := attr(o.StackSize), attr(o.StackSize)
	if o.Faults {
		ofTasks.Config, ofTasks.Sample = unix.PERF_COUNT_SW_PAGE_FAULTS, 1
		ofTasks.Wakeup = 1 // there may be none after it
		ofTasks.Bits |= unix.PerfBitExcludeKernel
		ofCPUs.Config = unix.PERF_COUNT_SW_DUMMY
	}
	add := func(a *unix.PerfEventAttr, pid, cpu int) error {
		fd, err := unix.PerfEventOpen(a, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("perf_event_open(pid %d, CPU %d): %w", pid, cpu, err)
		}
		events = append(events, event{fd, cpu})
		return nil
	}
	for _, task := range o.Tasks {
		on := []int{-1}
		if o.Faults { // a sample tells of its CPU by its event only
			on = nil
			for cpu := range cpus() {
				on = append(on, cpu)
			}
		}
		for _, cpu := range on {
			if err := add(&ofTasks, task, cpu); err != nil {
				return events, err
			}
		}
	}
	if o.TasksOnly {
		return events, nil
	}
	for cpu := range cpus() {
		if err := add(&ofCPUs, -1, cpu); err != nil {
			return events, err
		}
	}
	return events, nil
}

// cpus is how many CPUs this process may run on.
func cpus() (n int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return 1
	}
	for _, word := range set {
		n += bits.OnesCount64(uint64(word))
	}
	return n
}

func closeEvents(events []event) {
	for _, e := range events {
		unix.Close(e.fd)
	}
}
