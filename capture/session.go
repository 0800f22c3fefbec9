package capture

import (
	"unspool/perfring"
	"unspool/unwind"
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

	format   *perfring.Format
	out      perfring.Format // of the records that are handed on
	sink     Sink
	table    *vmas.Table
	images   *unwind.Images
	walker   *unwind.Unwinder
	trouble  *Trouble
	execve   execve
	told     uint64 // how many were lost, as records tell
	writeErr error  // of a synthesized record, due at the next one

	// Buffers of the sample in work.
	sample perfring.Sample
	regs   unwind.Regs
	regs32 unwind.Regs386
	stack  unwind.Stack
	chain  []uint64
	buf    []byte
}

// NewSession returns a session for records of the given format, with the
// address spaces of table. Only CFI is used when strict is set; a walk ends
// after maxStack frames.
func NewSession(format *perfring.Format, table *vmas.Table, images *unwind.Images, sink Sink, maxStack int, strict bool) *Session {
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
// error is the sink's: a record that cannot be decoded is counted and, if it
// is no sample, handed on as it is.
func (s *Session) Record(rec perfring.Record) error {
	if s.writeErr != nil {
		return s.writeErr
	}
	switch rec.Type() {
	case perfring.RecordSample:
		return s.unwind(rec)
	case perfring.RecordMmap:
		s.mmap(rec)
	case perfring.RecordMmap2:
		s.mmap2(rec)
	case perfring.RecordComm:
		var c perfring.Comm
		if s.decoded(perfring.DecodeComm(rec, &c)) {
			s.table.Comm(c.PID, c.TID, c.Comm, c.Exec)
		}
	case perfring.RecordFork:
		var t perfring.Task
		if s.decoded(perfring.DecodeTask(rec, &t)) {
			s.table.Fork(t.PID, t.TID, t.PPID, t.PTID)
		}
	case perfring.RecordExit:
		var t perfring.Task
		if s.decoded(perfring.DecodeTask(rec, &t)) {
			s.table.Exit(t.PID, t.TID)
		}
	case perfring.RecordLost:
		var l perfring.Lost
		if s.decoded(perfring.DecodeLost(rec, &l)) {
			s.told += l.Lost
		}
		s.table.Lost()
	case perfring.RecordLostSamples:
		var l perfring.LostSamples
		if s.decoded(perfring.DecodeLostSamples(rec, &l)) {
			s.told += l.Lost
		}
	case perfring.RecordThrottle:
		s.Stats.Throttled++
	}
	return s.sink.Write(rec)
}

func (s *Session) decoded(err error) bool {
	if err != nil {
		s.Stats.Malformed++
	}
	return err == nil
}

func (s *Session) mmap(rec perfring.Record) {
	var m perfring.Mmap
	if !s.decoded(perfring.DecodeMmap(rec, &m)) || kernelMapping(m.Misc) {
		return
	}
	prot := uint32(vmas.ProtExec)
	if m.Misc&unix.PERF_RECORD_MISC_MMAP_DATA != 0 {
		prot = 0
	}
	s.mapped(m.PID, vmas.Map{Addr: m.Addr, Len: m.Len, Offset: m.Offset, Prot: prot, Name: m.Path})
}

func (s *Session) mmap2(rec perfring.Record) {
	var m perfring.Mmap2
	if !s.decoded(perfring.DecodeMmap2(rec, &m)) || kernelMapping(m.Misc) {
		return
	}
	id := vmas.FileID{Major: m.Maj, Minor: m.Min, Inode: m.Inode, Generation: m.Generation}
	if len(m.BuildID) > 0 {
		id = vmas.FileID{BuildID: vmas.NewBuildID(m.BuildID)}
	}
	s.mapped(m.PID, vmas.Map{Addr: m.Addr, Len: m.Len, Offset: m.Offset, Prot: m.Prot, Flags: m.Flags, Name: m.Path, ID: id})
}

func kernelMapping(misc uint16) bool {
	return misc&unix.PERF_RECORD_MISC_CPUMODE_MASK == unix.PERF_RECORD_MISC_KERNEL
}

// mapped notes a mapping and opens its file while the process is there.
func (s *Session) mapped(pid uint32, m vmas.Map) {
	if mapping := s.table.Mmap(pid, m); mapping != nil {
		s.images.Open(pid, mapping)
	}
}

// unwind hands a sample on with its callchain completed and its registers
// and stack left out.
func (s *Session) unwind(rec perfring.Record) error {
	sm := &s.sample
	if err := s.format.Sample(rec, sm); err != nil {
		// Nothing of it may be handed on: where its stack lies is unknown.
		s.Stats.Malformed++
		return nil
	}
	if excluded(sm) {
		return nil
	}
	s.Stats.Samples++
	s.Stats.StackCopied += sm.DynSize
	var user []uint64
	switch {
	case sm.RegsABI == unix.PERF_SAMPLE_REGS_ABI_NONE:
	case sm.DynSize > 0:
		user = s.user(sm)
	case s.execve.loading(sm):
		s.Stats.Exec++
	}
	s.chain = unwind.Splice(s.chain[:0], sm.Callchain.Len(), sm.Callchain.At, user)
	out, err := s.format.AppendUnwound(s.buf[:0], rec, sm, s.chain)
	if err != nil {
		s.Stats.Malformed++
		return nil
	}
	s.buf = out
	return s.sink.Write(out)
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
// stack of the registers.
func (s *Session) user(sm *perfring.Sample) []uint64 {
	res, ok := s.walk(sm)
	if !ok {
		s.Stats.Exec++
		return nil
	}
	s.Stats.User++
	s.Stats.count(&res)
	if res.End != unwind.Root {
		s.trouble.ended(&res)
	}
	return res.IPs
}

// walk unwinds the user stack of a sample. ok is false when the task is
// executing a program and the stack is not that of the registers.
func (s *Session) walk(sm *perfring.Sample) (res unwind.Result, ok bool) {
	s.regs.SetPerf(sm.RegsMask, sm.Regs.Len(), sm.Regs.At)
	if sm.CPUMode() == unix.PERF_RECORD_MISC_KERNEL {
		s.regs.DropUnsaved()
	}
	sp, _ := s.regs.Get(unwind.SP)
	s.stack = unwind.Stack{Base: sp, Data: sm.Stack, Asked: sm.StackSize}

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
	if space := s.table.Space(pid); space != nil {
		return space
	}
	space, _ := s.table.Seed(pid)
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
