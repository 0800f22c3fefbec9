package counts

import (
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// An Exclusion says why a sample is left out of a recording.
type Exclusion uint8

const (
	// Idle: the sample is of the idle task. The events ask the kernel to leave these out, which not every PMU
	// can. Kernel threads look the same if this process is in a PID namespace of its own.
	Idle Exclusion = iota
	// Guest: the sample is of a virtual machine that runs here. The events exclude these, too.
	Guest
	// Outside: the sample is of a process outside of this process's PID namespace, such as one of the host,
	// seen from inside a container. All of them have the PID 0, so that their mappings are not known.
	Outside

	numExclusions = iota
	Included      = Exclusion(numExclusions)
)

var exclusionNames = [numExclusions]string{"idle", "guest", "outside"}

// ExclusionOf returns why a sample is to be left out: Included if it is of a process with a PID.
func ExclusionOf(sm *perfring.Sample) Exclusion {
	switch sm.CPUMode() {
	case unix.PERF_RECORD_MISC_GUEST_KERNEL, unix.PERF_RECORD_MISC_GUEST_USER:
		return Guest
	}
	switch {
	case sm.PID != 0 || sm.TID != 0:
		return Included
	case sm.CPUMode() == unix.PERF_RECORD_MISC_USER, sm.RegsABI != unix.PERF_SAMPLE_REGS_ABI_NONE:
		return Outside
	}
	return Idle
}

// Outside is the number of samples that were left out as their processes are outside of this process's PID
// namespace.
func (s *Stats) Outside() uint64 { return s.Excluded[Outside] }
