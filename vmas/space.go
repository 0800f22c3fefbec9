package vmas

import (
	"cmp"
	"slices"
	"time"
)

// Space is the address space of one process: its executable mappings and the names of its threads. A Space
// belongs to its Table and is valid until the process ends or its PID is taken by another.
type Space struct {
	PID  uint32
	PPID uint32 // the process that made it, 0 where unknown

	// Generated is for the unwinder to use: what it knows of the code that the
	// process has generated. Nil at first and after an exec. This package only
	// clears it.
	Generated any

	layout *layout
	last   int    // index of the mapping found last
	gen    uint32 // counts changes of the mappings

	threads map[uint32]string
	comm    string // the process's name, for threads that are not in the list
	start   uint64 // start time in clock ticks after boot, 0 where unknown
	kernel  bool   // has no address space and never had one
	// threadsIncomplete: there may be threads that no record told of
	threadsIncomplete bool
	missing           bool // the last sweep did not find it

	reread  time.Time     // not before then
	backoff time.Duration // after re-reads that brought nothing
	fresh   bool          // nothing changed since the last re-read
	limit   int           // number of mappings at which stale ones are looked for
}

// Thread is a thread and its name.
type Thread struct {
	TID  uint32
	Comm string
}

// Find returns the executable mapping that addr lies in, nil when there is none. It does not
// allocate. The mapping is valid until the table changes.
func (s *Space) Find(addr uint64) *Mapping {
	maps := s.layout.maps
	if i := s.last; i < len(maps) && maps[i].Start <= addr && addr < maps[i].End {
		return &maps[i]
	}
	i := s.layout.search(addr)
	if i == len(maps) || addr < maps[i].Start {
		return nil
	}
	s.last = i
	return &maps[i]
}

// Mappings returns the executable mappings in order of address. The slice belongs to the space:
// it must not be written to, and is valid until the table changes.
func (s *Space) Mappings() []Mapping { return s.layout.maps }

// Generation changes whenever the mappings change.
func (s *Space) Generation() uint32 { return s.gen }

// Kernel reports whether this is a kernel thread, which has no mappings.
func (s *Space) Kernel() bool { return s.kernel }

// Comm returns the name of a thread, or of the process where the thread is not known.
func (s *Space) Comm(tid uint32) string {
	if c, ok := s.threads[tid]; ok {
		return c
	}
	return s.comm
}

// Threads returns the living threads that are known, in order of TID.
func (s *Space) Threads() []Thread {
	ts := make([]Thread, 0, len(s.threads))
	for tid, comm := range s.threads {
		ts = append(ts, Thread{tid, comm})
	}
	slices.SortFunc(ts, func(a, b Thread) int { return cmp.Compare(a.TID, b.TID) })
	return ts
}

// changed notes that the mappings are not what they were.
func (s *Space) changed() {
	s.gen++
	s.last = 0
	s.fresh = false
}

// taskCommLen is TASK_COMM_LEN less its NUL.
const taskCommLen = 15

// boundComm makes a string of a thread name, cut at its NUL and at the length that the kernel
// allows.
func boundComm(b []byte) string {
	for i, c := range b {
		if c == 0 || i == taskCommLen {
			b = b[:i]
			break
		}
	}
	return string(b)
}
