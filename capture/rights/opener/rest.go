package opener

import (
	"math"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/rest"
	"unspool/perfring"
)

// The opener also reads the stacks of samples, when these are taken: see package rest. The rings are granted,
// and what is read is in memory that both processes share.

// ReadRing begins to read the stacks of the samples in a ring, as far as the copies lack a part, when the thread
// tid gets a [rest.Signal] for each of them.
func (c *Client) ReadRing(ring *perfring.SampleRing) (stacks *rest.Stacks, tid int, err error) {
	a, err := c.askGranted(request{op: grantRing, pid: uint32(ring.CPU), start: uint64(ring.Pages),
		text: attrBytes(&ring.Attr)}, ring.FD)
	if err != nil {
		return nil, 0, err
	}
	if a.fd < 0 {
		return nil, 0, errMessage
	}
	defer unix.Close(a.fd)
	shared, err := rest.OpenShared(a.fd)
	if err != nil {
		return nil, 0, err
	}
	return rest.NewStacks(shared), int(a.value), nil
}

// mostRingPages bounds the size of a ring.
const mostRingPages = 1 << 20

// readRing begins to read the stacks of the samples in a ring, which fd is of. tid is the thread that does.
func (g *grants) readRing(r *request, fd int) (tid uint64, shared int, err error) {
	defer closeFD(fd)
	ring := perfring.SampleRing{CPU: int(int32(r.pid)), FD: fd, Pages: int(r.start)}
	switch {
	case g.sealed:
		return 0, -1, errSealed
	case len(r.text) != int(unsafe.Sizeof(ring.Attr)) || r.start > mostRingPages:
		return 0, -1, errMessage
	}
	copy(attrBytes(&ring.Attr), r.text)
	shared, reader, err := rest.Start(&ring, rest.SizeFor(ring.Pages, runtime.NumCPU()), math.MaxUint64)
	return uint64(reader), shared, err
}
