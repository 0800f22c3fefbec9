package perfring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// hotplug opens events again on CPUs that went offline and came back, and opens them on CPUs that come online
// for the first time. When a CPU goes offline, its events are removed (perf_event_exit_cpu,
// kernel/events/core.c) and do not come back with it. The new events write to the ring that is there, if any.
// A recording lists the IDs of events at its beginning, so the IDs in the records of the new events are
// replaced by those of old ones.
type hotplug struct {
	op      *opener
	cpus    []int             // with events
	offline map[int]bool      // of these
	were    []int             // CPUs that were offline for a part of the time, each once, in that order
	reopens int               // how often CPUs were opened, again or for the first time
	ids     map[uint64]uint64 // by ID of an event that was opened later: the listed ID of the same event
	copied  Record            // that rename has changed
	list    *os.File          // of the CPUs that are online: a confined process could not open it later
	listFD  int               // of list: asking os.File for it is a system call
	content []byte            // of list, when it was read last
}

// An EventOpener opens events for a process that may not.
type EventOpener interface {
	// OpenEvent opens an event on all tasks of a CPU.
	OpenEvent(a *unix.PerfEventAttr, cpu int) (fd int, err error)
}

// FollowThrough makes another process open the events of CPUs that come back. attrs are those that can be
// asked for.
func (s *Source) FollowThrough(events EventOpener) (attrs []unix.PerfEventAttr) {
	h := &s.hotplug
	if s.tasks || h.op == nil {
		return nil
	}
	h.op.events = events
	for i := range h.op.opts.Events {
		attrs = append(attrs, h.op.attr(i))
	}
	return append(attrs, h.op.attr(sideBand))
}

// changed returns the CPUs that are online if the list of them is another than at the last call.
func (h *hotplug) changed() (online []int, changed bool) {
	var text [4096]byte
	n, err := sys.Pread(h.listFD, text[:], 0)
	if err != nil || bytes.Equal(text[:n], h.content) {
		return nil, false
	}
	online, err = parseCPUList(strings.TrimSpace(string(text[:n])))
	if err != nil || len(online) == 0 {
		return nil, false
	}
	h.content = append(h.content[:0], text[:n]...)
	return online, true
}

// mostReopens bounds how often CPUs are opened again: each time takes some descriptors.
const mostReopens = 64

// FollowCPUs looks for CPUs that went offline, and records those that came back or are new. It returns what
// happened, one sentence for each event, for the user. It is for a Source of all CPUs, and reads one small
// file.
func (s *Source) FollowCPUs() (notes []string) {
	h := &s.hotplug
	if s.tasks || h.list == nil {
		return nil
	}
	online, changed := h.changed()
	if !changed {
		return nil
	}
	for _, cpu := range h.cpus {
		there := slices.Contains(online, cpu)
		switch {
		case there == !h.offline[cpu]:
		case !there:
			h.offline[cpu] = true
			if !slices.Contains(h.were, cpu) {
				h.were = append(h.were, cpu)
			}
			notes = append(notes, h.note(cpu, fmt.Sprintf("CPU %d went offline", cpu))...)
		default:
			delete(h.offline, cpu)
			notes = append(notes, h.note(cpu, recordedNote(cpu, "is online again", s.reopen(cpu)))...)
		}
	}
	for _, cpu := range online {
		if slices.Contains(h.cpus, cpu) || slices.Contains(h.were, cpu) {
			continue
		}
		h.were = append(h.were, cpu)
		notes = append(notes, h.note(cpu, recordedNote(cpu, "came online", s.openCPU(cpu)))...)
	}
	return notes
}

// note is what is said of a CPU: nothing where nothing is sampled.
func (h *hotplug) note(cpu int, text string) []string {
	if !h.op.target.samplesOn(cpu) {
		return nil
	}
	return []string{text}
}

func recordedNote(cpu int, what string, err error) string {
	if err != nil {
		return fmt.Sprintf("CPU %d %s, and is not recorded: %v", cpu, what, err)
	}
	return fmt.Sprintf("CPU %d %s, and is recorded", cpu, what)
}

// OfflineCPUs are those that FollowCPUs has seen go offline, or come online for the first time, each once.
func (s *Source) OfflineCPUs() (cpus []int) {
	for _, cpu := range s.hotplug.were {
		if s.hotplug.op.target.samplesOn(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// follow notes which CPUs there are events on.
func (h *hotplug) follow(op *opener, fds []descriptor) {
	h.op, h.offline, h.ids = op, make(map[int]bool), make(map[uint64]uint64)
	if op.target.AllCPUs {
		// Without it, no CPU that comes and goes is followed.
		if h.list, _ = os.Open(op.sys.onlineFile()); h.list != nil {
			h.listFD = int(h.list.Fd())
		}
	}
	for _, d := range fds {
		if !slices.Contains(h.cpus, d.cpu) {
			h.cpus = append(h.cpus, d.cpu)
		}
	}
}

// reopen opens the events of a CPU again and enables them.
func (s *Source) reopen(cpu int) error {
	h := &s.hotplug
	if h.reopens++; h.reopens > mostReopens {
		return fmt.Errorf("CPUs came back %d times already", mostReopens)
	}
	for _, d := range slices.Clone(s.fds) {
		if d.cpu != cpu || d.reopened {
			continue
		}
		if err := s.reopenOne(d); err != nil {
			return err
		}
	}
	return nil
}

// openCPU opens the events on a CPU that has had none, with rings of their own, and enables them.
func (s *Source) openCPU(cpu int) error {
	h := &s.hotplug
	if h.reopens++; h.reopens > mostReopens {
		return fmt.Errorf("CPUs came online %d times already", mostReopens)
	}
	op := *h.op
	op.notes = slices.Clone(op.notes)
	op.needs.Stack, op.needs.Least = op.opts.StackSize, 0 // copies are as large on all CPUs
	for left := op.needs.most() - s.RingUse().Total; op.needs.Asked == 0 && op.sizes.Locked() > left && op.shrink(); {
	}
	for {
		op.fds, op.rings = nil, nil
		err := op.openTask(-1, []int{cpu})
		if err == nil {
			err = op.mapRings()
		}
		if err == nil {
			break
		}
		if op.close(); !errors.Is(err, errAgain) {
			return err
		}
	}
	return s.take(&op, cpu)
}

// take adds to a Source what was opened on another CPU. All of it is closed with the Source, also after an
// error.
func (s *Source) take(op *opener, cpu int) error {
	known := len(s.fds)
	s.hotplug.cpus = append(s.hotplug.cpus, cpu)
	s.fds = append(s.fds, op.fds...)
	for i := range op.rings {
		r, err := op.rings[i].ring()
		if err != nil {
			return err
		}
		s.rings = append(s.rings, op.rings[i])
		s.merger.add(r, cpu, op.rings[i].sideBand)
	}
	for _, d := range op.fds {
		like := slices.IndexFunc(s.fds[:known], func(o descriptor) bool {
			return o.event == d.event && o.sideBand == d.sideBand && !o.reopened
		})
		if like < 0 {
			return fmt.Errorf("no other CPU has the event %s", op.name(d.event))
		}
		if err := s.enableLike(d, s.fds[like]); err != nil {
			return err
		}
	}
	return nil
}

// enableLike enables an event that was opened later. Its records get the ID of the event like.
func (s *Source) enableLike(d, like descriptor) error {
	id, err := eventID(like.fd)
	if err != nil {
		return err
	}
	own, err := eventID(d.fd)
	if err != nil {
		return err
	}
	s.hotplug.ids[own] = id
	if d.polled {
		if err := s.poller.add(d.fd, d.sideBand, true); err != nil {
			return err
		}
	}
	if s.paused && !d.sideBand {
		return nil
	}
	return unix.IoctlSetInt(d.fd, unix.PERF_EVENT_IOC_ENABLE, 0)
}

// reopenOne opens the event of the descriptor old again.
func (s *Source) reopenOne(old descriptor) error {
	op, event := s.hotplug.op, old.event
	if old.sideBand {
		event = sideBand
	}
	fd, err := op.openOne(event, old.pid, old.cpu)
	if err != nil {
		return err
	}
	next := old
	next.fd, next.reopened = fd, true
	s.fds = append(s.fds, next) // closed with the others, also after an error
	ring := slices.IndexFunc(s.rings, func(m mapping) bool {
		return m.cpu == old.cpu && m.sideBand == old.sideBand
	})
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, s.rings[ring].fd); err != nil {
		return fmt.Errorf("PERF_EVENT_IOC_SET_OUTPUT: %w", err)
	}
	return s.enableLike(next, old)
}

// eventID asks the kernel for the ID that the records of an event have.
func eventID(fd int) (id uint64, err error) {
	if err := sys.Ioctl(fd, unix.PERF_EVENT_IOC_ID, &id); err != nil {
		return 0, fmt.Errorf("PERF_EVENT_IOC_ID: %w", err)
	}
	return id, nil
}

// rename gives a record of an event that was opened again the ID of the old event. The result is r, or a
// copy that is valid until the next call, as a ring must not be written to.
func (h *hotplug) rename(r Record) Record {
	if len(h.ids) == 0 || len(r) < headerSize+8 {
		return r
	}
	places := [2]int{len(r) - 8, headerSize} // of the IDs in the trailer and in LOST
	switch r.Type() {
	case RecordSample: // PERF_SAMPLE_IDENTIFIER comes first
		places[0] = headerSize
	case RecordLost:
	default:
		places[1] = places[0]
	}
	id, ok := h.ids[binary.LittleEndian.Uint64(r[places[0]:])]
	if !ok {
		return r
	}
	h.copied = append(h.copied[:0], r...)
	for _, at := range places {
		binary.LittleEndian.PutUint64(h.copied[at:], id)
	}
	return h.copied
}
