package main

import (
	"cmp"
	"math"
	"runtime"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/rest"
	"unspool/perfring"
)

// A direct reads stacks in this process, as the opener does for recordings. Of copies that are larger than cut bytes,
// no more is taken for copied; 0 for all.
type direct struct{ cut uint64 }

// ReadRing is for [session.RingReader].
func (d direct) ReadRing(ring *perfring.SampleRing) (stacks *rest.Stacks, tid int, err error) {
	fd, tid, err := rest.Start(ring, rest.SizeFor(ring.Pages, runtime.NumCPU()), cmp.Or(d.cut, math.MaxUint64))
	if err != nil {
		return nil, 0, err
	}
	defer unix.Close(fd)
	shared, err := rest.OpenShared(fd)
	if err != nil {
		return nil, 0, err
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) // while it waits, the scheduler does not know of it
	return rest.NewStacks(shared), tid, nil
}
