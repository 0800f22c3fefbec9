package vmas

import "time"

// Table holds the address spaces of all processes, by PID. It is not safe for concurrent use.
type Table struct {
	// Forget, if set, is called with each File that no process maps any more and that has left the
	// small store of files kept for the next process. The Image is the callee's to close.
	Forget func(*File)

	spaces map[uint32]*Space
	files  files
	ended  ended
	seq    uint32
	proc   proc
	now    func() time.Time
}

// NewTable returns an empty table that reads procRoot ("/proc") when asked to. With an empty
// procRoot it never does: for records from a file.
func NewTable(procRoot string) *Table {
	t := &Table{
		spaces: make(map[uint32]*Space),
		files:  files{byKey: make(map[fileKey]*File)},
		ended:  ended{state: make(map[uint32]end)},
		proc:   proc{root: procRoot},
		now:    time.Now,
	}
	t.files.forget = func(f *File) {
		if t.Forget != nil {
			t.Forget(f)
		}
	}
	return t
}

// noPID is how the kernel and perf say "no process": -1 in the records of kernel mappings.
const noPID = ^uint32(0)

// Space returns the address space of a process, nil when the PID is not known.
func (t *Table) Space(pid uint32) *Space { return t.spaces[pid] }

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

// Map is what an MMAP or MMAP2 record says. Name need not outlive the call. For an MMAP record,
// which has no protection, Prot is ProtExec unless PERF_RECORD_MISC_MMAP_DATA is set.
type Map struct {
	Addr, Len, Offset uint64
	Prot, Flags       uint32
	Name              []byte
	ID                FileID
}

// Mmap applies an MMAP or MMAP2 record. It returns the new mapping, valid until the table
// changes, or nil when the record made none: memory that is not executable, an empty or
// overflowing range, a kernel mapping, a process that has ended.
//
// A record of a process that is not known makes one, to be completed by Refresh.
func (t *Table) Mmap(pid uint32, m Map) *Mapping {
	if pid == noPID || m.Len == 0 || m.Addr+m.Len < m.Addr {
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
	if len(s.layout.maps) > s.limit {
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
		if i := s.layout.search(m.Addr); i == len(s.layout.maps) || s.layout.maps[i].Start >= end {
			return false // takes nothing away: most of them
		}
	}
	t.seq++
	nm := Mapping{
		Start: m.Addr, End: end, Offset: m.Offset, Prot: m.Prot, Flags: m.Flags, seq: t.seq,
	}
	if m.Prot&ProtExec != 0 {
		nm.File = t.files.intern(m.Name, m.ID, m.Addr, m.Len)
		nm.Copied = t.copied(s, m, before)
	}
	s.layout = s.layout.own(&t.files)
	s.layout.insert(&t.files, nm)
	return true
}

const (
	// minLimit is the number of mappings below which a space is never suspected to hold stale ones.
	minLimit = 4096
	// maxLimit is the most a space may hold: twice the kernel's usual vm.max_map_count, of which
	// few are executable.
	maxLimit = 1 << 17
)

// trim gets rid of stale mappings: by reading the process's maps again, or, where it is gone, by
// age.
func (t *Table) trim(s *Space) {
	t.reload(s, true)
	if len(s.layout.maps) >= maxLimit {
		s.layout = s.layout.own(&t.files)
		s.layout.keepYoungest(&t.files, t.seq)
		s.changed()
	}
	s.limit = min(max(minLimit, 2*len(s.layout.maps)), maxLimit)
}

// Expect returns the File of a mapping that Mmap will be told of: it can be opened ahead of that.
func (t *Table) Expect(m Map) *File {
	f := t.files.intern(m.Name, m.ID, m.Addr, m.Len)
	if f.refs == 0 && !f.queued {
		f.refs++
		t.files.drop(f) // into the store of files that no process maps
	}
	return f
}

// Fork applies a FORK record: tid of process pid was made by ptid of process ppid. With pid equal
// to ppid it is a thread. Otherwise it is a process with a copy of its parent's mappings, in the
// place of any that had its PID before. (The child of a vfork shares its parent's memory instead;
// it is treated the same, as it execs or exits before its parent goes on.)
func (t *Table) Fork(pid, tid, ppid, ptid uint32) {
	if pid == noPID || tid == noPID {
		return
	}
	parent := t.spaces[ppid]
	if pid == ppid {
		if parent == nil {
			parent = t.add(pid)
			parent.threadsIncomplete = true
		}
		if _, ok := parent.threads[tid]; !ok {
			parent.threads[tid] = parent.Comm(ptid)
		}
		return
	}
	t.remove(pid)
	s := t.add(pid)
	s.PPID = ppid
	if parent == nil {
		s.threads[tid] = ""
		return
	}
	s.comm = parent.Comm(ptid)
	s.threads[tid] = s.comm
	s.kernel = parent.kernel
	s.layout = parent.layout
	s.layout.refs++
	s.limit = parent.limit
}

// Exit applies an EXIT record of one thread. The last one takes the address space with it, the
// leader or not.
func (t *Table) Exit(pid, tid uint32) {
	if pid == noPID {
		return
	}
	s := t.spaces[pid]
	if s == nil {
		t.ended.add(pid, endExit)
		return
	}
	delete(s.threads, tid)
	if len(s.threads) > 0 {
		return
	}
	if s.threadsIncomplete && t.othersRun(s, tid) {
		return
	}
	t.remove(pid)
	t.ended.add(pid, endExit)
}

// othersRun reports whether a process whose thread list was never complete has threads left after
// tid.
func (t *Table) othersRun(s *Space, tid uint32) bool {
	if t.proc.root == "" {
		return tid != s.PID
	}
	if _, err := t.readThreads(s); err != nil {
		return false
	}
	delete(s.threads, tid) // /proc may show it to its very end
	return len(s.threads) > 0
}

// Comm applies a COMM record: thread tid of process pid is now called comm, which need not outlive
// the call. With exec, the process begins anew: no mapping, no other thread, since
// an exec ends them and takes over the leader's TID.
func (t *Table) Comm(pid, tid uint32, comm []byte, exec bool) {
	if pid == noPID || tid == noPID {
		return
	}
	s := t.spaces[pid]
	if !exec {
		// The name alone is no reason to know a process: seeding finds it.
		if s == nil {
			return
		}
		c := boundComm(comm)
		s.threads[tid] = c
		if tid == pid {
			s.comm = c
		}
		return
	}
	if s == nil {
		s = t.add(pid)
	}
	s.comm = boundComm(comm)
	clear(s.threads)
	s.threads[tid] = s.comm
	s.threadsIncomplete = false
	s.kernel = false
	s.Generated = nil
	s.layout.drop(&t.files)
	s.layout = &layout{refs: 1}
	s.limit = minLimit
	s.backoff, s.reread = 0, time.Time{}
	s.changed()
}

// Lost notes that records were lost, any of them: a PID that is remembered as ended may live again,
// and a process may have mapped more than is known, so Refresh may look again.
func (t *Table) Lost() {
	t.ended.clear()
	for _, s := range t.spaces {
		s.fresh = false
		s.threadsIncomplete = true
	}
}

// add makes an empty space.
func (t *Table) add(pid uint32) *Space {
	s := &Space{PID: pid, layout: &layout{refs: 1}, threads: make(map[uint32]string, 1), limit: minLimit}
	t.spaces[pid] = s
	t.ended.remove(pid)
	return s
}

// remove frees a space, if there is one.
func (t *Table) remove(pid uint32) {
	if s := t.spaces[pid]; s != nil {
		s.layout.drop(&t.files)
		s.layout = &layout{refs: 1} // for whoever still holds the space
		s.changed()
		delete(t.spaces, pid)
	}
}
