package capture

import (
	"unspool/perfring"
	"unspool/unwind/image"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// Seed reads the address spaces of all processes, or of the given ones, from
// /proc, and writes the records that the kernel would have written had the
// recording begun before them. The events must be open already.
func (s *Session) Seed(pids []int) error {
	found := func(space *vmas.Space, _ error) { s.describe(space) }
	if pids == nil {
		if err := s.table.SeedAll(found); err != nil {
			return err
		}
		return s.writeErr
	}
	for _, pid := range pids {
		// A process that is gone, or may not be looked at, is no reason to
		// record nothing: its samples will say what they lack.
		if space, err := s.table.Seed(uint32(pid)); space != nil {
			found(space, err)
		}
	}
	return s.writeErr
}

// Running lists the processes that run.
func (s *Session) Running() (pids []uint32, err error) { return s.processes.Numbers(0) }

// describe writes the names of the threads of a process and its mappings. Errors of the sink are returned
// with the next record.
func (s *Session) describe(space *vmas.Space) {
	if s.teller != nil {
		if err := s.teller.Describe(space); err != nil && s.writeErr == nil {
			s.writeErr = err
		}
		return
	}
	id := perfring.SampleID{PID: space.PID, TID: space.PID, Time: s.sample.Time}
	for _, t := range space.Threads() {
		id.TID = t.TID
		c := perfring.Comm{PID: space.PID, TID: t.TID, Comm: []byte(t.Comm)}
		s.synthesize(perfring.AppendComm(s.buf[:0], &s.out, &c, &id))
	}
	for m := range space.Mappings() {
		s.describeMapping(space.PID, m)
	}
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
	if s.teller != nil {
		s.teller.Sweep(func(pid uint32) bool { return s.table.Space(pid) != nil })
	}
}
