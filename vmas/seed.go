package vmas

import (
	"errors"
	"fmt"
	"time"
)

// ErrEnded means that there is no such process any more, or only a zombie.
var ErrEnded = errors.New("process has ended")

var errNoProc = errors.New("no proc file system")

// Seed reads a process from /proc, all of it: its threads that can still run, and its executable mappings.
// Call it when the process's events are open. See SeedNow for a sample of a process that Space does not know, and
// SeedLater for processes that may never be sampled.
//
// A process that has ended yields ErrEnded, and is remembered, so that asking again costs nothing.
// Where maps cannot be read (ptrace's permissions decide), the space is there with its threads,
// without mappings, and comes with the error; without its threads where /proc hides the process.
//
// A process that is known already keeps its mappings, unless /proc shows others at their addresses.
func (t *Table) Seed(pid uint32) (*Space, error) {
	if err := t.canRead(pid); err != nil {
		return nil, err
	}
	t.isRead(pid)
	r := t.beginReading(pid)
	return t.seeded(r, t.readAll(r))
}

// canRead returns an error if there is no such process, as far as is known.
func (t *Table) canRead(pid uint32) error {
	if t.proc.texts == nil {
		return fmt.Errorf("seed process %d: %w", pid, errNoProc)
	}
	if !isProcess(pid) || t.spaces[pid] == nil && t.ended.known(pid) {
		return fmt.Errorf("seed process %d: %w", pid, ErrEnded)
	}
	return nil
}

// beginReading begins to read a process, which has a space then.
func (t *Table) beginReading(pid uint32) *reading {
	t.proc.reserve()
	s, known := t.spaces[pid], true
	if s == nil {
		s, known = t.add(pid), false
		s.threadsIncomplete = true
	}
	r := newReading(s, known)
	r.losses = t.losses
	return r
}

// holds reports whether the space has m already, under whatever identity.
func (s *Space) holds(m *Map) bool {
	if m.Prot&ProtExec == 0 {
		return false
	}
	e := s.layout.search(m.Addr)
	if e == nil || e.Start > m.Addr || e.End < m.Addr+m.Len {
		return false
	}
	path, kind, _ := classify(string(m.Name))
	if e.File.Path != path {
		return false
	}
	// Memory without a file counts its offset from address 0 in records, and has none in maps.
	return e.Offset+m.Addr-e.Start == m.Offset || kind == Anonymous || kind == Heap || kind == Stack
}

const (
	// Re-reads of a process have a credit of time, which grows by this part of the time, up to mostReread.
	rereadShare = 50
	mostReread  = 20 * time.Millisecond
	// A read takes up to readWork, and lineWork for each line. What it takes longer it waits: for a CPU, or
	// for the process, which changes its mappings just then. That counts for one part of waitShare.
	readWork  = 2 * time.Millisecond
	lineWork  = 10 * time.Microsecond
	waitShare = 12
	// Re-reads that find nothing new become rarer and rarer.
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// Refresh reads a process's mappings from /proc again, for a sample in no mapping. It reports
// whether they are different now, so that the address should be looked up again.
//
// Reading takes at most about a fiftieth of the time, and a quarter where most of it is waiting; after reads
// that found nothing new, 10 ms to 1 s must pass. So generated code, which no record tells of, does not cause
// a read of maps for every sample. But code that keeps moving (by mremap, which no record tells of either) is
// found each time.
func (t *Table) Refresh(pid uint32) bool {
	s := t.spaces[pid]
	if s == nil || s.kernel || t.proc.texts == nil || t.tooSoon(s) || t.IsUnread(pid) {
		return false
	}
	different, _ := t.reload(s)
	return different
}

func (t *Table) tooSoon(s *Space) bool { return !s.reread.IsZero() && t.now().Before(s.reread) }

// mostNames is how many threads are asked for their names at a time for a process that is read again.
const mostNames = 1024

// Reread makes up for lost records: for a process that is doubted, it reads from /proc what they may have
// said, which is its mappings and the names of its threads, as rarely as Refresh does. It reports whether
// anything is different now. Mappings stay unless others are at their addresses now, as older samples may
// still come.
func (t *Table) Reread(pid uint32) (different bool) {
	s := t.spaces[pid]
	if s == nil || !s.Doubted() || t.proc.texts == nil || t.tooSoon(s) || t.IsUnread(pid) {
		return false
	}
	all := true
	defer func() {
		if all {
			s.trust()
		}
	}()
	var st stat
	if t.proc.stat(pid, pid, &st) != nil {
		return false // it has ended: what is known has to do
	}
	if s.start != 0 && s.start != st.start {
		t.remove(pid)
		next, _ := t.SeedNow(pid)
		return next != nil
	}
	name := s.comm
	if found, ahead := t.listThreads(s, mostNames); !found || ahead || s.kernel {
		return false
	}
	s.Generated = nil
	different, all = t.reload(s)
	return different || s.comm != name
}

// listThreads adds up to most threads in /proc to the thread list of s. It reports whether there is such a process, and
// whether /proc is ahead of the records: see readThreads.
func (t *Table) listThreads(s *Space, most int) (found, ahead bool) {
	tids, err := t.proc.numbers(s.PID)
	_, ahead = t.readThreads(s, tids[:min(len(tids), most)])
	if err == nil && len(tids) <= most && !ahead {
		s.hasThreads()
	}
	return err == nil, ahead
}

// reload reads maps again and works out when it may be read next. If there is no time now for all of it, the rest is
// read later.
func (t *Table) reload(s *Space) (different, all bool) {
	begin := t.now()
	if !t.mayRead(s, begin) {
		return false, false
	}
	t.proc.reserve()
	r := newReading(s, true)
	var err error
	if living, ok := t.sameProcess(s); ok {
		r.listed, r.living = true, living
		all, err = t.readWithin(r, begin)
	}
	if !all && err == nil && r.listed {
		t.want(s.PID)
	}
	t.readAgain(s, begin, r.lines, r.different)
	return r.different, all || err != nil
}

// dropStale drops the mappings at whose addresses maps shows no code any more. Nothing changes if not all of it can be
// read.
func (t *Table) dropStale(s *Space) {
	begin := t.now()
	if t.proc.texts == nil || !t.mayRead(s, begin) {
		return
	}
	t.proc.reserve()
	old := s.layout
	s.layout = &layout{refs: 1}
	r := newReading(s, true)
	r.within = old
	all := false
	if living, ok := t.sameProcess(s); ok {
		r.listed, r.living = true, living
		all, _ = t.readWithin(r, begin)
	}
	if all = all && r.lines > 0; all {
		old.drop(&t.files)
	} else {
		s.layout.drop(&t.files)
		s.layout = old
	}
	s.changed()
	t.readAgain(s, begin, r.lines, all)
}

// readAgain notes that maps was read again, and works out when it may be read next.
func (t *Table) readAgain(s *Space, begin time.Time, lines int, different bool) {
	end := t.now()
	if different {
		s.backoff = 0
	} else {
		s.backoff = min(max(2*s.backoff, minBackoff), maxBackoff)
	}
	cost := charge(end.Sub(begin), lines)
	t.pay(s, cost)
	s.rereads.Left(begin)
	s.rereads.Spend(cost)
	s.reread = end.Add(max(s.backoff, s.rereads.Wait()))
}

// charge is what a read of that many lines counts for that took so long.
func charge(took time.Duration, lines int) time.Duration {
	work := min(took, readWork+time.Duration(lines)*lineWork)
	return work + (took-work)/waitShare
}

// sameProcess finds a living thread of the process of s. It makes sure that the PID was not given to
// another process, whose records are still to come.
func (t *Table) sameProcess(s *Space) (living uint32, ok bool) {
	var st stat
	if t.proc.stat(s.PID, s.PID, &st) != nil || s.start != 0 && s.start != st.start {
		return 0, false
	}
	s.start = st.start
	if st.alive() {
		return s.PID, true
	}
	for tid := range s.threads.each() {
		if tid != s.PID && t.proc.stat(s.PID, tid, &st) == nil && st.alive() {
			return tid, true
		}
	}
	return 0, false
}

// Sweep drops processes that are not in /proc any more and whose EXIT was lost. A process is dropped only
// if two sweeps in a row do not find it, as its last samples may still be in the ring: call Sweep every few
// seconds at most. It returns how many it dropped.
func (t *Table) Sweep() (dropped int) {
	if t.proc.texts == nil {
		return 0
	}
	pids, err := t.proc.numbers(0)
	if err != nil {
		return 0
	}
	present := make(map[uint32]struct{}, len(pids))
	for _, pid := range pids {
		present[pid] = struct{}{}
	}
	for pid, s := range t.spaces {
		if _, ok := present[pid]; ok {
			s.missing = false
			continue
		}
		if !s.missing {
			s.missing = true
			continue
		}
		t.remove(pid)
		t.ended.add(pid, endAbsent)
		dropped++
	}
	return dropped
}
