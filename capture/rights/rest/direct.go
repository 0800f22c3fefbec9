package rest

import (
	"math"
	"runtime"

	"golang.org/x/sys/unix"

	"unspool/perfring"
)

// DirectReader reads stacks in this process. Cut is as for [Start], 0 for all of a copy.
type DirectReader struct{ Cut uint64 }

// ReadRing begins to read the stacks of the samples in a ring, as far as the copies lack a part, when the thread
// tid gets a [Signal] for each of them.
func (d DirectReader) ReadRing(ring *perfring.SampleRing) (stacks *Stacks, tid int, err error) {
	cut := d.Cut
	if cut == 0 {
		cut = math.MaxUint64
	}
	size := SizeFor(ring.Pages)
	fd, tid, err := Start(ring, size, cut)
	if err != nil {
		return nil, 0, err
	}
	defer unix.Close(fd)
	shared, err := OpenShared(fd, size)
	if err != nil {
		return nil, 0, err
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) // while it waits, the scheduler does not know of it
	return NewStacks(shared), tid, nil
}
