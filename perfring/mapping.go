package perfring

import (
	"fmt"
	"math/bits"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is the memory of one ring: a page with the positions and the data behind it.
type mapping struct {
	memory   []byte
	fd       int // the descriptor that was mapped; others on the same CPU write to the ring as well
	cpu      int
	sideBand bool // for records other than samples
	mixed    bool // for samples and all other records
}

// ofSamples reports whether the ring has samples alone.
func (m *mapping) ofSamples() bool { return !m.sideBand && !m.mixed }

// mapRing maps the ring of fd.
func mapRing(fd, cpu, pages int) (mapping, error) {
	memory, err := unix.Mmap(fd, 0, (1+pages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return mapping{memory: memory, fd: fd, cpu: cpu}, err
}

// ring returns the positions. The words of the page at the front are 8-byte aligned, and are
// accessed only atomically; they and the data stay where they are until Munmap.
func (m *mapping) ring() (ring, error) {
	page := (*unix.PerfEventMmapPage)(unsafe.Pointer(&m.memory[0]))
	offset, size := page.Data_offset, page.Data_size
	if offset == 0 { // before Linux 4.1
		offset = uint64(os.Getpagesize())
		size = uint64(len(m.memory)) - offset
	}
	if offset > uint64(len(m.memory)) || size > uint64(len(m.memory))-offset || bits.OnesCount64(size) != 1 {
		return ring{}, fmt.Errorf("%w: %d bytes at %d of a mapping of %d", ErrCorrupt, size, offset, len(m.memory))
	}
	return newRing(m.memory[offset:offset+size], &page.Data_head, &page.Data_tail), nil
}

// mapRings maps two rings for each CPU, one for samples and one for the side-band: the ring of the first
// descriptor of each kind, to which the others are directed. If no more memory may be locked, it makes all
// rings smaller and returns errAgain.
func (op *opener) mapRings() error {
	type place struct {
		cpu      int
		sideBand bool
	}
	owner := make(map[place]int)
	for _, d := range op.fds {
		at, size := place{d.cpu, d.sideBand}, op.sizes.Samples
		if d.sideBand {
			size = op.sizes.Others
		}
		if to, ok := owner[at]; ok {
			if err := unix.IoctlSetInt(d.fd, unix.PERF_EVENT_IOC_SET_OUTPUT, to); err != nil {
				errno, _ := err.(syscall.Errno)
				return &OpenError{What: "PERF_EVENT_IOC_SET_OUTPUT", Event: op.name(d.event), PID: d.pid, CPU: d.cpu,
					Errno: errno}
			}
			continue
		}
		owner[at] = d.fd
		m, err := mapRing(d.fd, d.cpu, size/os.Getpagesize())
		if err == nil {
			m.sideBand = d.sideBand
			op.rings = append(op.rings, m)
			continue
		}
		errno, _ := err.(syscall.Errno)
		if (errno == unix.EPERM || errno == unix.ENOMEM) && op.shrink() {
			return errAgain
		}
		return &OpenError{What: "mmap", PID: -1, CPU: d.cpu, Errno: errno}
	}
	return nil
}

// raiseFileLimit raises RLIMIT_NOFILE to fs.nr_open if that is allowed, else to the hard limit. It reports
// whether the limit is higher now. Commands that this process starts later have it, too. Filters for confined
// processes allow prlimit(2), and not getrlimit(2).
func raiseFileLimit() bool {
	set := func(limit, old *unix.Rlimit) bool { return unix.Prlimit(0, unix.RLIMIT_NOFILE, limit, old) == nil }
	var old unix.Rlimit
	if !set(nil, &old) {
		return false
	}
	most, err := readUint("/proc/sys/fs/nr_open", 63)
	if err == nil && most > old.Max && set(&unix.Rlimit{Cur: most, Max: most}, nil) {
		return true
	}
	return old.Cur < old.Max && set(&unix.Rlimit{Cur: old.Max, Max: old.Max}, nil)
}
