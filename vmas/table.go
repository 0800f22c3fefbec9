package vmas

import (
	"time"

	"unspool/vmas/credit"
	"unspool/vmas/process"
)

// Table holds the address spaces of all processes, by PID. It is not safe for concurrent use.
type Table struct {
	spaces map[uint32]*Space
	// The spaces in the order in which they were added, but that those that are used are moved to the end when it
	// is their turn to be forgotten.
	oldest, youngest *Space

	threads   int // of all spaces
	files     files
	ended     ended
	seq       uint32
	born      uint64 // address spaces so far
	maxWeight int    // of files
	forgotten Forgotten

	// Room reports whether the rings have room for the records that are written while a sampled process is read; while
	// they have none, SeedNow and SeedSome leave the rest of a large process for later. Nil stands for always.
	Room func() bool
	// Look is called before what was read from /proc is used: the caller looks at the records that have been written
	// meanwhile, and calls ToCome and MappingToCome. It may be nil.
	Look func()
	// IdleTexts reads processes for which no sample waits, in SeedSome; nil means that the reader of all others does.
	IdleTexts process.Texts

	unread         unreads
	toCome         map[uint32]uint64 // by PID: see ToCome
	mappingsToCome map[uint32][]Mapping
	losses         uint64              // so far
	accounts       map[uint32]*account // by user
	all            credit.Credit
	part           uint32 // see Restate

	proc proc
	now  func() time.Time
}

// NewTable returns an empty table that reads procRoot ("/proc") when asked to. With an empty
// procRoot it never does: for records from a file.
func NewTable(procRoot string) *Table {
	if procRoot == "" {
		return NewTableOf(nil, nil)
	}
	return NewTableOf(process.Direct(procRoot), nil)
}

// NewTableOf is NewTable for processes that are read by texts, or not at all if that is nil. forget, if not
// nil, is called with each File that no process maps any more and that has left the small store of files kept
// for the next process. It has to close the Image.
func NewTableOf(texts process.Texts, forget func(*File)) *Table {
	return &Table{
		spaces:         make(map[uint32]*Space),
		files:          files{byKey: make(map[fileKey]*File), forget: forget},
		ended:          ended{state: make(map[uint32]end)},
		maxWeight:      maxWeight,
		unread:         unreads{of: make(map[uint32]*unread)},
		toCome:         make(map[uint32]uint64),
		mappingsToCome: make(map[uint32][]Mapping),
		accounts:       make(map[uint32]*account),
		all:            credit.New(allShare, mostAllCredit),
		part:           1,
		proc:           proc{texts: texts},
		now:            time.Now,
	}
}

// noPID is how the kernel and perf say "no process": -1 in the records of kernel mappings.
const noPID = ^uint32(0)

// isProcess reports whether a PID is that of one process. The PID 0 is that of the idle tasks, and, in the
// records of a profiler in a PID namespace, of all tasks outside of it.
func isProcess(pid uint32) bool { return pid != 0 && pid != noPID }

// Space returns the address space of a process, nil when the PID is not known.
func (t *Table) Space(pid uint32) *Space {
	s := t.spaces[pid]
	if s != nil {
		s.used = true
	}
	return s
}

// Close forgets all processes, and calls forget for all files.
func (t *Table) Close() {
	for pid := range t.spaces {
		t.remove(pid)
	}
	t.files.close()
}

// Len returns the number of processes known.
func (t *Table) Len() int { return len(t.spaces) }

// Spaces calls yield for each process known, in no particular order, until it returns false.
func (t *Table) Spaces(yield func(*Space) bool) {
	for _, s := range t.spaces {
		if !yield(s) {
			return
		}
	}
}

// Map is what an MMAP or MMAP2 record says. For an MMAP record, which has no protection, Prot is ProtExec unless
// PERF_RECORD_MISC_MMAP_DATA is set.
type Map struct {
	Addr, Len uint64 // in the process, in bytes
	Offset    uint64 // in the file, of Addr, in bytes
	Prot      uint32 // ProtRead, …
	Flags     uint32 // FlagShared or FlagPrivate, …
	Name      []byte // as the kernel gave it; the caller's, and not used after the call
	ID        FileID
	Time      uint64 // of the record, in ns of its clock; 0 where unknown
}

// Mmap applies an MMAP or MMAP2 record. It returns the new mapping, valid until the table
// changes, or nil when the record made none: memory that is not executable, an empty or
// overflowing range, a kernel mapping, a process that has ended.
//
// A record of a process that is not known makes one, to be completed by Refresh.
func (t *Table) Mmap(pid uint32, m Map) *Mapping {
	if !isProcess(pid) || m.Len == 0 || m.Addr+m.Len < m.Addr {
		return nil
	}
	s := t.spaces[pid]
	if s == nil {
		if t.ended.exited(pid) {
			return nil
		}
		s = t.add(pid)
		s.threadsIncomplete = true
	}
	s.kernel = false
	if t.insert(s, &m, &Map{}) {
		s.changed()
	}
	if s.layout.n > s.limit {
		t.trim(s)
	}
	if m.Prot&ProtExec == 0 {
		return nil
	}
	return s.Find(m.Addr)
}

// insert puts a mapping into a space and reports whether that made a difference to the mappings.
// before is the line before it in maps, empty for a record.
func (t *Table) insert(s *Space, m, before *Map) bool {
	end := m.Addr + m.Len
	if m.Prot&ProtExec == 0 {
		if covered := s.layout.search(m.Addr); covered == nil || covered.Start >= end {
			return false // it removes nothing: this is so for most of them
		}
	}
	t.seq++
	nm := Mapping{
		Start: m.Addr, End: end, Offset: m.Offset, Prot: m.Prot, Flags: m.Flags, Time: m.Time, seq: t.seq,
	}
	if m.Prot&ProtExec != 0 {
		if t.files.weight > t.maxWeight {
			t.thin()
		}
		nm.File = t.files.intern(m.Name, m.ID, m.Addr, m.Len)
		nm.Copied = t.copied(s, m, before)
	}
	s.layout = s.layout.unshared()
	s.layout.insert(&t.files, nm)
	return true
}

const (
	// minLimit is the number of mappings below which a space is never suspected to hold stale ones.
	minLimit = 4096
	// maxLimit is the most a space may hold: twice what any process is known to have, so that stale ones are looked
	// for once for as many new ones. The kernel's usual vm.max_map_count is 65,530, and that of some distributions a
	// million, of which few are executable.
	maxLimit = 1 << 18
)

// trim drops stale mappings and, if the mappings are still too many, the older half.
func (t *Table) trim(s *Space) {
	t.dropStale(s)
	if s.layout.n >= maxLimit {
		s.layout = s.layout.unshared()
		s.layout.keepYoungest(&t.files, t.seq)
		s.changed()
	}
	s.limit = min(max(minLimit, 2*s.layout.n), maxLimit)
}

// Expect returns the File of a mapping that Mmap will be called with later, so that it can be opened before.
func (t *Table) Expect(m Map) *File {
	f := t.files.intern(m.Name, m.ID, m.Addr, m.Len)
	if f.refs == 0 && !f.queued {
		f.refs++
		t.files.drop(f) // into the store of files that no process maps
	}
	return f
}

// Fork applies a FORK record: tid of process pid was made by ptid of process ppid. With pid equal
// to ppid it is a thread. Otherwise it is a process with a copy of its parent's mappings, which replaces
// a process that had its PID before. (The child of a vfork shares its parent's memory instead; it is
// treated the same, as it execs or exits before its parent goes on.)
func (t *Table) Fork(pid, tid, ppid, ptid uint32) {
	if !isProcess(pid) || !isProcess(tid) {
		return
	}
	parent := t.Space(ppid)
	if pid == ppid {
		if parent == nil {
			parent = t.add(pid)
			parent.threadsIncomplete = true
		}
		if _, ok := parent.threads.get(tid); !ok {
			t.name(parent, tid, parent.Comm(ptid))
		}
		return
	}
	t.remove(pid)
	if t.IsUnread(ppid) {
		parent, _ = t.SeedNow(ppid)
	}
	s := t.add(pid)
	s.PPID, s.forked = ppid, true
	if t.IsUnread(ppid) {
		t.unread.of[pid] = &unread{pid: pid, state: left, child: true}
	}
	if parent == nil {
		t.name(s, tid, "")
		return
	}
	s.comm = parent.Comm(ptid)
	t.name(s, tid, s.comm)
	s.kernel = parent.kernel
	s.denied = parent.denied
	s.uid, s.owned = parent.uid, parent.owned
	s.told = parent.told
	s.layout = parent.layout
	s.layout.refs++
	s.limit = parent.limit
}

// Exit applies an EXIT record of one thread. With the last thread, whether it is the leader or not, the
// address space ends.
func (t *Table) Exit(pid, tid uint32) {
	if !isProcess(pid) {
		return
	}
	s := t.spaces[pid]
	if s == nil {
		if !t.IsUnread(pid) { // it may have more threads
			t.ended.add(pid, endExit)
		}
		return
	}
	t.unname(s, tid)
	if s.threads.len() > 0 {
		return
	}
	if s.lacksThreads() && t.othersRun(s, tid) {
		return
	}
	t.remove(pid)
	t.ended.add(pid, endExit)
}

// othersRun reports whether a process whose thread list was never complete has other threads than
// tid.
func (t *Table) othersRun(s *Space, tid uint32) bool {
	if t.proc.texts == nil {
		return tid != s.PID
	}
	t.proc.reserve()
	if found, _ := t.listThreads(s, mostNames); !found {
		return false
	}
	t.unname(s, tid) // /proc may show it until it is gone
	return s.threads.len() > 0 || s.lacksThreads()
}

// Comm applies a COMM record: thread tid of process pid is now called comm, which need not outlive
// the call. With exec, the process starts again without mappings and other threads, since an exec
// ends those and gives the thread the leader's TID.
func (t *Table) Comm(pid, tid uint32, comm []byte, exec bool) {
	if !isProcess(pid) || !isProcess(tid) {
		return
	}
	s := t.spaces[pid]
	if !exec {
		// A name alone does not make a space: seeding reads it.
		if s == nil {
			return
		}
		c := boundComm(comm)
		t.name(s, tid, c)
		if tid == pid {
			s.comm = c
		}
		return
	}
	if s == nil {
		s = t.add(pid)
	}
	s.comm = boundComm(comm)
	t.unnameAll(s)
	t.name(s, tid, s.comm)
	s.hasThreads()
	s.kernel = false
	s.denied = false
	s.forked = false
	s.owned = false
	s.told = t.part
	s.Generated = nil
	t.isRead(pid)
	s.layout.drop(&t.files)
	s.layout = &layout{refs: 1}
	s.limit = minLimit
	s.backoff, s.reread = 0, time.Time{}
	t.born++
	s.id = t.born
	s.changed()
}

// Lost notes that records were lost, whose content is not known. A PID that is remembered as ended may be
// in use again. A process may have mapped other files than are known, or may be another process: it is
// doubted until it is read again.
func (t *Table) Lost() {
	t.ended.clear()
	clear(t.toCome)
	t.losses++
}

// IsTold reports whether the reader of the recording can know all that the table knows of a process: from records, as a
// copy of its parent, or since Tell was called.
func (t *Table) IsTold(s *Space) bool { return s.told == t.part }

// Tell notes that the caller has written all that is known of a process into the recording. IsTold is true then, until
// more of the process is read from /proc.
func (t *Table) Tell(s *Space) { s.told = t.part }

// Restate begins a new recording, whose reader knows no process yet: IsTold is false for all.
func (t *Table) Restate() { t.part++ }

// add makes an empty space.
func (t *Table) add(pid uint32) *Space {
	for len(t.spaces) >= MaxSpaces {
		t.forgetOldest()
	}
	t.born++
	s := &Space{PID: pid, id: t.born, layout: &layout{refs: 1}, limit: minLimit,
		losses: &t.losses, readAt: t.losses, listedAt: t.losses, rereads: credit.New(rereadShare, mostReread)}
	t.spaces[pid] = s
	t.append(s)
	t.ended.remove(pid)
	return s
}

// remove frees a space, if there is one.
func (t *Table) remove(pid uint32) {
	t.isRead(pid)
	if s := t.spaces[pid]; s != nil {
		s.layout.drop(&t.files)
		s.layout = &layout{refs: 1} // for whoever still holds the space
		s.changed()
		t.unnameAll(s)
		t.unlink(s)
		delete(t.spaces, pid)
	}
}
