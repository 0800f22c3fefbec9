package capture

import (
	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind/image"
	"unspool/unwind/jit/jitdump"
	"unspool/vmas"

	"golang.org/x/sys/unix"
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
		if s.teller != nil && !space.IsLarge() {
			s.table.Tell(space)
			s.describe(space)
		}
	})
	return s.writeErr
}

// Seed reads the address spaces of processes.
func (s *Session) Seed(pids []int) error {
	if err := s.SeedLater(pids); err != nil {
		return err
	}
	return s.SeedSome(func() bool { return true })
}

// tell writes what is known of the process of a sample and is in no record, ahead of that sample.
func (s *Session) tell(sm *perfring.Sample, chain []uint64) {
	if s.met == nil || s.recorded || s.table.IsTold(s.met) {
		return
	}
	if s.met.IsLarge() {
		s.tellPart(sm, chain)
		return
	}
	s.table.Tell(s.met)
	s.describe(s.met)
}

// partlyTold is what was told of a process with very many mappings or threads: that which its samples are in.
type partlyTold struct {
	tids     map[uint32]bool
	mappings map[uint64]vmas.Mapping // by address
}

// maxPartly bounds the processes of which a part was told, and maxParts the threads and mappings of all of them. All is
// told again when there are more: processes may map code at other addresses all the time.
const (
	maxPartly = 256
	maxParts  = 1 << 17
)

// forgetParts notes that nothing counts as told of large processes.
func (s *Session) forgetParts() {
	clear(s.partly)
	s.parts = 0
}

// tellPart writes the names of a large process and of the sampled thread, and the mappings that the sample is in.
func (s *Session) tellPart(sm *perfring.Sample, chain []uint64) {
	space := s.met
	if s.parts >= maxParts {
		s.forgetParts()
	}
	p := s.partly[space.ID()]
	if p == nil {
		if len(s.partly) >= maxPartly {
			s.forgetParts()
		}
		p = &partlyTold{make(map[uint32]bool), make(map[uint64]vmas.Mapping)}
		s.partly[space.ID()] = p
		for m := range space.Mappings() {
			if jitdump.IsName(m.File.Path) { // the names of generated code are in it
				s.describeMapping(space.PID, m)
			}
		}
	}
	for _, tid := range [2]uint32{space.PID, sm.TID} {
		if !p.tids[tid] {
			p.tids[tid] = true
			s.parts++
			s.describeThread(space.PID, vmas.Thread{TID: tid, Comm: space.Comm(tid)})
		}
	}
	s.tellMapping(p, sm.IP)
	for i, ip := range chain {
		if ip == perfring.ContextUser {
			for _, ip := range chain[i+1:] {
				s.tellMapping(p, ip)
				s.tellMapping(p, ip-1) // a call may be at the end of its mapping
			}
			return
		}
	}
}

func (s *Session) tellMapping(p *partlyTold, addr uint64) {
	m := s.met.Find(addr)
	if m == nil {
		return
	}
	if told, ok := p.mappings[m.Start]; !ok || told.File != m.File || told.End != m.End || told.Offset != m.Offset {
		if !ok {
			s.parts++
		}
		p.mappings[m.Start] = *m
		s.describeMapping(s.met.PID, m)
	}
}

// describe writes the names of the threads of a process and its mappings. Errors of the sink are returned
// with the next record.
func (s *Session) describe(space *vmas.Space) {
	if s.teller != nil {
		if err := s.teller.Describe(space); err != nil && s.writeErr == nil {
			s.writeErr = err
		}
		return
	}
	for _, t := range space.Threads() {
		s.describeThread(space.PID, t)
	}
	for m := range space.Mappings() {
		s.describeMapping(space.PID, m)
	}
}

// describeThread writes the name of a thread of a process.
func (s *Session) describeThread(pid uint32, t vmas.Thread) {
	id := perfring.SampleID{PID: pid, TID: t.TID, Time: s.sample.Time}
	c := perfring.Comm{PID: pid, TID: t.TID, Comm: []byte(t.Comm)}
	s.synthesize(perfring.AppendComm(s.buf[:0], &s.out, &c, &id))
}

// describeMapping writes a mapping of a process. A copy of a file's code is
// written as that file's, so that its functions have names.
func (s *Session) describeMapping(pid uint32, m *vmas.Mapping) {
	id := perfring.SampleID{PID: pid, TID: pid, Time: s.sample.Time}
	f, start, end, offset := m.File, m.Start, m.End, m.Offset
	buildID := f.BuildID.Bytes()
	if c := m.Copied; c != nil && c.Same {
		f, start, end, offset = c.File, c.Start, c.End, c.Offset
		if im, ok := f.Image.(*image.Image); ok {
			buildID = im.BuildID
		}
	}
	r := perfring.Mmap2{
		Misc: unix.PERF_RECORD_MISC_USER,
		PID:  pid, TID: pid,
		Addr: start, Len: end - start, Offset: offset,
		Maj: f.Major, Min: f.Minor, Inode: f.Inode, Generation: f.Generation,
		BuildID: buildID,
		Prot:    m.Prot, Flags: m.Flags,
		Path: recordName(f),
	}
	s.synthesize(perfring.AppendMmap2(s.buf[:0], &s.out, &r, &id))
}

// ReadCommandLines reads command lines of processes that were executed or sampled, for a while.
func (s *Session) ReadCommandLines() { s.commandLines.readSome() }

// ReadLastCommandLines reads those of the sampled processes again: the records of what has happened so far are still to
// be taken.
func (s *Session) ReadLastCommandLines() { s.commandLines.reread() }

// EndCommandLines writes what was read and not written yet, when all records were taken, and counts.
func (s *Session) EndCommandLines() error {
	if c := s.commandLines; c != nil {
		c.finish()
		s.Stats.CommandLines = CommandLines{Kept: c.kept, Unread: c.unread, LeftOut: c.leftOut}
	}
	return s.writeErr
}

// commandLine writes a command line.
func (s *Session) commandLine(c *perfdata.CommandLine) {
	s.synthesize(perfdata.AppendCommandLine(s.buf[:0], c), nil)
}

// copiedMappings are the mappings that a walk found to hold a copy of a file's code.
type copiedMappings []copiedMapping

type copiedMapping struct {
	pid uint32
	vmas.Mapping
}

// note is for [image.Listener].
func (c *copiedMappings) note(pid uint32, m *vmas.Mapping) { *c = append(*c, copiedMapping{pid, *m}) }

// describeCopied writes the copies that the last walk has found, ahead of its sample.
func (s *Session) describeCopied() {
	for i := range s.copied {
		s.describeMapping(s.copied[i].pid, &s.copied[i].Mapping)
	}
	s.copied = s.copied[:0]
}

// recordName is how the kernel names a mapping in records, where that
// differs from /proc/PID/maps.
func recordName(f *vmas.File) []byte {
	if f.Kind == vmas.Anonymous && f.Name() == "" {
		return []byte("//anon")
	}
	return []byte(f.Name())
}

func (s *Session) synthesize(rec []byte, err error) {
	if err != nil {
		s.Stats.Malformed++
		return
	}
	s.buf = rec
	s.told += len(rec)
	if err := s.sink.Write(rec); err != nil && s.writeErr == nil {
		s.writeErr = err
	}
}

// Lost writes a record of what was lost after the last LOST record, as the kernel had no room for one. total
// is all that was lost, id that of an event.
func (s *Session) Lost(total, id uint64) error {
	if told := s.lost.Lost(); total > told {
		l := perfring.Lost{ID: id, Lost: total - told}
		s.synthesize(perfring.AppendLost(s.buf[:0], &s.out, &l, &perfring.SampleID{ID: id, Time: s.sample.Time}))
		s.lost.Records += l.Lost
	}
	return s.writeErr
}

// Sweep forgets processes whose EXIT was lost.
func (s *Session) Sweep() {
	s.table.Sweep()
	s.commandLines.sweep(func(pid uint32) bool { return s.table.Space(pid) != nil })
	if s.teller != nil {
		s.teller.Sweep(func(pid uint32) bool { return s.table.Space(pid) != nil })
	}
}
