package session

import (
	"unspool/capture/perfdata"
	"unspool/capture/session/commandlines"
	"unspool/vmas"
)

// SeedLater queues the address spaces of all processes, or of the given ones: SeedSome reads them from /proc, or
// their first sample does. The events must be open already. Ahead of the first sample of a process, the records are
// written that the kernel would have written had the recording begun before it.
func (s *Session) SeedLater(pids []int) error {
	var all []uint32
	if pids != nil {
		all = make([]uint32, len(pids))
		for i, pid := range pids {
			all[i] = uint32(pid)
		}
	}
	return s.table.SeedLater(all)
}

// HasUnread reports whether SeedSome would read anything.
func (s *Session) HasUnread() bool { return s.table.HasUnread() }

// SeedSome reads processes that are still to be read, as long as more says so. A process that is gone, or may
// not be looked at, is no reason to record nothing: its samples will say what they lack.
func (s *Session) SeedSome(more func() bool) error {
	s.table.SeedSome(more, func(space *vmas.Space, _ error) {
		if s.teller.listener != nil && !space.IsLarge() {
			s.table.Tell(space)
			s.teller.describe(space)
		}
	})
	return s.teller.err
}

// Seed reads the address spaces of processes.
func (s *Session) Seed(pids []int) error {
	if err := s.SeedLater(pids); err != nil {
		return err
	}
	return s.SeedSome(func() bool { return true })
}

// tell writes what is known of the process of a sample and is in no record, ahead of that sample.
func (s *Session) tell(w *work) {
	if w.space == nil || s.isRecorded() || s.table.IsTold(w.space) {
		return
	}
	if w.space.IsLarge() {
		s.teller.tellPart(w)
		return
	}
	s.table.Tell(w.space)
	s.teller.describe(w.space)
}

// CommandLines are those of programs that are recorded, nil where none are.
func (s *Session) CommandLines() *commandlines.Lines { return s.commandLines }

// EndCommandLines writes what was read and not written yet, when all records were taken, and counts.
func (s *Session) EndCommandLines() error {
	if c := s.commandLines; c != nil {
		c.Finish()
		s.Stats.CommandLines = c.Counted()
	}
	return s.teller.err
}

// commandLine writes a command line.
func (s *Session) commandLine(c *perfdata.CommandLine) {
	s.teller.synthesize(perfdata.AppendCommandLine(s.teller.buf[:0], c), nil)
}

// Lost writes a record of what was lost after the last LOST record, as the kernel had no room for one. total
// is all that was lost, id that of an event.
func (s *Session) Lost(total, id uint64) error {
	if told := s.lost.Lost(); total > told {
		s.teller.lost(total-told, id)
		s.lost.Records += total - told
	}
	return s.teller.err
}

// Told is how many bytes of records say what was known of processes, since Restate.
func (s *Session) Told() int { return s.teller.told }

// Sweep forgets processes whose EXIT was lost.
func (s *Session) Sweep() {
	s.table.Sweep()
	s.commandLines.Sweep(func(pid uint32) bool { return s.table.Space(pid) != nil })
	if s.teller.listener != nil {
		s.teller.listener.Sweep(func(pid uint32) bool { return s.table.Space(pid) != nil })
	}
}
