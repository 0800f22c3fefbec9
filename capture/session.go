package capture

import (
	"strings"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// A Sink takes the records of an unwound recording, in order. It copies what
// it keeps.
type Sink interface {
	Write(rec []byte) error
}

// A Session turns records with raw stacks into records with callchains.
type Session struct {
	Stats Stats

	format  *perfring.Format
	out     perfring.Format // of the records that are handed on
	sink    Sink
	table   *vmas.Table
	images  *image.Store
	walker  *unwind.Unwinder
	trouble *Trouble
	execve  execve
	told    uint64   // how many were lost, as records tell
	pairs   bool     // each walk is followed by that along frame pointers
	limit   int      // of a callchain of the kernel's
	own     []uint64 // scratch: the user part of the kernel's chain
	reach   int      // of the last walk

	writeErr error // of a synthesized record, due at the next one
	recorded bool  // the records come from a recording: every sample was wanted, and nothing is asked of /proc

	// Buffers of the sample in work.
	sample  perfring.Sample
	mended  []byte
	buildID []byte // of the file that the record in hand maps, as far as it is known
	regs    unwind.Regs
	regs32  unwind.Regs386
	stack   unwind.Stack
	chain   []uint64
	buf     []byte
}

// NewSession returns a session for records of the given format, with the
// address spaces of table. Only CFI is used when strict is set; a walk ends
// after maxStack frames.
func NewSession(format *perfring.Format, table *vmas.Table, images *image.Store, sink Sink, maxStack int, strict bool) *Session {
	s := &Session{
		format:  format,
		out:     format.Unwound(),
		sink:    sink,
		table:   table,
		images:  images,
		walker:  unwind.NewUnwinder(images),
		trouble: newTrouble(),
	}
	s.walker.MaxFrames = maxStack
	s.walker.Strict = strict
	table.Forget = images.Forget
	images.Failed = s.trouble.file
	images.Copied = s.describeMapping
	return s
}

// Trouble tells where unwinding ended early.
func (s *Session) Trouble() *Trouble { return s.trouble }

// Record takes the next record. Records must come in order of time. The
// error is the sink's: a record that cannot be decoded is counted, and not
// handed on, as nobody knows what it holds.
func (s *Session) Record(rec perfring.Record) error { return s.RecordAs(rec, s.format) }

// RecordAs is Record for a record of an event that has a format of its own.
func (s *Session) RecordAs(rec perfring.Record, f *perfring.Format) error {
	if s.writeErr != nil {
		return s.writeErr
	}
	if rec.Type() == perfring.RecordSample {
		return s.unwind(rec, f)
	}
	rec = s.mend(rec, f)
	if s.buildID = nil; s.follow(rec) != nil || s.count(rec) != nil {
		s.Stats.Malformed++
		return nil
	}
	if s.buildID != nil && !s.recorded {
		s.buf = perfring.AppendIdentified(s.buf[:0], rec, s.buildID)
		rec = s.buf
	}
	return s.sink.Write(rec)
}

// mend returns rec as its event has it, valid until the next one is mended.
func (s *Session) mend(rec perfring.Record, f *perfring.Format) perfring.Record {
	m := f.Mend(rec, s.mended)
	if len(m) > 0 && &m[0] != &rec[0] {
		s.mended = m[:0]
	}
	return m
}

// follow brings the address spaces up to date with a record that is no sample.
func (s *Session) follow(rec perfring.Record) (err error) {
	switch rec.Type() {
	case perfring.RecordMmap:
		err = s.mmap(rec)
	case perfring.RecordMmap2:
		err = s.mmap2(rec)
	case perfring.RecordComm:
		var c perfring.Comm
		if err = perfring.DecodeComm(rec, &c); err == nil {
			s.table.Comm(c.PID, c.TID, c.Comm, c.Exec)
		}
	case perfring.RecordFork:
		var t perfring.Task
		if err = perfring.DecodeTask(rec, &t); err == nil {
			if rec.Misc()&unix.PERF_RECORD_MISC_FORK_EXEC != 0 && t.PID != t.PPID {
				// perf made it up for a process that ran already, and which
				// has nothing of its parent any more.
				t.PPID = unknownParent
			}
			s.table.Fork(t.PID, t.TID, t.PPID, t.PTID)
		}
	case perfring.RecordExit:
		var t perfring.Task
		if err = perfring.DecodeTask(rec, &t); err == nil {
			s.table.Exit(t.PID, t.TID)
		}
	case perfring.RecordLost:
		s.table.Lost()
	}
	return err
}

// unknownParent is no process's PID.
const unknownParent = ^uint32(0)

// count counts what a record says of others.
func (s *Session) count(rec perfring.Record) (err error) {
	switch rec.Type() {
	case perfring.RecordLost:
		var l perfring.Lost
		if err = perfring.DecodeLost(rec, &l); err == nil {
			s.told += l.Lost
		}
	case perfring.RecordLostSamples:
		var l perfring.LostSamples
		if err = perfring.DecodeLostSamples(rec, &l); err == nil {
			s.told += l.Lost
		}
	case perfring.RecordThrottle:
		s.Stats.Throttled++
	}
	return err
}

func (s *Session) mmap(rec perfring.Record) error {
	var m perfring.Mmap
	if err := perfring.DecodeMmap(rec, &m); err != nil {
		return err
	}
	if kernelMapping(m.Misc) {
		// Its name ends in that of a symbol, whose address the offset is (machine__mmap_name in tools/perf).
		if ref, ok := strings.CutPrefix(string(m.Path), "[kernel.kallsyms]"); ok && s.recorded {
			s.execve = execve{ref: ref, refAddr: m.Offset}
		}
		return nil
	}
	prot := uint32(vmas.ProtExec)
	if m.Misc&unix.PERF_RECORD_MISC_MMAP_DATA != 0 {
		prot = 0
	}
	s.mapped(m.PID, vmas.Map{Addr: m.Addr, Len: m.Len, Offset: m.Offset, Prot: prot, Name: m.Path})
	return nil
}

func (s *Session) mmap2(rec perfring.Record) error {
	var m perfring.Mmap2
	if err := perfring.DecodeMmap2(rec, &m); err != nil || kernelMapping(m.Misc) {
		return err
	}
	s.mapped(m.PID, mapOf(&m))
	return nil
}

// mapOf is what an MMAP2 record says. The name is the record's.
func mapOf(m *perfring.Mmap2) vmas.Map {
	id := vmas.FileID{Major: m.Maj, Minor: m.Min, Inode: m.Inode, Generation: m.Generation}
	if len(m.BuildID) > 0 {
		id = vmas.FileID{BuildID: vmas.NewBuildID(m.BuildID)}
	}
	return vmas.Map{Addr: m.Addr, Len: m.Len, Offset: m.Offset, Prot: m.Prot, Flags: m.Flags, Name: m.Path, ID: id}
}

// Expect opens the file that a record maps, ahead of the record's turn: a short-lived process is gone by then, and
// so may its file be.
func (s *Session) Expect(rec perfring.Record) {
	var m perfring.Mmap2
	if rec = s.mend(rec, s.format); perfring.DecodeMmap2(rec, &m) != nil || kernelMapping(m.Misc) || m.Prot&vmas.ProtExec == 0 {
		return
	}
	file := s.table.Expect(mapOf(&m))
	s.images.Open(m.PID, &vmas.Mapping{Start: m.Addr, End: m.Addr + m.Len, Offset: m.Offset, Prot: m.Prot, File: file})
}

func kernelMapping(misc uint16) bool {
	return misc&unix.PERF_RECORD_MISC_CPUMODE_MASK == unix.PERF_RECORD_MISC_KERNEL
}

// mapped notes a mapping and opens its file while the process is there.
func (s *Session) mapped(pid uint32, m vmas.Map) {
	if mapping := s.table.Mmap(pid, m); mapping != nil {
		s.buildID = s.images.Open(pid, mapping)
	}
}

// unwind hands a sample on with its callchain completed and its registers
// and stack left out.
func (s *Session) unwind(rec perfring.Record, f *perfring.Format) error {
	sm := &s.sample
	if err := f.Sample(rec, sm); err != nil || sm.Len() != len(rec) {
		// Nothing of it may be handed on: where its stack lies is unknown.
		s.Stats.Malformed++
		return nil
	}
	if !s.recorded && excluded(sm) {
		return nil
	}
	s.Stats.Samples++
	if !f.HasUser() {
		return s.sink.Write(rec)
	}
	s.Stats.StackCopied += sm.DynSize
	var user []uint64
	walked, end := false, unwind.Reason(0)
	switch {
	case sm.RegsABI == unix.PERF_SAMPLE_REGS_ABI_NONE, excluded(sm):
	case sm.DynSize > 0:
		user, end, walked = s.user(sm)
	case s.execve.loading(sm):
		s.Stats.Exec++
	}
	s.chain = unwind.Splice(s.chain[:0], sm.Callchain.Len(), sm.Callchain.At, user)
	out, err := f.AppendUnwound(s.buf[:0], rec, sm, s.chain)
	if err != nil {
		s.Stats.Malformed++
		return nil
	}
	s.buf = out
	if walked {
		perfdata.SetEnd(out, end)
	}
	if err := s.sink.Write(out); err != nil || !walked || !s.pairs {
		return err
	}
	return s.writePair(rec, f)
}

// excluded says whether a sample was taken in the idle task or in a guest.
// The events ask the kernel to leave these out; not every PMU can.
func excluded(sm *perfring.Sample) bool {
	switch sm.CPUMode() {
	case unix.PERF_RECORD_MISC_GUEST_KERNEL, unix.PERF_RECORD_MISC_GUEST_USER:
		return true
	}
	return sm.PID == 0 && sm.TID == 0
}

// user unwinds the user stack of a sample and counts it, unless it is not the
// stack of the registers: then it returns false.
func (s *Session) user(sm *perfring.Sample) (ips []uint64, end unwind.Reason, ok bool) {
	res, ok := s.walk(sm)
	if !ok {
		s.Stats.Exec++
		return nil, 0, false
	}
	s.Stats.User++
	s.Stats.count(&res)
	if res.End != unwind.Root {
		s.trouble.ended(&res)
	}
	if s.pairs {
		s.reach = reach(&res, &s.stack)
	}
	return res.IPs, res.End, true
}

// walk unwinds the user stack of a sample. ok is false when the task is
// executing a program and the stack is not that of the registers.
func (s *Session) walk(sm *perfring.Sample) (res unwind.Result, ok bool) {
	s.regs.SetPerf(sm.RegsMask, sm.Regs)
	if sm.CPUMode() == unix.PERF_RECORD_MISC_KERNEL {
		s.regs.DropUnsaved()
	}
	sp, _ := s.regs.Get(unwind.SP)
	s.stack = unwind.Stack{Base: sp, Data: sm.Stack, Asked: sm.StackSize, Thread: sm.TID}

	space := s.space(sm.PID)
	if space == nil {
		res = s.walker.SampledOnly(&s.regs, unwind.Unmapped)
	} else {
		res = s.walkIn(space, sm)
	}
	// Before /proc is asked: the program that it shows may be the next one.
	if !isStack(&res) && s.execve.loading(sm) {
		return res, false
	}
	if res.End == unwind.Unmapped && space != nil && s.refresh(sm.PID) {
		res = s.walkIn(space, sm)
	}
	return res, true
}

// walkIn unwinds the user stack of a sample whose registers are in s.regs.
//
// The ABI is the mode that the processor was in, 32-bit for i386 code. It is
// 64-bit for x32 programs too, which use 64-bit registers and 32-bit
// pointers; there is no walk of their own for these.
func (s *Session) walkIn(space *vmas.Space, sm *perfring.Sample) unwind.Result {
	switch sm.RegsABI {
	case unix.PERF_SAMPLE_REGS_ABI_64:
		res := s.walker.Unwind(space, &s.regs, &s.stack)
		return s.walker.Continue(space, &s.regs, &s.stack, res, sm.Callchain.Len(), sm.Callchain.At)
	case unix.PERF_SAMPLE_REGS_ABI_32:
		s.regs32.SetPerf(sm.RegsMask, sm.Regs.Len(), sm.Regs.At)
		return s.walker.Unwind386(space, &s.regs32, &s.stack)
	}
	return s.walker.SampledOnly(&s.regs, unwind.NoCFI)
}

// space is the address space of a process, seeded from /proc when no record
// told of it.
func (s *Session) space(pid uint32) *vmas.Space {
	space := s.table.Space(pid)
	if space != nil || s.recorded {
		return space
	}
	space, _ = s.table.Seed(pid)
	if space != nil {
		s.describe(space)
	}
	return space
}

// refresh reads the mappings of a process again, at most once until
// something changes, and says whether there is anything new.
func (s *Session) refresh(pid uint32) bool {
	if !s.table.Refresh(pid) {
		return false
	}
	if space := s.table.Space(pid); space != nil {
		s.describe(space)
	}
	return true
}
