package syscap

import (
	"fmt"
	"unique"

	"golang.org/x/sys/unix"

	"unspool/perfring"
	"unspool/vmas"
	procfs "unspool/vmas/process"
)

// liveProcess is what was written about a process.
type liveProcess struct {
	comm   string
	parent uint32                // 0 where it is not known
	mounts unique.Handle[string] // its mountinfo, or that of the process that made it: most have the same
	shown  bool                  // PROCESS and its mountinfo were written
	mapped bool                  // its mappings were written, or come as records
	early  bool                  // it was sampled before the record of its beginning was written
}

// process returns what is known of a process.
func (l *Live) process(pid uint32) *liveProcess {
	p := l.processes[pid]
	if p == nil {
		p = &liveProcess{comm: fmt.Sprintf(":%d", pid), mounts: noMounts}
		l.processes[pid] = p
	}
	return p
}

// show writes the name of a process and, the first time, its mounts. If the process has ended already, they
// are those of the process that made it.
func (l *Live) show(h frameHeader, p *liveProcess) error {
	at := l.open(frameProcess, h)
	l.text(p.comm)
	if err := l.finish(at); err != nil || p.shown {
		return err
	}
	p.shown = true
	pid := uint32(h.pid)
	l.findMounts(pid, p)
	l.file(fmt.Sprintf("/proc/%d/mountinfo", pid), []byte(p.mounts.Value()))
	return l.out.err
}

var noMounts = unique.Make("")

// mostAncestors is how many processes are looked at that may have ended, too.
const mostAncestors = 16

// findMounts finds the mounts of a process: its own, or those of the nearest process that it comes from.
func (l *Live) findMounts(pid uint32, p *liveProcess) {
	from := p
	for range mostAncestors {
		if l.readMounts(pid, from) || from.mounts != noMounts || from.parent == 0 {
			break
		}
		pid = from.parent
		from = l.process(pid)
	}
	p.mounts = from.mounts
}

// readMounts reads the mounts of a process, and reports whether that was possible.
func (l *Live) readMounts(pid uint32, p *liveProcess) bool {
	if l.ended[pid] { // as most in a storm of short ones
		return false
	}
	own := l.read(pid, procfs.MountInfo)
	if len(own) > 0 && p.mounts.Value() != string(own) { // mostly they are those that its parent had
		p.mounts = unique.Make(string(own))
	}
	return len(own) > 0
}

// Describe tells of a process that no record has announced, or of which more is known now.
func (l *Live) Describe(space *vmas.Space) error {
	p := l.process(space.PID)
	if comm := space.Comm(space.PID); comm != "" && comm != p.comm || !p.shown {
		p.name(comm)
		if err := l.show(frameHeader{cpu: -1, pid: int32(space.PID), time: l.now()}, p); err != nil {
			return err
		}
	}
	return l.mappings(p, space)
}

func (p *liveProcess) name(comm string) {
	if comm != "" {
		p.comm = comm
	}
}

// mappings writes all mappings of a process.
func (l *Live) mappings(p *liveProcess, space *vmas.Space) error {
	p.mapped = true
	h := frameHeader{cpu: -1, pid: int32(space.PID), time: l.now()}
	for m := range space.Mappings() {
		name := m.File.Name()
		if name == "" {
			name = "//anon"
		}
		at := l.open(frameMap, h)
		l.frames.mapped(m.Start, m.End, m.Offset, m.File.Inode, name, m.File.BuildID.Bytes())
		if err := l.finish(at); err != nil {
			return err
		}
	}
	return nil
}

// Sampled describes a process whose sample will follow. The record of its beginning may still wait, too.
func (l *Live) Sampled(pid uint32, space *vmas.Space) error {
	if l.processes[pid] == nil {
		l.child(pid, space.PPID).early = true
	}
	return l.sampledProcess(pid, space)
}

// child notes a new process, which has the name and the mounts of its parent, if that is known.
func (l *Live) child(pid, ppid uint32) *liveProcess {
	p := &liveProcess{comm: fmt.Sprintf(":%d", pid), parent: ppid, mounts: noMounts}
	if parent := l.processes[ppid]; parent != nil {
		p.comm, p.mounts = parent.comm, parent.mounts
	}
	l.processes[pid] = p
	return p
}

// sampledProcess describes a process ahead of its sample, as far as nothing was written of it. The space may
// be nil.
func (l *Live) sampledProcess(pid uint32, space *vmas.Space) error {
	p := l.process(pid)
	if !p.shown {
		if space != nil {
			p.name(space.Comm(pid))
		}
		if err := l.show(frameHeader{cpu: -1, pid: int32(pid), time: l.now()}, p); err != nil {
			return err
		}
	}
	if p.mapped || space == nil || space.PID != pid {
		return nil
	}
	return l.mappings(p, space)
}

// task takes a record about a process.
func (l *Live) task(r perfring.Record, time uint64) error {
	h := frameHeader{cpu: -1, time: time}
	switch r.Type() {
	case perfring.RecordComm:
		var d perfring.Comm
		if perfring.DecodeComm(r, &d) == nil && d.PID == d.TID {
			p := l.process(d.PID)
			p.comm = string(d.Comm)
			p.mapped = p.mapped || d.Exec
			h.pid = int32(d.PID)
			return l.show(h, p)
		}
	case perfring.RecordMmap:
		var d perfring.Mmap
		if perfring.DecodeMmap(r, &d) == nil && d.Misc&unix.PERF_RECORD_MISC_MMAP_DATA == 0 {
			return l.mapping(h, &perfring.Mmap2{Misc: d.Misc, PID: d.PID, Addr: d.Addr, Len: d.Len, Offset: d.Offset,
				Path: d.Path})
		}
	case perfring.RecordMmap2:
		var d perfring.Mmap2
		if perfring.DecodeMmap2(r, &d) == nil && d.Prot&vmas.ProtExec != 0 {
			return l.mapping(h, &d)
		}
	case perfring.RecordFork:
		var d perfring.Task
		if perfring.DecodeTask(r, &d) == nil {
			return l.fork(h, &d)
		}
	case perfring.RecordExit:
		var d perfring.Task
		if perfring.DecodeTask(r, &d) == nil && d.PID == d.TID {
			h.pid, h.time = int32(d.PID), d.Time
			delete(l.ended, d.PID)
			return l.finish(l.open(frameExit, h))
		}
	}
	return l.out.err
}

// mapping writes a MAP frame. Mappings of the kernel belong to no process.
func (l *Live) mapping(h frameHeader, d *perfring.Mmap2) error {
	h.pid = int32(d.PID)
	if d.Misc&unix.PERF_RECORD_MISC_CPUMODE_MASK != unix.PERF_RECORD_MISC_KERNEL {
		if p := l.process(d.PID); !p.shown {
			if err := l.show(h, p); err != nil {
				return err
			}
		}
	}
	at := l.open(frameMap, h)
	l.mapped(d.Addr, d.Addr+d.Len, d.Offset, d.Inode, string(d.Path), d.BuildID)
	return l.finish(at)
}

// fork writes a FORK frame. A new process has the name and the mounts of its parent. What it maps is written
// when it is sampled: most processes execute another program first.
func (l *Live) fork(h frameHeader, d *perfring.Task) error {
	if known := l.processes[d.PID]; known != nil && known.early {
		known.early = false
	} else if d.PID != d.PPID {
		l.child(d.PID, d.PPID)
	}
	h.pid, h.time = int32(d.PPID), d.Time
	at := l.open(frameFork, h)
	l.buf = le.AppendUint32(l.buf, d.TID)
	return l.finish(at)
}

// Ended notes that a process cannot be read any more.
func (l *Live) Ended(pid uint32) { l.ended[pid] = true }

// Sweep forgets processes that have ended.
func (l *Live) Sweep(known func(pid uint32) bool) {
	clear(l.ended) // also of records that were lost
	for pid := range l.processes {
		if !known(pid) {
			delete(l.processes, pid)
		}
	}
}
