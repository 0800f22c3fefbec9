package perfring

import (
	"sync/atomic"
	"time"
)

// A SimulatedRing is a ring that a simulation writes, in the layout of the kernel's.
type SimulatedRing struct {
	CPU      int
	SideBand bool   // for records other than samples
	Data     []byte // its length is a power of two
	// Head is where the writer writes next, Tail where the reader reads next: bytes since the beginning, which never
	// wrap. Each is read and written atomically.
	Head, Tail *uint64
}

// A Simulation stands in for the kernel behind rings in memory.
type Simulation struct {
	// Now is the clock of the records' times, in nanoseconds.
	Now func() uint64
	// Wait lets a time pass, or less if done, which may be called every now and then, reports that the wait is over.
	Wait func(timeout time.Duration, done func() bool)
	// Disable ends the recording. Records in the rings stay.
	Disable func()
	// Signal begins to tell whoever reads stacks of each sample, or ends that; nil where nobody does.
	Signal func(on bool)

	woken atomic.Bool
}

// OfMemory returns a Source whose records are in memory, for a machine that is simulated. It has no descriptors: to
// enable and disable it does nothing.
func OfMemory(event Attr, rings []SimulatedRing, by *Simulation) *Source {
	s := &Source{attrs: []Attr{event}, format: NewFormat(&event.PerfEventAttr), simulation: by}
	s.rate = rateOf(s.attrs)
	s.deliver = s.count
	var all []ring
	var cpus []int
	for _, m := range rings {
		s.rings = append(s.rings, mapping{cpu: m.CPU, sideBand: m.SideBand})
		all, cpus = append(all, newRing(m.Data, m.Head, m.Tail)), append(cpus, m.CPU)
	}
	s.merger = newMerger(s.format, all, cpus)
	s.merger.now = s.now
	for i := range rings {
		s.merger.queues[i].sideBand, s.merger.queues[i].ofSamples = rings[i].SideBand, !rings[i].SideBand
	}
	return s
}

// wait waits as long as the rings have no news.
func (b *Simulation) wait(timeout time.Duration, news func() bool) {
	b.Wait(timeout, func() bool { return b.woken.Swap(false) || news != nil && news() })
}
