package perfring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// Source is a set of open events and their rings. Its methods are for one goroutine, except Wake.
type Source struct {
	attrs  []Attr
	format SampleFormat
	notes  []string
	clock  int32 // of the records' times
	tasks  bool  // the targets are tasks, which can exit
	// threads means that only single threads are sampled: the other threads of their processes are followed,
	// but not waited for.
	threads bool
	onExec  bool
	paused  bool   // samples are not taken
	adopted bool   // the events are those of somebody else
	rate    uint64 // samples a second on a CPU, 0 where it is not known

	simulation *Simulation // of rings in memory, nil for those of the kernel

	fds     []descriptor
	rings   []mapping
	hotplug hotplug
	merger  *merger
	poller  *poller

	fn      func(Record) error // the argument of the Drain that is running
	deliver func(Record) error // s.count, bound once
	ahead   []byte             // memory for a record that wraps, for Peek
	correct []byte             // memory for a record that has to be corrected

	lost      uint64   // by LOST records
	dropped   uint64   // by LOST_SAMPLES records
	eventLost []uint64 // by PERF_FORMAT_LOST, after Flush; nil if the kernel does not have it
}

// Notes returns what was changed because the system did not allow it, one sentence each, for the user.
func (s *Source) Notes() []string { return s.notes }

// Attrs returns the events as they were opened, in the order of Options.Events. The first one has the bits
// and IDs of the side-band event as well, as that has the same trailers.
func (s *Source) Attrs() []Attr { return s.attrs }

// Format returns the layout of the records, which is the same for all events.
func (s *Source) Format() *SampleFormat { return &s.format }

// StackSize returns how many bytes of a stack are copied at most.
func (s *Source) StackSize() int { return int(s.attrs[0].PerfEventAttr.Sample_stack_user) }

// RingSize returns the bytes of ring data for the samples of each CPU. CPUs that came online later may have less.
func (s *Source) RingSize() int {
	for i, r := range s.rings {
		if !r.sideBand {
			return len(s.merger.queues[i].data)
		}
	}
	return 0
}

// Rings is how many rings there are: two for each CPU, mostly.
func (s *Source) Rings() int { return len(s.rings) }

// source makes a Source of everything that was opened.
func (op *opener) source() (*Source, error) {
	s := &Source{
		notes: op.notes, clock: unix.CLOCK_MONOTONIC,
		tasks: !op.target.AllCPUs, threads: op.target.TIDs != nil, onExec: op.target.Command > 0,
		paused: op.opts.Delayed, rate: op.rate,
		fds: op.fds, rings: op.rings,
	}
	for i := range op.opts.Events {
		s.attrs = append(s.attrs, Attr{Name: op.name(i), PerfEventAttr: op.attrs[i]})
		if op.attrs[i].Size == 0 { // on none of the CPUs
			s.attrs[i].PerfEventAttr = op.attr(i)
		}
	}
	s.attrs[0].PerfEventAttr.Bits |= op.attr(sideBand).Bits & bitsSideBand
	s.hotplug.follow(op, s.fds)
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
		id, err := eventID(d.fd)
		if err != nil {
			errno, _ := errors.AsType[syscall.Errno](err)
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
	s.merger.now = s.now
	for i := range s.rings {
		s.merger.queues[i].sideBand, s.merger.queues[i].ofSamples = s.rings[i].sideBand, s.rings[i].ofSamples()
	}
	p, err := newPoller(s.news, s.samplesPress)
	if err != nil {
		return err
	}
	for _, d := range s.fds {
		if d.polled {
			if err := p.add(d.fd, d.sideBand || s.adopted, !d.sideBand || !s.threads); err != nil {
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
	CPUs []int              // of each descriptor, -1 where it is not known; nil if none is
}

// Adopt makes a Source of descriptors that somebody else opened, for instance a service with more privileges.
// All events must have the same layout of samples, and times of a clock that can be read here (use_clockid).
// pages is the size of each ring in memory pages, rounded down to a power of two. The rings are
// smaller, and Notes says so, where no more memory may be locked. On success the Source owns the descriptors;
// after an error they still belong to the caller.
//
// Whoever opened the events may keep copies of the descriptors and enable and disable the events by them.
func Adopt(events []Adopted, pages int) (*Source, error) {
	s := &Source{tasks: true, adopted: true}
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
		for n, fd := range events[i].FDs {
			d := descriptor{fd: fd, event: i, pid: -1, cpu: -1, polled: true}
			if n < len(events[i].CPUs) {
				d.cpu = events[i].CPUs[n]
			}
			s.fds = append(s.fds, d)
		}
	}
	if len(s.fds) == 0 {
		return nil, errors.New("no descriptors to adopt")
	}
	if pages <= 0 {
		return nil, fmt.Errorf("invalid ring size of %d pages", pages)
	}
	pages = 1 << (bits.Len(uint(pages)) - 1)
	s.rate = rateOf(s.attrs)
	if err := s.mapAll(pages); err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		s.unmap()
		return nil, err
	}
	return s, nil
}

// mapAll maps a ring for each descriptor, in which samples and all other records are. If no more memory may
// be locked, all rings are halved.
func (s *Source) mapAll(pages int) error {
	for asked := pages; ; pages /= 2 {
		d, err := s.tryMap(pages)
		if err == nil {
			if pages < asked {
				kb := os.Getpagesize() / 1024
				s.notes = append(s.notes, fmt.Sprintf("ring of %d KiB a CPU instead of %d: no more memory may be locked",
					pages*kb, asked*kb))
			}
			return nil
		}
		s.unmap()
		errno, _ := err.(syscall.Errno)
		if errno != unix.EPERM && errno != unix.ENOMEM || pages == 1 {
			return &OpenError{What: "mmap", Event: s.attrs[d.event].Name, PID: -1, CPU: d.cpu, Errno: errno}
		}
	}
}

// tryMap maps a ring for each descriptor. With an error it returns the one that could not be mapped.
func (s *Source) tryMap(pages int) (failed descriptor, err error) {
	for _, d := range s.fds {
		m, err := mapRing(d.fd, d.cpu, pages)
		if err != nil {
			return d, err
		}
		m.mixed = true
		s.rings = append(s.rings, m)
	}
	return failed, nil
}

// Enable starts the recording. For a Command it does nothing, as the kernel enables the events at its
// exec.
func (s *Source) Enable() error {
	if s.onExec {
		return nil
	}
	return s.control("PERF_EVENT_IOC_ENABLE", unix.PERF_EVENT_IOC_ENABLE, func(d descriptor) bool {
		return d.sideBand || !s.paused
	})
}

// Sample begins to take samples, or stops that. All other records are written in any case.
func (s *Source) Sample(on bool) error {
	s.paused = !on
	sampled := func(d descriptor) bool { return !d.sideBand }
	if on {
		return s.control("PERF_EVENT_IOC_ENABLE", unix.PERF_EVENT_IOC_ENABLE, sampled)
	}
	return s.control("PERF_EVENT_IOC_DISABLE", unix.PERF_EVENT_IOC_DISABLE, sampled)
}

// Disable ends the recording, also of the tasks that inherited the events. Records in the rings stay.
func (s *Source) Disable() error {
	if s.simulation != nil {
		s.simulation.Disable()
		return nil
	}
	all := func(descriptor) bool { return true }
	return s.control("PERF_EVENT_IOC_DISABLE", unix.PERF_EVENT_IOC_DISABLE, all)
}

// control makes a request for the events that are of interest.
func (s *Source) control(what string, request uint, of func(descriptor) bool) error {
	var first error
	for _, d := range s.fds {
		if s.hotplug.offline[d.cpu] || !of(d) {
			continue
		}
		if err := unix.IoctlSetInt(d.fd, request, 0); err != nil && first == nil {
			errno, _ := err.(syscall.Errno)
			first = &OpenError{What: what, Event: s.attrs[d.event].Name, PID: d.pid, CPU: d.cpu, Errno: errno}
		}
	}
	return first
}

// Wait returns when a ring is a quarter full, a record other than a sample was written, Wake was called, the
// last of the targets has exited, or the timeout has passed; a negative timeout never passes. After the
// targets have exited, Wait sleeps as before: see [Source.Done].
func (s *Source) Wait(timeout time.Duration) error {
	if s.simulation != nil {
		s.simulation.wait(timeout, s.news)
		return nil
	}
	return s.poller.wait(timeout)
}

// Pause is Wait, but records other than samples do not end it. It is for who looks at them from time to time,
// and would be woken in vain by each of them. If the events were adopted, no records end it. The next Wait
// returns at once if there are records that were not looked at, also if these are samples of adopted events.
func (s *Source) Pause(timeout time.Duration) error {
	if s.simulation != nil {
		s.simulation.wait(timeout, s.samplesPress)
		return nil
	}
	return s.poller.pause(timeout)
}

// Sleep is Pause, but no records end it.
func (s *Source) Sleep(timeout time.Duration) error {
	if s.simulation != nil {
		s.simulation.wait(timeout, nil)
		return nil
	}
	return s.poller.sleepWithoutRings(timeout)
}

// Wake makes the Wait that is running return, or else the next one, and the Pause that precedes it. Any
// goroutine may call it, also after Close.
func (s *Source) Wake() {
	if s.simulation != nil {
		s.simulation.woken.Store(true)
		return
	}
	s.poller.wakeUp()
}

// Now is the time of the records' clock, as [Now] is that of the kernel's.
func (s *Source) Now() uint64 {
	if s.simulation != nil {
		return s.simulation.Now()
	}
	return Now()
}

// UntilQuarter is how long it takes until a ring is a quarter full, if the rings fill as fast as they did before the
// last drains. It is for adopted events: the kernel wakes who waits for these after as many samples as whoever opened
// them asked for, however much room there is.
func (s *Source) UntilQuarter() time.Duration { return time.Duration(s.merger.filling.quarter) }

// Done reports whether a Wait has seen the end of all targets and of all tasks that inherited their
// events. It is never true with all CPUs as target.
func (s *Source) Done() bool { return s.tasks && s.poller.alive == 0 }

// Drain calls fn with the records that are so old that no older ones can follow, in the order of their
// times. A record is valid only during its call of fn. An error of fn ends Drain and is returned. With
// [ErrCorrupt], the records in one ring are lost; the next Drain goes on.
func (s *Source) Drain(fn func(Record) error) error {
	now, err := s.now()
	if err != nil {
		return err
	}
	s.merger.newest = now
	return s.drain(now-Slack, fn)
}

// now is the time of the records' clock.
func (s *Source) now() (uint64, error) {
	if s.simulation != nil {
		return s.simulation.Now(), nil
	}
	now, err := sys.ClockGettime(s.clock)
	if err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}
	return uint64(max(Slack, now.Nano())), nil
}

// CPU is that of the ring from which Drain or Flush has taken the record that it hands out, -1 where it is
// not known. It is for events whose samples do not say it.
func (s *Source) CPU() int { return s.merger.from.cpu }

// OfSamples reports whether the record that Drain or Flush hands out is from a ring for samples alone: what was lost
// there tells nothing of processes.
func (s *Source) OfSamples() bool { return s.merger.from.ofSamples }

// Flush calls fn with all records that are left, as Drain does. It is for the end, after Disable.
func (s *Source) Flush(fn func(Record) error) error {
	err := s.drain(math.MaxUint64, fn)
	s.readLost()
	return err
}

// Peek calls fn with the records other than samples that were written since its last call, in no particular
// order and before Drain hands them out, so that a file that is mapped can be opened at once. Drain still
// hands them out. A record is valid only during its call of fn. Peek may be called while Drain is running.
// If the events were adopted, fn is called with samples, too.
func (s *Source) Peek(fn func(Record)) {
	for q := range s.lookedAhead() {
		q.peeked = q.ahead(q.peeked, s.ahead, fn)
	}
}

// Glance is Peek for the records that were written since the last call of either, and leaves them to the next
// Peek all the same. It is for whoever has to wait in the middle of something else.
func (s *Source) Glance(fn func(Record)) {
	for q := range s.lookedAhead() {
		q.glanced = q.ahead(max(q.glanced, q.peeked), s.ahead, fn)
	}
}

// lookedAhead goes through the rings that Peek and Glance look at.
func (s *Source) lookedAhead() iter.Seq[*queue] {
	if s.ahead == nil {
		s.ahead = make([]byte, MaxRecordSize+1)
	}
	return func(yield func(*queue) bool) {
		for i := range s.rings {
			if !s.rings[i].ofSamples() && !yield(s.merger.queues[i]) {
				return
			}
		}
	}
}

// Pressing reports whether any ring is a quarter full or more.
func (s *Source) Pressing() bool {
	return slices.ContainsFunc(s.merger.queues, (*queue).pressing)
}

// Crowded reports whether any ring for the side-band is a quarter full or more.
func (s *Source) Crowded() bool {
	return slices.ContainsFunc(s.merger.queues, func(q *queue) bool { return q.sideBand && q.pressing() })
}

// HalfFull reports whether any ring is half full or more, so that nothing may keep the caller from draining it.
// It may be called while Drain is running.
func (s *Source) HalfFull() bool {
	return slices.ContainsFunc(s.merger.queues, (*queue).halfFull)
}

// NearlyFull reports whether any ring is three quarters full or more. It may be called while Drain is running.
func (s *Source) NearlyFull() bool {
	return slices.ContainsFunc(s.merger.queues, (*queue).nearlyFull)
}

// news reports whether a ring for other records than samples has new ones, or another ring has become a quarter full.
// Records that Peek, Drain or news itself has already seen are not new.
func (s *Source) news() (found bool) {
	for i, q := range s.merger.queues {
		head := atomic.LoadUint64(q.head)
		if head != q.seen && head != q.peeked && head != q.reported && (!s.rings[i].ofSamples() || q.pressing()) {
			q.reported, found = head, true
		}
	}
	return found
}

// samplesPress reports whether any ring for samples alone is a quarter full or more.
func (s *Source) samplesPress() bool {
	for i, q := range s.merger.queues {
		if s.rings[i].ofSamples() && q.pressing() {
			return true
		}
	}
	return false
}

func (s *Source) drain(horizon uint64, fn func(Record) error) error {
	s.fn = fn
	err := s.merger.drain(horizon, s.deliver)
	s.fn = nil
	return err
}

// count looks at every record on its way.
func (s *Source) count(r Record) error {
	r = s.hotplug.rename(s.format.Correct(r, &s.correct))
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

// readLost reads the kernel's own counts of what each event lost. They include the counts of LOST records,
// and what was lost after the last LOST record.
func (s *Source) readLost() {
	if s.simulation != nil {
		return
	}
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

// Lost returns how many records were lost so far. During the recording, this is the sum of all LOST and
// LOST_SAMPLES records. After Flush, the kernel's counts by event (PERF_FORMAT_LOST, Linux 6.0), which
// include the former, take the place of LOST records; those of LOST_SAMPLES, which are dropped before there
// is a record, are added.
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

// EventLost returns, after Flush, how many records each event lost, in the order of Attrs; nil if the
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
	s.hotplug.list.Close() // an error of a file that is not there
	if s.poller != nil {
		s.poller.close()
	}
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
