package capture

import (
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// An exclusion says why a sample is left out of a recording.
type exclusion uint8

const (
	// idle: the sample is of the idle task. The events ask the kernel to leave these out, which not every PMU
	// can. Kernel threads look the same if this process is in a PID namespace of its own.
	idle exclusion = iota
	// guest: the sample is of a virtual machine that runs here. The events exclude these, too.
	guest
	// outside: the sample is of a process outside of this process's PID namespace, such as one of the host,
	// seen from inside a container. All of them have the PID 0, so that their mappings are not known.
	outside

	numExclusions = iota
	included      = exclusion(numExclusions)
)

var exclusionNames = [numExclusions]string{"idle", "guest", "outside"}

// exclusionOf returns why a sample is to be left out: included if it is of a process with a PID.
func exclusionOf(sm *perfring.Sample) exclusion {
	switch sm.CPUMode() {
	case unix.PERF_RECORD_MISC_GUEST_KERNEL, unix.PERF_RECORD_MISC_GUEST_USER:
		return guest
	}
	switch {
	case sm.PID != 0 || sm.TID != 0:
		return included
	case sm.CPUMode() == unix.PERF_RECORD_MISC_USER, sm.RegsABI != unix.PERF_SAMPLE_REGS_ABI_NONE:
		return outside
	}
	return idle
}

// Outside is the number of samples that were left out as their processes are outside of this process's PID
// namespace.
func (s *Stats) Outside() uint64 { return s.Excluded[outside] }
