package capture

import (
	"errors"

	"unspool/capture/perfdata"
	"unspool/capture/replay"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// A Sink takes what an unwound recording consists of, in order. It copies what it keeps.
type Sink interface {
	// Write takes a record that is as it was recorded.
	Write(rec []byte) error
	// WriteSample takes a sample with its callchain. A sink that wants bytes takes those of
	// [perfdata.Walked.Records].
	WriteSample(w *perfdata.Walked) error
}

// A Session turns records with raw stacks into records with callchains.
type Session struct {
	Stats Stats

	format   *perfring.Format
	out      perfring.Format // of the records that are handed on
	sink     Sink
	table    *vmas.Table
	replay   *replay.Replay // into table
	images   *image.Store
	walker   *unwind.Unwinder
	trouble  *Trouble
	execve   execve
	pairs    bool          // each walk is followed by that along frame pointers
	lost     replay.Counts // as records tell
	limit    int           // of a callchain of the kernel's
	own      []uint64      // scratch: the user part of the kernel's chain
	buildIDs func(path string, id []byte)

	copied      copiedMappings
	interrupted interruptedStack

	writeErr error // of a synthesized record, due at the next one
	recorded bool  // the records come from a recording: every sample was wanted, and nothing is asked of /proc

	// Buffers of the sample in work.
	sample perfring.Sample
	regs   unwind.Regs
	regs32 unwind.Regs // of i386 code
	stack  unwind.Stack
	result unwind.Result
	walked perfdata.Walked
	pair   perfdata.Pair
	buf    []byte // of a record that was made up
}

// A Config says what a session works with.
type Config struct {
	Format *perfring.Format // of the records
	Sink   Sink

	// Proc is where processes are looked up that no record tells of, "/proc", or "" for records alone.
	Proc string
	// Offline says where the files of a recording are, whose processes are gone: every sample in it was
	// wanted, and its records stay as they are. Without it the files are those of processes that run here.
	Offline *image.Offline

	MaxStack int  // frames of a user stack
	Strict   bool // CFI only
	Pairs    bool // each walk is followed by that along frame pointers
	// Live says that samples come as they are taken: their stacks are in no near cache, and a thread can
	// still be asked for the stack that a signal handler has left.
	Live bool
	// Kernel says that samples are taken in the kernel that runs here.
	Kernel bool

	// BuildIDs, if set, is told of each file that a frame was in and whose build ID no record has: when
	// nobody maps it any more, and of the rest by [Session.TellBuildIDs].
	BuildIDs func(path string, id []byte)
}

// NewSession returns a session that knows of no process yet.
func NewSession(c Config) *Session {
	s := &Session{
		format:   c.Format,
		sink:     c.Sink,
		pairs:    c.Pairs,
		buildIDs: c.BuildIDs,
		out:      c.Format.Unwound(),
		table:    vmas.NewTable(c.Proc),
		images:   image.NewStore("/proc"),
		trouble:  newTrouble(),
		recorded: c.Offline != nil,
	}
	s.replay = replay.New(s.table)
	if s.recorded {
		s.images = image.NewOfflineStore(*c.Offline)
		s.replay = replay.NewRecorded(s.table)
	}
	s.images.Dropped = c.BuildIDs
	s.images.Failed = s.trouble.file
	s.images.Copied = s.copied.note
	s.table.Forget = s.images.Forget
	s.walker = unwind.NewUnwinder(s.images)
	s.walker.MaxFrames, s.walker.Strict, s.walker.Far = c.MaxStack, c.Strict, c.Live
	if c.Live {
		s.walker.Memory = s.interrupted.read
	}
	if c.Kernel {
		s.execve = readExecve()
	}
	return s
}

// Table holds the address spaces, which records keep up to date.
func (s *Session) Table() *vmas.Table { return s.table }

// Images holds the images of the files that are mapped.
func (s *Session) Images() *image.Store { return s.images }

// TellBuildIDs tells BuildIDs of the files that are mapped still.
func (s *Session) TellBuildIDs() {
	if s.buildIDs != nil {
		s.images.Sampled(s.buildIDs)
	}
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
	c, buildID, err := s.follow(rec, f)
	if err != nil {
		s.Stats.Malformed++
		return nil
	}
	s.lost.Add(c)
	s.Stats.Throttled = s.lost.Throttled
	rec = c.Record
	if buildID != nil && !s.recorded {
		s.buf = perfring.AppendIdentified(s.buf[:0], rec, buildID)
		rec = s.buf
	}
	return s.sink.Write(rec)
}

// follow brings the address spaces up to date with a record that is no sample, and opens the file that it
// maps while the process is there. buildID is that file's, as far as it is known.
func (s *Session) follow(rec perfring.Record, f *perfring.Format) (c *replay.Change, buildID []byte,
	err error) {
	if c, err = s.replay.Record(rec, f); err != nil {
		return nil, nil, err
	}
	if c.Mapping != nil {
		buildID = s.images.Open(c.PID, c.Mapping)
	}
	if name, addr := c.KernelSymbol(); name != "" && s.recorded {
		s.execve = execve{ref: name, refAddr: addr}
	}
	return c, buildID, nil
}

// Expect opens the file that a record maps, ahead of the record's turn: a short-lived process is gone by
// then, and so may its file be.
func (s *Session) Expect(rec perfring.Record) {
	if pid, m, ok := s.replay.Peek(rec, s.format); ok {
		s.images.Open(pid, &m)
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
	w := &s.walked
	w.Record, w.Format, w.Sample, w.Result, w.Pair = rec, f, sm, nil, nil
	var user []uint64
	switch {
	case sm.RegsABI == unix.PERF_SAMPLE_REGS_ABI_NONE, excluded(sm):
	case sm.DynSize > 0:
		if s.user(sm) {
			user, w.Result = s.result.IPs, &s.result
		}
	case s.execve.loading(sm):
		s.Stats.Exec++
	}
	w.Chain = unwind.Splice(w.Chain[:0], sm.Callchain.Len(), sm.Callchain.At, user)
	if s.pairs && w.Result != nil {
		w.Pair = s.pairOf(sm, w.Result)
	}
	err := s.sink.WriteSample(w)
	if errors.Is(err, perfring.ErrTooLarge) {
		s.Stats.Malformed++
		return nil
	}
	return err
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

// user unwinds the user stack of a sample into s.result and counts it, unless it is not the stack of the
// registers: then it returns false.
func (s *Session) user(sm *perfring.Sample) (ok bool) {
	s.result, ok = s.walk(sm)
	s.describeCopied()
	if !ok {
		s.Stats.Exec++
		return false
	}
	s.Stats.User++
	s.Stats.count(&s.result)
	if s.result.End != unwind.Root {
		s.trouble.ended(&s.result)
	}
	return true
}

// walk unwinds the user stack of a sample. ok is false when the task is
// executing a program and the stack is not that of the registers.
func (s *Session) walk(sm *perfring.Sample) (res unwind.Result, ok bool) {
	s.regs.SetPerf(rule.AMD64, sm.RegsMask, sm.Regs)
	if sm.CPUMode() == unix.PERF_RECORD_MISC_KERNEL {
		s.regs.DropUnsaved()
	}
	sp, _ := s.regs.Get(unwind.SP)
	s.stack = unwind.Stack{Base: sp, Data: sm.Stack, Asked: sm.StackSize, Thread: sm.TID}

	s.interrupted.sampled(sm.TID, &s.stack)

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
		s.regs32.SetPerf(rule.I386, sm.RegsMask, sm.Regs)
		return s.walker.UnwindByRows(rule.I386, space, &s.regs32, &s.stack)
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
	s.describeCopied()
	if !s.table.Refresh(pid) {
		return false
	}
	if space := s.table.Space(pid); space != nil {
		s.describe(space)
	}
	return true
}
