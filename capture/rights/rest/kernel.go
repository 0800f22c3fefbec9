package rest

import (
	"strconv"

	"golang.org/x/sys/unix"

	"unspool/perfring"
	"unspool/vmas/process"
	"unspool/vmas/sys"
)

// A Kernel is what a [Reader] asks about the threads that are sampled: the one that runs here, or that of a machine
// that is simulated.
type Kernel interface {
	// Now is the time of the clock of samples.
	Now() uint64
	OpenMemory(pid uint32) (ProcessMemory, error)
	OpenSchedstat(tid uint32) (Schedstat, error)
	// Policy is by what a thread is scheduled (sched(7)).
	Policy(tid uint32) (policy uint32, err error)
}

// A ProcessMemory is that of one process: see [process.MemoryReader].
type ProcessMemory interface {
	Read(buf []byte, addr uint64) (read int)
	MappingEnd(addr uint64) (end uint64)
	IsOver() bool
	Close()
}

// A Schedstat is /proc/TID/schedstat of one thread, open.
type Schedstat interface {
	// Read reads all of it, and reports whether that was possible.
	Read(text []byte) (n int, ok bool)
	Close()
}

// linux is the kernel that runs here.
type linux struct{}

// Now is for [Kernel].
func (linux) Now() uint64 { return perfring.Now() }

// OpenMemory is for [Kernel].
func (linux) OpenMemory(pid uint32) (ProcessMemory, error) {
	m, err := process.Direct("/proc").OpenMemory(pid)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// OpenSchedstat is for [Kernel].
func (linux) OpenSchedstat(tid uint32) (Schedstat, error) {
	path := "/proc/" + strconv.FormatUint(uint64(tid), 10) + "/schedstat"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return schedstat(fd), nil
}

// Policy is for [Kernel].
func (linux) Policy(tid uint32) (policy uint32, err error) {
	is, err := unix.SchedGetAttr(int(tid), 0)
	if err != nil {
		return 0, err
	}
	return is.Policy, nil
}

// A schedstat is the descriptor of such a file.
type schedstat int

// Read is for [Schedstat].
func (fd schedstat) Read(text []byte) (n int, ok bool) {
	n, err := sys.Pread(int(fd), text, 0)
	return n, err == nil
}

// Close is for [Schedstat].
func (fd schedstat) Close() { unix.Close(int(fd)) }
