package perfring

import "golang.org/x/sys/unix"

// A Memory is a ring that is not written by the kernel, but laid out as the kernel does it: see ring.
type Memory struct {
	CPU      int
	SideBand bool   // for records other than samples
	Data     []byte // a power of two of bytes
	// Head is where the writer writes next, Tail where the reader reads next.
	Head, Tail *uint64
}

// OfMemory returns a Source whose records are in memory, for a machine that is simulated. now is the clock of their
// times, in nanoseconds. Such a Source has no events: it can be drained and looked at, but not waited for, enabled or
// closed.
func OfMemory(attr *unix.PerfEventAttr, rings []Memory, now func() (uint64, error)) *Source {
	s := &Source{attrs: []Attr{{PerfEventAttr: *attr}}, format: NewFormat(attr), memoryClock: now}
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
