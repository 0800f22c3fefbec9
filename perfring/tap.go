package perfring

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// A Tap sees the samples in a ring when they are written, while somebody else drains it. It changes nothing
// in the ring. It is for one goroutine.
type Tap struct {
	format  SampleFormat
	ring    ring
	memory  []byte
	scratch []byte // for a record that wraps
}

// NewTap maps the ring of an event that was opened with attr once more. The ring has been mapped with so many
// pages. The descriptor is not needed any more afterwards.
func NewTap(fd int, attr *unix.PerfEventAttr, pages int) (*Tap, error) {
	memory, err := unix.Mmap(fd, 0, (1+pages)*os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	m := mapping{memory: memory, fd: fd}
	r, err := m.ring()
	if err != nil {
		_ = unix.Munmap(memory)
		return nil, err
	}
	r.read = atomic.LoadUint64(r.head)
	return &Tap{format: NewFormat(attr), ring: r, memory: memory, scratch: make([]byte, MaxRecordSize+1)}, nil
}

// mostBehind is how many bytes of records Newest goes through for the last one.
const mostBehind = 1 << 20

// Newest decodes the newest sample if one was written since the last call. It is valid until the ring is
// drained, which whoever drains it does not do at once.
func (t *Tap) Newest(s *Sample) (ok bool) {
	r := &t.ring
	r.seen = atomic.LoadUint64(r.head)
	if r.seen-r.read > min(mostBehind, uint64(len(r.data))) {
		r.read = r.seen
		return false
	}
	at, length := uint64(0), 0
	for {
		pos, size, more, _ := r.next()
		if !more {
			break
		}
		if RecordType(r.data[pos&uint64(len(r.data)-1)]) == RecordSample {
			at, length = pos, size
		}
	}
	return length > 0 && t.format.Sample(r.record(at, length, t.scratch), s) == nil
}

// Close unmaps the ring.
func (t *Tap) Close() error { return unix.Munmap(t.memory) }

// A SampleRing is a ring in which samples of a CPU are.
type SampleRing struct {
	CPU, FD, Pages int
	Attr           unix.PerfEventAttr // of its samples
}

// SampleRings are the rings in which samples of one CPU are, for a Tap of each.
func (s *Source) SampleRings() (rings []SampleRing) {
	for i, m := range s.rings {
		isMapped := len(m.memory) > 0 || s.simulation != nil && s.simulation.Signal != nil
		if !m.sideBand && m.cpu >= 0 && isMapped {
			pages := len(s.merger.queues[i].data) / os.Getpagesize()
			rings = append(rings, SampleRing{m.cpu, m.fd, pages, s.attrs[0].PerfEventAttr})
		}
	}
	return rings
}

// SignalTo makes the kernel send a thread, which may be of another process, a signal for each sample of a CPU, as
// long as that is on: see Signal.
func (s *Source) SignalTo(cpu, tid int, signal unix.Signal) error {
	for _, d := range s.fds {
		if d.cpu != cpu || d.sideBand {
			continue
		}
		if err := sys.SignalThread(d.fd, tid); err != nil {
			return err
		}
		if _, err := unix.FcntlInt(uintptr(d.fd), unix.F_SETSIG, int(signal)); err != nil {
			return err
		}
	}
	return nil
}

// Signal begins to send the signals, or ends that. With each signal the kernel also wakes whoever waits for
// the ring, in vain; unwatched means that Wait does not return for samples meanwhile, and has to be called in
// time.
func (s *Source) Signal(on, unwatched bool) error {
	if s.simulation != nil {
		s.simulation.Signal(on)
		return nil
	}
	flags := 0
	if on {
		flags = unix.O_ASYNC
	}
	for _, d := range s.fds {
		if !d.sideBand {
			_, _ = unix.FcntlInt(uintptr(d.fd), unix.F_SETFL, flags)
		}
	}
	return s.poller.setUnwatched(on && unwatched)
}

// QuarterFull is how long it takes until a ring is a quarter full of samples, 0 if that is not known.
func (s *Source) QuarterFull() time.Duration { return lasts(s.leastRing()/4, s.rate, s.StackSize()) }

// leastRing is the size of the smallest ring for samples.
func (s *Source) leastRing() int {
	least := s.RingSize()
	for i, r := range s.rings {
		if !r.sideBand {
			least = min(least, len(s.merger.queues[i].data))
		}
	}
	return least
}
