package vmas

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// ErrEnded says that there is no such process any more, or only what is left of one that nobody has
// waited for.
var ErrEnded = errors.New("process has ended")

var errNoProc = errors.New("no proc file system")

// Seed reads a process from /proc: its threads that can still run, and its executable mappings.
// Call it when the process's events are open, or for a sample of
// a PID that Space does not know.
//
// A process that has ended yields ErrEnded, and is remembered, so that asking again costs nothing.
// Where maps cannot be read (ptrace's permissions decide), the space is there with its threads,
// without mappings, and comes with the error.
//
// A process that is known already keeps its mappings where /proc shows nothing else in their place.
func (t *Table) Seed(pid uint32) (*Space, error) {
	if t.proc.root == "" {
		return nil, fmt.Errorf("seed process %d: %w", pid, errNoProc)
	}
	if pid == 0 || pid == noPID || t.spaces[pid] == nil && t.ended.known(pid) {
		return nil, fmt.Errorf("seed process %d: %w", pid, ErrEnded)
	}
	s, known := t.spaces[pid], true
	if s == nil {
		s, known = t.add(pid), false
	}
	living, err := t.readThreads(s)
	if err == nil && len(s.threads) == 0 {
		err = ErrEnded
	}
	if err != nil {
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
	if _, err := t.readMaps(s, living, false); err != nil {
		if gone(err) && !known {
			// It ended between two readings. Its records, if there are any, follow.
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
	if t.proc.root == "" {
		return fmt.Errorf("seed all processes: %w", errNoProc)
	}
	var pids []uint32
	err := t.proc.numbers(t.proc.root, func(pid uint32, _ string) { pids = append(pids, pid) })
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

// readThreads brings the thread list of s up to date and returns one thread that lives. It adds
// what it learns and keeps what it knew: a thread whose EXIT is still to come may have left /proc
// already.
func (t *Table) readThreads(s *Space) (living uint32, err error) {
	err = t.proc.numbers(t.proc.path(s.PID, "task"), func(tid uint32, name string) {
		var st stat
		if t.proc.stat(s.PID, name, &st) != nil {
			return // it ended
		}
		if tid == s.PID {
			s.comm = st.comm
			s.PPID = st.ppid
			s.start = st.start
			s.kernel = st.flags&pfKthread != 0
		}
		if !st.alive() {
			return
		}
		if s.comm == "" {
			s.comm = st.comm
		}
		if living == 0 {
			living = tid
		}
		s.threads[tid] = st.comm
	})
	if err == nil {
		s.threadsIncomplete = false
	}
	return living, err
}

// readMaps merges what /proc shows of the mappings into s, or replaces what s has by it. It reports
// whether anything is different now. living names a thread that still has the address space: a
// leader that has exited has none.
func (t *Table) readMaps(s *Space, living uint32, replace bool) (different bool, err error) {
	var fresh *layout
	old := s.layout
	if replace {
		fresh = &layout{refs: 1}
		s.layout = fresh
	}
	var before Map
	var name []byte // that before has, which maps reuses
	lines, err := t.proc.maps(t.proc.path(s.PID, "task", strconv.FormatUint(uint64(living), 10), "maps"),
		func(m *Map) {
			if (replace || !s.holds(m)) && t.insert(s, m, &before) {
				different = true
			}
			name = append(name[:0], m.Name...)
			before = *m
			before.Name = name
		})
	if replace {
		if err != nil || lines == 0 {
			s.layout.drop(&t.files)
			s.layout = old
			return false, err
		}
		old.drop(&t.files)
		different = true
	}
	if different {
		s.changed()
	}
	return different, err
}

// holds reports whether m is in the space as it is, under whichever identity.
func (s *Space) holds(m *Map) bool {
	if m.Prot&ProtExec == 0 {
		return false
	}
	i, ok := slices.BinarySearchFunc(s.layout.maps, m.Addr, func(e Mapping, addr uint64) int {
		switch {
		case e.Start < addr:
			return -1
		case e.Start > addr:
			return 1
		}
		return 0
	})
	if !ok {
		return false
	}
	e := &s.layout.maps[i]
	if e.End != m.Addr+m.Len {
		return false
	}
	path, kind, _ := classify(string(m.Name))
	if e.File.Path != path {
		return false
	}
	// Memory without a file counts its offset from address 0 in records, and has none in maps.
	return e.Offset == m.Offset || kind == Anonymous || kind == Heap || kind == Stack
}

const (
	// rereadShare: after a re-read that took some time, the next one waits this many times as long.
	rereadShare = 50
	// Re-reads that bring nothing are made ever more rarely.
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// Refresh reads a process's mappings from /proc again, for a sample in no mapping. It reports
// whether they are different now, so that the address is worth looking up again.
//
// It reads at most once until a record changes the process's mappings, and then no more often than
// a fiftieth of the time allows; after readings that brought nothing, from 10 ms up to 1 s must
// pass. So code in memory that no record tells of does not turn every sample into a reading of
// maps.
func (t *Table) Refresh(pid uint32) bool {
	s := t.spaces[pid]
	if s == nil || s.kernel || s.fresh {
		return false
	}
	if !s.reread.IsZero() && t.now().Before(s.reread) {
		return false
	}
	return t.reload(s, false)
}

// reload reads maps again and works out when it may be read next.
func (t *Table) reload(s *Space, replace bool) (different bool) {
	if t.proc.root == "" {
		s.fresh = true
		return false
	}
	begin := t.now()
	if living, ok := t.sameProcess(s); ok {
		different, _ = t.readMaps(s, living, replace)
	}
	end := t.now()
	s.fresh = true
	if different {
		s.backoff = 0
	} else {
		s.backoff = min(max(2*s.backoff, minBackoff), maxBackoff)
	}
	s.reread = end.Add(max(s.backoff, rereadShare*end.Sub(begin)))
	return different
}

// sameProcess finds a living thread of the process that s is about, and makes sure that the PID has
// not gone to another one, of which records are still to come.
func (t *Table) sameProcess(s *Space) (living uint32, ok bool) {
	var st stat
	pid := strconv.FormatUint(uint64(s.PID), 10)
	if t.proc.stat(s.PID, pid, &st) != nil || s.start != 0 && s.start != st.start {
		return 0, false
	}
	s.start = st.start
	if st.alive() {
		return s.PID, true
	}
	for tid := range s.threads {
		if tid != s.PID && t.proc.stat(s.PID, strconv.FormatUint(uint64(tid), 10), &st) == nil && st.alive() {
			return tid, true
		}
	}
	return 0, false
}

// Sweep drops the processes that /proc has no more and whose EXIT was lost. It takes two sweeps to
// drop one, so that a process whose last samples are still in the ring stays: call it every few
// seconds at most. It returns how many it dropped.
func (t *Table) Sweep() (dropped int) {
	if t.proc.root == "" {
		return 0
	}
	present := make(map[uint32]struct{}, len(t.spaces))
	if t.proc.numbers(t.proc.root, func(pid uint32, _ string) { present[pid] = struct{}{} }) != nil {
		return 0
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
