package vmas

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"unspool/vmas/credit"
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

	older, younger *Space // in the order of Table.oldest
	used           bool   // it was looked for since it was added, or since it was the oldest

	id     uint64 // see ID
	layout *layout
	last   *Mapping // the mapping found last
	gen    uint32   // counts changes of the mappings

	threads threads
	comm    string // the process's name, for threads that are not in the list
	start   uint64 // start time in clock ticks after boot, 0 where unknown
	kernel  bool   // a kernel thread: it has no address space and never had one
	forked  bool   // see Forked
	// threadsIncomplete: there may be threads that no record told of; see lacksThreads
	threadsIncomplete bool
	missing           bool // the last sweep did not find it
	denied            bool // its maps could not be read for want of permission

	losses   *uint64 // of all records, so far: see Table.Lost
	readAt   uint64  // how many there had been when the process was last read
	listedAt uint64  // the same for its threads

	told    uint32        // the part of the recording that has all that is known: see Table.Tell
	uid     uint32        // whose process it is, if it is owned
	owned   bool          // uid is known
	reread  time.Time     // the earliest time of the next re-read
	rereads credit.Credit // of time for re-reads
	backoff time.Duration // how long to wait after re-reads that found nothing new
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
	if m := s.last; m != nil && m.Start <= addr && addr < m.End {
		return m
	}
	m := s.layout.search(addr)
	if m == nil || addr < m.Start {
		return nil
	}
	s.last = m
	return m
}

// Mappings yields the executable mappings in order of address. They are valid until the table
// changes.
func (s *Space) Mappings() iter.Seq[*Mapping] { return s.layout.from(0) }

// Files yields the paths of the files that are mapped as code, in order of address, a file once for each of its
// mappings. It looks at the first 1,024 mappings only: enough to tell what kind of program it is.
func (s *Space) Files() iter.Seq[string] {
	return func(yield func(string) bool) {
		left := manyMappings
		for m := range s.Mappings() {
			if left--; left < 0 || m.File.Kind == Regular && !yield(m.File.Path) {
				return
			}
		}
	}
}

// Generation changes whenever the mappings change.
func (s *Space) Generation() uint32 { return s.gen }

// ID is a number that no other address space of the table has or had: a process that executes another program
// gets a new one.
func (s *Space) ID() uint64 { return s.id }

// Denied reports whether the mappings from before the first record of the process are unknown, as its maps
// in /proc may not be read: that takes the permissions of ptrace, which processes of other users do not give.
func (s *Space) Denied() bool { return s.denied }

// Doubted reports whether records were lost since the process was last read from /proc, any of which may
// have been about it: see [Table.Reread].
func (s *Space) Doubted() bool { return s.readAt != *s.losses }

// trust notes that the process was read since records were lost.
func (s *Space) trust() { s.readAt = *s.losses }

// lacksThreads reports whether there may be threads that no record told of.
func (s *Space) lacksThreads() bool { return s.threadsIncomplete || s.listedAt != *s.losses }

// hasThreads notes that all threads are known.
func (s *Space) hasThreads() { s.threadsIncomplete, s.listedAt = false, *s.losses }

// Kernel reports whether this is a kernel thread, which has no mappings.
func (s *Space) Kernel() bool { return s.kernel }

// Forked reports whether a record told that the process was forked, and none that it has executed a program
// since. Such a process may use the memory of its parent, as with vfork.
func (s *Space) Forked() bool { return s.forked }

// Comm returns the name of a thread, or of the process where the thread is not known.
func (s *Space) Comm(tid uint32) string {
	if c, ok := s.threads.get(tid); ok {
		return c
	}
	return s.comm
}

// Threads returns the living threads that are known, in order of TID.
func (s *Space) Threads() []Thread {
	ts := make([]Thread, 0, s.threads.len())
	for tid, comm := range s.threads.each() {
		ts = append(ts, Thread{tid, comm})
	}
	slices.SortFunc(ts, func(a, b Thread) int { return cmp.Compare(a.TID, b.TID) })
	return ts
}

// Len is how many executable mappings there are.
func (s *Space) Len() int { return s.layout.n }

// IsLarge reports whether there are so many mappings or threads that they are told one by one, as they are sampled.
func (s *Space) IsLarge() bool { return s.layout.n > manyMappings || s.threads.len() > manyMappings }

// manyMappings is what few processes have, as nearly all files are mapped as code once. To tell of as many takes some
// milliseconds.
const manyMappings = 1024

// changed notes that the mappings have changed.
func (s *Space) changed() {
	s.gen++
	s.last = nil
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
