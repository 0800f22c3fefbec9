package perfring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Source is a set of open events and their rings. Its methods are for one goroutine, except Wake.
type Source struct {
	attrs  []Attr
	format Format
	notes  []string
	clock  int32 // of the records' times
	tasks  bool  // the targets are tasks, which can exit
	onExec bool

	fds    []descriptor
	rings  []mapping
	merger *merger
	poller *poller

	fn      func(Record) error // of the Drain that runs
	deliver func(Record) error // s.count, bound once
	ahead   []byte             // for a record that wraps, as Peek shows it

	lost      uint64   // by LOST records
	dropped   uint64   // by LOST_SAMPLES records
	eventLost []uint64 // by PERF_FORMAT_LOST, after Flush; nil without
}

// Notes returns what was adjusted to what the system allows, one sentence each, for the user.
func (s *Source) Notes() []string { return s.notes }

// Attrs returns the events as they were opened, in the order of Options.Events. The first one has the bits
// and IDs of the event for mappings as well: its trailers are the same.
func (s *Source) Attrs() []Attr { return s.attrs }

// Format returns the layout of the records, which is the same for all events.
func (s *Source) Format() *Format { return &s.format }

// RingSize returns the bytes of ring data for each CPU.
func (s *Source) RingSize() int {
	for i, r := range s.rings {
		if !r.maps {
			return len(s.merger.queues[i].data)
		}
	}
	return 0
}

// source takes over what the opener has opened.
func (op *opener) source() (*Source, error) {
	s := &Source{
		notes: op.notes, clock: unix.CLOCK_MONOTONIC,
		tasks: !op.target.AllCPUs, onExec: op.target.Command > 0,
		fds: op.fds, rings: op.rings,
	}
	for i := range op.opts.Events {
		s.attrs = append(s.attrs, Attr{Name: op.name(i), PerfEventAttr: op.attrs[i]})
		if op.attrs[i].Size == 0 { // on none of the CPUs
			s.attrs[i].PerfEventAttr = op.attr(i, false)
		}
	}
	s.attrs[0].PerfEventAttr.Bits |= op.attr(mappings, false).Bits & bitsMappings
	return s, s.start()
}

// start completes a Source with attrs, fds and rings.
func (s *Source) start() error {
	s.format = NewFormat(&s.attrs[0].PerfEventAttr)
	for i := range s.attrs {
		s.format.buildID = s.format.buildID || s.attrs[i].PerfEventAttr.Bits&bitBuildID != 0
	}
	s.deliver = s.count
	for _, d := range s.fds {
		var id uint64
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), unix.PERF_EVENT_IOC_ID,
			uintptr(unsafe.Pointer(&id)))
		if errno != 0 {
			return &OpenError{What: "PERF_EVENT_IOC_ID", Event: s.attrs[d.event].Name, PID: d.pid, CPU: d.cpu,
				Errno: errno}
		}
		s.attrs[d.event].IDs = append(s.attrs[d.event].IDs, id)
	}
	var rings []ring
	var cpus []int
	for i := range s.rings {
		r, err := s.rings[i].ring()
		if err != nil {
			return err
		}
		rings, cpus = append(rings, r), append(cpus, s.rings[i].cpu)
	}
	s.merger = newMerger(s.format, rings, cpus)
	for i := range s.rings {
		s.merger.queues[i].maps = s.rings[i].maps
	}
	p, err := newPoller(s.news)
	if err != nil {
		return err
	}
	for _, d := range s.fds {
		if d.polled {
			if err := p.add(d.fd); err != nil {
				p.close()
				return err
			}
		}
	}
	s.poller = p
	return nil
}

// Adopted is an event that somebody else opened.
type Adopted struct {
	Name string
	Attr unix.PerfEventAttr // as it was opened
	FDs  []int              // each with a ring of its own, not yet mapped
}

// Adopt makes a Source of descriptors that somebody else opened, for instance a service with more
// privileges. All events must have the same layout of samples, and times from a clock that can be
// read here (use_clockid). pages is the size of each ring in memory pages, rounded down to a power
// of two; 0: 8 MiB. On success the Source owns the descriptors; after an error the caller still
// does.
func Adopt(events []Adopted, pages int) (*Source, error) {
	s := &Source{tasks: true}
	for i := range events {
		a := &events[i].Attr
		if a.Bits&unix.PerfBitUseClockID == 0 || a.Clockid != events[0].Attr.Clockid ||
			a.Sample_type&unix.PERF_SAMPLE_TIME == 0 || a.Bits&unix.PerfBitSampleIDAll == 0 {
			return nil,
				fmt.Errorf("event %s: needs PERF_SAMPLE_TIME, sample_id_all, use_clockid and one clock for all",
					events[i].Name)
		}
		if !NewFormat(a).sameLayout(NewFormat(&events[0].Attr)) {
			return nil, fmt.Errorf("events %s and %s have different layouts", events[0].Name, events[i].Name)
		}
		s.clock = a.Clockid
		s.attrs = append(s.attrs, Attr{Name: events[i].Name, PerfEventAttr: *a})
		for _, fd := range events[i].FDs {
			s.fds = append(s.fds, descriptor{fd: fd, event: i, pid: -1, cpu: -1, polled: true})
		}
	}
	if len(s.fds) == 0 {
		return nil, errors.New("no descriptors to adopt")
	}
	if pages <= 0 {
		pages = defaultRing / os.Getpagesize()
	}
	pages = 1 << (bits.Len(uint(pages)) - 1)
	for _, d := range s.fds {
		m, err := mapRing(d.fd, d.cpu, pages)
		if err != nil {
			s.unmap()
			errno, _ := err.(syscall.Errno)
			return nil, &OpenError{What: "mmap", Event: s.attrs[d.event].Name, PID: -1, CPU: -1, Errno: errno}
		}
		s.rings = append(s.rings, m)
	}
	if err := s.start(); err != nil {
		s.unmap()
		return nil, err
	}
	return s, nil
}

// Enable starts the recording. The kernel does this itself for a Command, at its exec: there,
// Enable does nothing.
func (s *Source) Enable() error {
	if s.onExec {
		return nil
	}
	return s.control("PERF_EVENT_IOC_ENABLE", unix.PERF_EVENT_IOC_ENABLE)
}

// Disable ends it, also for the tasks that inherited the events. What is in the rings stays.
func (s *Source) Disable() error {
	return s.control("PERF_EVENT_IOC_DISABLE", unix.PERF_EVENT_IOC_DISABLE)
}

func (s *Source) control(what string, request uint) error {
	var first error
	for _, d := range s.fds {
		if err := unix.IoctlSetInt(d.fd, request, 0); err != nil && first == nil {
			errno, _ := err.(syscall.Errno)
			first = &OpenError{What: what, Event: s.attrs[d.event].Name, PID: d.pid, CPU: d.cpu, Errno: errno}
		}
	}
	return first
}

// Wait returns when a ring is a quarter full, there is a new mapping, Wake was called, the last of the
// targets has exited, or after the timeout; a negative one never ends. Once the targets are gone it sleeps
// like this: ask [Source.Done].
func (s *Source) Wait(timeout time.Duration) error { return s.poller.wait(timeout) }

// Wake makes the Wait that runs, or else the next one, return. Any goroutine may call it, also after
// Close.
func (s *Source) Wake() { s.poller.wakeUp() }

// Done says whether a Wait has seen the end of all targets and of all tasks that inherited their
// events. It is never true with all CPUs as target.
func (s *Source) Done() bool { return s.tasks && s.poller.alive == 0 }

// Drain hands the records that are old enough to fn, in the order of their times: nothing older can
// appear any more. A record is valid only during its call of fn. An error of fn ends Drain and is
// returned. An [ErrCorrupt] costs one ring's content; the next Drain goes on.
func (s *Source) Drain(fn func(Record) error) error {
	var now unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(s.clock), uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return fmt.Errorf("clock_gettime: %w", errno)
	}
	return s.drain(uint64(max(0, now.Nano()-slack)), fn)
}

// Flush hands all that is left to fn, as Drain does. It is for the end, after Disable.
func (s *Source) Flush(fn func(Record) error) error {
	err := s.drain(math.MaxUint64, fn)
	s.readLost()
	return err
}

// Peek shows fn the records about mappings that have come since it was last called, in no particular order
// and ahead of their time: a file that is mapped can be opened at once. Drain hands them out in their turn. A
// record is valid only during its call of fn. It may be called while Drain hands out records.
func (s *Source) Peek(fn func(Record)) {
	if s.ahead == nil {
		s.ahead = make([]byte, MaxRecordSize+1)
	}
	for i := range s.rings {
		if s.rings[i].maps {
			q := s.merger.queues[i]
			q.peeked = q.ahead(q.peeked, s.ahead, fn)
		}
	}
}

// Pressing says whether a ring of samples is a quarter full or more.
func (s *Source) Pressing() bool {
	for i := range s.rings {
		if !s.rings[i].maps && s.merger.queues[i].pressing() {
			return true
		}
	}
	return false
}

// news says whether a ring for mappings has new records, or another ring has become a quarter full. What
// Peek, Drain or news itself has already seen does not count.
func (s *Source) news() (found bool) {
	for i := range s.rings {
		q := s.merger.queues[i]
		head := atomic.LoadUint64(q.head)
		if head != q.seen && head != q.peeked && head != q.told && (s.rings[i].maps || q.pressing()) {
			q.told, found = head, true
		}
	}
	return found
}

func (s *Source) drain(horizon uint64, fn func(Record) error) error {
	s.fn = fn
	err := s.merger.drain(horizon, s.deliver)
	s.fn = nil
	return err
}

// count looks at every record on its way.
func (s *Source) count(r Record) error {
	switch r.Type() {
	case RecordLost:
		var l Lost
		if DecodeLost(r, &l) == nil {
			s.lost += l.Lost
		}
	case RecordLostSamples:
		var l LostSamples
		if DecodeLostSamples(r, &l) == nil {
			s.dropped += l.Lost
		}
	}
	return s.fn(r)
}

// readLost reads the kernel's own counts of what each event lost. They include what LOST records
// tell and what was lost after the last of those, for which there was no further record to tell it.
func (s *Source) readLost() {
	counts := make([]uint64, len(s.attrs))
	for _, d := range s.fds {
		format := s.attrs[d.event].PerfEventAttr.Read_format
		if format&unix.PERF_FORMAT_LOST == 0 || format&unix.PERF_FORMAT_GROUP != 0 {
			return
		}
		// struct read_format: value, then a word for each bit below LOST, then lost.
		var b [5 * 8]byte
		at := 8 * (1 + bits.OnesCount64(format&(unix.PERF_FORMAT_LOST-1)))
		if n, err := unix.Read(d.fd, b[:]); err != nil || n < at+8 {
			return
		}
		counts[d.event] += binary.LittleEndian.Uint64(b[at:])
	}
	s.eventLost = counts
}

// Lost returns how many records were lost so far. While recording, this is what LOST and LOST_SAMPLES
// records told. After Flush, the kernel's counts by event (PERF_FORMAT_LOST, Linux 6.0) replace the
// former, as they include them; LOST_SAMPLES, which are dropped before there is a record, still
// come on top.
func (s *Source) Lost() uint64 {
	if s.eventLost == nil {
		return s.lost + s.dropped
	}
	n := s.dropped
	for _, l := range s.eventLost {
		n += l
	}
	return n
}

// EventLost returns, after Flush, how many records each event lost, in the order of Attrs; nil when the
// kernel does not say.
func (s *Source) EventLost() []uint64 { return s.eventLost }

// Close ends the recording and frees the rings: no Record may be used any more.
func (s *Source) Close() error {
	s.unmap()
	var first error
	for _, d := range s.fds {
		if err := unix.Close(d.fd); err != nil && first == nil {
			first = fmt.Errorf("closing an event: %w", err)
		}
	}
	s.fds = nil
	s.poller.close()
	return first
}

func (s *Source) unmap() {
	for _, m := range s.rings {
		_ = unix.Munmap(m.memory)
	}
	s.rings = nil
	if s.merger != nil {
		s.merger.queues = nil // a Drain after Close finds nothing
	}
}
