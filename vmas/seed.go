package vmas

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// ErrEnded says that there is no such process any more, or only a zombie.
var ErrEnded = errors.New("process has ended")

var errNoProc = errors.New("no proc file system")

// Seed reads a process from /proc: its threads that can still run, and its executable mappings.
// Call it when the process's events are open, or for a sample of a PID that Space does not know.
//
// A process that has ended yields ErrEnded, and is remembered, so that asking again costs nothing.
// Where maps cannot be read (ptrace's permissions decide), the space is there with its threads,
// without mappings, and comes with the error; without its threads where /proc hides the process.
//
// A process that is known already keeps its mappings, unless /proc shows others at their addresses.
func (t *Table) Seed(pid uint32) (*Space, error) {
	if t.proc.texts == nil {
		return nil, fmt.Errorf("seed process %d: %w", pid, errNoProc)
	}
	if !isProcess(pid) || t.spaces[pid] == nil && t.ended.known(pid) {
		return nil, fmt.Errorf("seed process %d: %w", pid, ErrEnded)
	}
	s, known := t.spaces[pid], true
	if s == nil {
		s, known = t.add(pid), false
	}
	living, err := t.readThreads(s)
	if err == nil && living == 0 && s.threads.len() == 0 {
		err = ErrEnded
	}
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			s.denied = true
			return s, fmt.Errorf("seed process %d: %w", pid, fs.ErrPermission)
		}
		if gone(err) {
			err = ErrEnded
		}
		if !known {
			t.remove(pid)
			t.ended.add(pid, endAbsent)
		}
		return nil, fmt.Errorf("seed process %d: %w", pid, err)
	}
	if s.kernel {
		return s, nil
	}
	if _, _, err := t.readMaps(s, living, false); err != nil {
		if gone(err) && !known {
			// It ended between the two reads. Its records, if there are any, follow.
			t.remove(pid)
			t.ended.add(pid, endAbsent)
			return nil, fmt.Errorf("seed process %d: %w", pid, ErrEnded)
		}
		return s, fmt.Errorf("seed process %d: %w", pid, err)
	}
	return s, nil
}

// SeedAll seeds every process that /proc lists and calls found, if not nil, for each. Processes
// that end meanwhile are left out. It goes on after a process that cannot be read; found gets the
// error.
func (t *Table) SeedAll(found func(*Space, error)) error {
	if t.proc.texts == nil {
		return fmt.Errorf("seed all processes: %w", errNoProc)
	}
	pids, err := t.proc.numbers(0)
	if err != nil {
		return fmt.Errorf("seed all processes: %w", err)
	}
	for _, pid := range pids {
		s, err := t.Seed(pid)
		if s != nil && found != nil {
			found(s, err)
		}
	}
	return nil
}

// readThreads adds the threads in /proc to the thread list of s and returns one that is alive. It removes
// none: a thread whose EXIT is still to come may have left /proc already.
func (t *Table) readThreads(s *Space) (living uint32, err error) {
	tids, err := t.proc.numbers(s.PID)
	for _, tid := range tids {
		var st stat
		if t.proc.stat(s.PID, tid, &st) != nil {
			continue // it ended
		}
		if tid == s.PID {
			s.comm = st.comm
			s.PPID = st.ppid
			s.start = st.start
			s.kernel = st.flags&pfKthread != 0
		}
		if !st.alive() {
			continue
		}
		if s.comm == "" {
			s.comm = st.comm
		}
		if living == 0 {
			living = tid
		}
		t.name(s, tid, st.comm)
	}
	if err == nil {
		s.threadsIncomplete = false
	}
	return living, err
}

// readMaps merges the mappings that /proc shows into s, or replaces those of s by them. It reports
// how many there are, and whether anything is different now. living is a thread that still has the address
// space: a leader that has exited has none.
func (t *Table) readMaps(s *Space, living uint32, replace bool) (lines int, different bool, err error) {
	var fresh *layout
	old := s.layout
	if replace {
		fresh = &layout{refs: 1}
		s.layout = fresh
	}
	var before Map
	var name []byte // that before has, which maps reuses
	ahead := false  // of the records: the process executes something else by now
	lines, err = t.proc.maps(s.PID, living, func(m *Map) {
		if ahead = ahead || !replace && s.isAhead(m); ahead {
			return
		}
		if !replace && !s.doubted && s.hidesCode(m) {
			return
		}
		if replace || !s.holds(m) {
			moved := !replace && t.moved(s, m)
			different = t.insert(s, m, &before) || moved || different
		}
		name = append(name[:0], m.Name...)
		before = *m
		before.Name = name
	})
	s.denied = errors.Is(err, fs.ErrPermission)
	if replace {
		if err != nil || lines == 0 {
			s.layout.drop(&t.files)
			s.layout = old
			return lines, false, err
		}
		old.drop(&t.files)
		different = true
	}
	if different {
		s.changed()
	}
	return lines, different, err
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
	if s == nil || s.kernel || t.proc.texts == nil || t.tooSoon(s) {
		return false
	}
	return t.reload(s, false)
}

func (t *Table) tooSoon(s *Space) bool { return !s.reread.IsZero() && t.now().Before(s.reread) }

// Reread makes up for lost records: for a process that is doubted, it reads from /proc what they may have
// said, which is its mappings and the names of its threads, as rarely as Refresh does. It reports whether
// anything is different now. Mappings stay unless others are at their addresses now, as older samples may
// still come.
func (t *Table) Reread(pid uint32) (different bool) {
	s := t.spaces[pid]
	if s == nil || !s.doubted || t.proc.texts == nil || t.tooSoon(s) {
		return false
	}
	defer func() { s.doubted = false }()
	var st stat
	if t.proc.stat(pid, pid, &st) != nil {
		return false // it has ended: what is known has to do
	}
	if s.start != 0 && s.start != st.start {
		t.remove(pid)
		next, _ := t.Seed(pid)
		return next != nil
	}
	name := s.comm
	if _, err := t.readThreads(s); err != nil || s.kernel {
		return false
	}
	s.Generated = nil
	return t.reload(s, false) || s.comm != name
}

// reload reads maps again and works out when it may be read next.
func (t *Table) reload(s *Space, replace bool) (different bool) {
	if t.proc.texts == nil {
		return false
	}
	begin, lines := t.now(), 0
	if living, ok := t.sameProcess(s); ok {
		lines, different, _ = t.readMaps(s, living, replace)
	}
	end := t.now()
	if different {
		s.backoff = 0
	} else {
		s.backoff = min(max(2*s.backoff, minBackoff), maxBackoff)
	}
	s.credit = min(s.credit+begin.Sub(s.credited)/rereadShare, mostReread) - charge(end.Sub(begin), lines)
	s.credited = begin
	s.reread = end.Add(max(s.backoff, -s.credit*rereadShare))
	return different
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
