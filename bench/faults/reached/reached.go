// Package reached notes which of some places of a program have been reached, for bench/faults, which inserts
// calls of Hit into a copy of the sources.
//
// The counters are mapped from a file, so that also those of a process count that gives up its rights or is
// killed.
package reached

import (
	"os"
	"syscall"
	"unsafe"
)

const (
	// Variable names the file for the counters of a process.
	Variable = "UNSPOOL_REACHED"
	// Shared is the file of a process without the variable, such as unspool's opener. bench/faults replaces the
	// name.
	Shared = "/tmp/unspool-reached"
	// Places is how many places there may be. Each has 4 bytes in the file.
	Places = 4096
)

var counters = new([Places]uint32)

func init() {
	for _, name := range []string{os.Getenv(Variable), Shared} {
		if mapped := open(name); mapped != nil {
			counters = mapped
			return
		}
	}
}

func open(name string) *[Places]uint32 {
	fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || st.Size < 4*Places {
		return nil
	}
	mapped, err := syscall.Mmap(fd, 0, 4*Places, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return (*[Places]uint32)(unsafe.Pointer(&mapped[0])) // page-aligned, and as long as the array
}

// Hit counts that a place was reached. Counts may get lost between threads, but not all of them.
func Hit(place int) { counters[place]++ }
