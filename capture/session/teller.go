package session

import (
	"unspool/capture/counts"
	"unspool/perfring"
	"unspool/unwind/image"
	"unspool/unwind/jit/jitdump"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// A teller writes what is known of processes and is in no record: records that the kernel would have written had
// the recording begun before it, and of what walks have found. Errors of the sink are kept: the session returns them
// with the next record.
type teller struct {
	sink     Sink
	listener ProcessSink           // is told of processes instead; nil for none
	format   perfring.SampleFormat // of the records that are handed on
	stats    *counts.Stats

	now    uint64                 // time of the sample at hand, or of the last one
	told   int                    // bytes of records, since restate
	partly map[uint64]*partlyTold // by address space, large ones of which something was told since then
	parts  int                    // how much was told of them
	copied copiedMappings
	err    error
	buf    []byte
}

func newTeller(records *perfring.SampleFormat, sink Sink, stats *counts.Stats) teller {
	return teller{sink: sink, format: records.Unwound(), stats: stats, partly: make(map[uint64]*partlyTold)}
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
func (t *teller) forgetParts() {
	clear(t.partly)
	t.parts = 0
}

// tellPart writes the names of a large process and of the sampled thread, and the mappings that the sample is in.
func (t *teller) tellPart(w *work) {
	space := w.space
	if t.parts >= maxParts {
		t.forgetParts()
	}
	p := t.partly[space.ID()]
	if p == nil {
		if len(t.partly) >= maxPartly {
			t.forgetParts()
		}
		p = &partlyTold{make(map[uint32]bool), make(map[uint64]vmas.Mapping)}
		t.partly[space.ID()] = p
		for m := range space.Mappings() {
			if jitdump.IsName(m.File.Path) { // the names of generated code are in it
				t.describeMapping(space.PID, m)
			}
		}
	}
	for _, tid := range [2]uint32{space.PID, w.sample.TID} {
		if !p.tids[tid] {
			p.tids[tid] = true
			t.parts++
			t.describeThread(space.PID, vmas.Thread{TID: tid, Comm: space.Comm(tid)})
		}
	}
	t.tellMapping(space, p, w.sample.IP)
	for i, ip := range w.Chain {
		if ip == perfring.ContextUser {
			for _, ip := range w.Chain[i+1:] {
				t.tellMapping(space, p, ip)
				t.tellMapping(space, p, ip-1) // a call may be at the end of its mapping
			}
			return
		}
	}
}

// tellMapping writes the mapping that an address is in, unless that was done.
func (t *teller) tellMapping(space *vmas.Space, p *partlyTold, addr uint64) {
	m := space.Find(addr)
	if m == nil {
		return
	}
	if told, ok := p.mappings[m.Start]; !ok || told.File != m.File || told.End != m.End || told.Offset != m.Offset {
		if !ok {
			t.parts++
		}
		p.mappings[m.Start] = *m
		t.describeMapping(space.PID, m)
	}
}

// describe writes the names of the threads of a process and its mappings. Errors of the sink are returned
// with the next record.
func (t *teller) describe(space *vmas.Space) {
	if t.listener != nil {
		if err := t.listener.Describe(space); err != nil && t.err == nil {
			t.err = err
		}
		return
	}
	for _, thread := range space.Threads() {
		t.describeThread(space.PID, thread)
	}
	for m := range space.Mappings() {
		t.describeMapping(space.PID, m)
	}
}

// describeThread writes the name of a thread of a process.
func (t *teller) describeThread(pid uint32, of vmas.Thread) {
	id := perfring.SampleID{PID: pid, TID: of.TID, Time: t.now}
	c := perfring.Comm{PID: pid, TID: of.TID, Comm: []byte(of.Comm)}
	t.synthesize(perfring.AppendComm(t.buf[:0], &t.format, &c, &id))
}

// describeMapping writes a mapping of a process. A copy of a file's code is
// written as that file's, so that its functions have names.
func (t *teller) describeMapping(pid uint32, m *vmas.Mapping) {
	id := perfring.SampleID{PID: pid, TID: pid, Time: t.now}
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
	t.synthesize(perfring.AppendMmap2(t.buf[:0], &t.format, &r, &id))
}

// copiedMappings are the mappings that a walk found to hold a copy of a file's code.
type copiedMappings []copiedMapping

type copiedMapping struct {
	pid uint32
	vmas.Mapping
}

// note is for [image.Hooks].
func (c *copiedMappings) note(pid uint32, m *vmas.Mapping) { *c = append(*c, copiedMapping{pid, *m}) }

// describeCopied writes the copies that the last walk has found, ahead of its sample.
func (t *teller) describeCopied() {
	for i := range t.copied {
		t.describeMapping(t.copied[i].pid, &t.copied[i].Mapping)
	}
	t.copied = t.copied[:0]
}

// recordName is how the kernel names a mapping in records, where that
// differs from /proc/PID/maps.
func recordName(f *vmas.File) []byte {
	if f.Kind == vmas.Anonymous && f.Name() == "" {
		return []byte("//anon")
	}
	return []byte(f.Name())
}

// synthesize writes a record that was made up.
func (t *teller) synthesize(rec []byte, err error) {
	if err != nil {
		t.stats.Malformed++
		return
	}
	t.buf = rec
	t.told += len(rec)
	if err := t.sink.Write(rec); err != nil && t.err == nil {
		t.err = err
	}
}

// identified is the record of a mapping with the build ID of its file. It is valid until the next record.
func (t *teller) identified(rec perfring.Record, id []byte) perfring.Record {
	t.buf = perfring.AppendIdentified(t.buf[:0], rec, id)
	return t.buf
}

// lost writes a record of more that was lost.
func (t *teller) lost(more, id uint64) {
	l := perfring.Lost{ID: id, Lost: more}
	t.synthesize(perfring.AppendLost(t.buf[:0], &t.format, &l, &perfring.SampleID{ID: id, Time: t.now}))
}

// restate begins anew: nothing was told.
func (t *teller) restate() {
	t.forgetParts()
	t.told = 0
}
