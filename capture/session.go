package capture

import (
	"errors"
	"os"
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/unwind/link"
	"unspool/unwind/rule"
	"unspool/vmas"
	"unspool/vmas/process"

	"golang.org/x/sys/unix"
)

// A Sink takes the records of an unwound recording, in order. It copies what it keeps.
type Sink interface {
	// Write takes a record, unchanged or made up by the session.
	Write(rec []byte) error
	// WriteSample takes a sample with its callchain. [perfdata.Walked.Records] gives it as bytes.
	WriteSample(w *perfdata.Walked) error
}

// A Session turns records with raw stacks into records with callchains.
type Session struct {
	Stats Stats

	format     *perfring.Format
	out        perfring.Format // of the records that are handed on
	sink       Sink
	table      *vmas.Table
	replay     *replay.Replay // into table
	images     *image.Store
	walker     *unwind.Unwinder
	trouble    *Trouble
	execve     execve
	openKernel func(path string) (*os.File, error)
	pairs      bool          // each walk is followed by that along frame pointers
	lost       replay.Counts // what was lost, as records tell
	limit      int           // how many entries a callchain of the kernel has at most
	own        []uint64      // scratch: the user part of the kernel's chain
	buildIDs   func(name string, id []byte)
	teller     ProcessSink // the sink, if it is one
	cpu        func() int
	processes  process.Access
	open       bool        // the sink completes and counts open stacks
	joiner     *joiner     // that sink, if it is the session's own
	gaps       *gaps       // nil where no process is there to be read
	rest       *restReader // nil where stacks are not read when they are sampled
	generators *generators // nil where nobody is told of generated code

	met    *vmas.Space            // that of the process of the current sample, nil if it is not known
	told   int                    // bytes of records that say what was known of processes, since Restate
	partly map[uint64]*partlyTold // by address space, large ones of which something was told since then
	parts  int                    // how much was told of them

	commandLines *commandLines // nil where none are recorded

	copied copiedMappings

	writeErr error // of a synthesized record, returned with the next record
	recorded bool  // the records come from a recording: no sample is left out, and /proc is not used

	// Buffers of the current sample.
	sample perfring.Sample
	regs   unwind.Regs
	regs32 unwind.Regs // of i386 code
	stack  unwind.Stack
	result unwind.Result
	walked perfdata.Walked
	pair   perfdata.Pair
	buf    []byte // of a record that was made up
}

// A Config has the settings of a session.
type Config struct {
	Format *perfring.Format // of the records
	Sink   Sink

	// Proc is "/proc" if processes that no record tells of are looked up there, or "" if only records are
	// used.
	Proc string
	// Processes is how processes are read; nil reads them directly.
	Processes process.Access
	// Offline, if set, says that the records come from a recording, and where its files are: its processes
	// are gone, no sample is left out, and records are not changed. Otherwise the files are those of
	// processes that run here.
	Offline *image.Offline
	// OpenKernel opens the list of the running kernel's symbols for a recording that was made on it; nil for
	// os.Open.
	OpenKernel func(path string) (*os.File, error)

	MaxStack int  // frames of a user stack
	Strict   bool // CFI only
	Pairs    bool // each walk is followed by that along frame pointers
	// Join completes stacks that the copy has cut off with the callers that are seen before and after the
	// sample. Such samples, and all that follow, reach the sink later, at the latest with [Session.Flush].
	Join bool
	// JoinAfter is how long such samples wait.
	JoinAfter time.Duration
	// Unordered means that only such samples reach the sink later, and what follows does not wait for them.
	Unordered bool
	// Open means that the sink completes such stacks, and counts them.
	Open bool
	// Live means that samples come from a running recording: their stacks are not in this CPU's caches, the
	// stack that a signal handler has left can be read from the thread, and a file is waited for only as long
	// as the rings have room.
	Live bool
	// Room reports whether the rings of a running recording have much room; nil if that is not known.
	Room func() bool
	// SomeRoom reports whether they have any that can be waited for.
	SomeRoom func() bool
	// Waits is called every few milliseconds while a running recording waits for a file. Of the session, it may
	// call Glance only. It may be nil.
	Waits func()
	// Stop, when it is closed, ends all waiting for files; it may be nil.
	Stop <-chan struct{}
	// OfSamples reports whether the record at hand is from a ring for samples alone; nil if that is not known.
	OfSamples func() bool
	// Kernel means that samples are also taken in the kernel, and in the one that runs here.
	Kernel bool

	// CPU, if set, is the CPU that the record at hand is from, -1 where that is not known: for samples that do
	// not say it.
	CPU func() int

	// CommandLines means that those of sampled processes are read and handed on, without secrets.
	CommandLines bool

	// Generated means that it is counted which processes have generated code, and KeepMaps that their perf maps are kept.
	Generated, KeepMaps bool
	// KeepFiles is how many bytes of files that no process maps any more are kept, for [image.Store.Files].
	KeepFiles int64
	// BuildIDs, if set, is called for each file that a frame was in and whose build ID no record has: when no
	// process maps it any more, and for the others by [Session.TellBuildIDs]. id is nil for a file that has
	// none, or that could not be read.
	BuildIDs func(name string, id []byte)
}

// NewSession returns a session that knows no process yet.
func NewSession(c Config) *Session {
	trouble := newTrouble()
	if c.Processes == nil {
		c.Processes = process.Direct("/proc")
		if c.Live {
			c.Processes = newImpatient(c.Processes, trouble.unread)
		}
	}
	var seeds process.Texts
	if c.Proc != "" {
		seeds = c.Processes
	}
	s := &Session{
		format:    c.Format,
		sink:      c.Sink,
		pairs:     c.Pairs,
		buildIDs:  c.BuildIDs,
		cpu:       c.CPU,
		processes: c.Processes,
		out:       c.Format.Unwound(),
		trouble:   trouble,
		recorded:  c.Offline != nil,

		openKernel: c.OpenKernel,
		partly:     make(map[uint64]*partlyTold),
	}
	s.teller, _ = c.Sink.(ProcessSink)
	listener := image.Listener{Failed: s.trouble.file, Dropped: c.BuildIDs, Copied: s.copied.note}
	if c.BuildIDs != nil {
		listener.Unidentified = func(path string) { c.BuildIDs(path, nil) }
	}
	s.images = image.New(image.Config{
		Processes: c.Processes, Offline: c.Offline, Hurried: c.Live, Room: c.Room,
		SomeRoom: c.SomeRoom, Waits: c.Waits, Stop: c.Stop,
		KeepFiles: c.KeepFiles, Listener: listener,
	})
	s.table = vmas.NewTableOf(seeds, s.images.Forget)
	s.table.Room, s.table.Look = c.SomeRoom, c.Waits
	if p, ok := c.Processes.(interface{ Patient() process.Texts }); ok {
		s.table.Patient = p.Patient()
	}
	if c.CommandLines {
		texts := s.table.Patient
		if texts == nil {
			texts = c.Processes
		}
		s.commandLines = newCommandLines(texts, c.SomeRoom, s.commandLine)
	}
	s.replay = replay.New(s.table)
	if s.recorded {
		s.replay = replay.NewRecorded(s.table)
	}
	s.replay.OfSamples = c.OfSamples
	if s.open = c.Open || c.Join; c.Join {
		s.joiner = newJoiner(c.Sink, &s.Stats, s.trouble, c.MaxStack, c.JoinAfter)
		s.joiner.unordered = c.Unordered
		s.sink = s.joiner
	}
	if c.Live && c.Join {
		s.gaps = newGaps(c.Processes)
	}
	if c.Generated {
		s.generators = newGenerators(c.Processes, c.KeepMaps)
	}
	s.walker = unwind.NewUnwinder(s.images)
	s.walker.MaxFrames, s.walker.Strict, s.walker.Prefetch = c.MaxStack, c.Strict, c.Live
	if s.openKernel == nil {
		s.openKernel = os.Open
	}
	if c.Kernel {
		s.execve = openExecve()
	}
	return s
}

// Format is that of the records.
func (s *Session) Format() *perfring.Format { return s.format }

// Table returns the address spaces, which follow the records.
func (s *Session) Table() *vmas.Table { return s.table }

// Images returns the images of the mapped files.
func (s *Session) Images() *image.Store { return s.images }

// Close closes all files of the session, which cannot be used any more. A process that ends need not call it.
func (s *Session) Close() {
	s.table.Close()
	s.images.ForgetKept()
}

// TellBuildIDs calls Config.BuildIDs for the files that are still mapped.
func (s *Session) TellBuildIDs() {
	if s.buildIDs != nil {
		s.images.Sampled(s.buildIDs)
	}
}

// Trouble returns where stacks ended before their root.
func (s *Session) Trouble() *Trouble { return s.trouble }

// Record takes the next record. Records must come in order of time. The error is the sink's: a record that
// cannot be decoded is counted and not handed on, as its contents are unknown.
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

// follow applies a record that is no sample to the address spaces, and starts to open the file that it maps
// while the process exists; files of a recording are opened when they are sampled. buildID is that of the
// file, nil if it is not known.
func (s *Session) follow(rec perfring.Record, f *perfring.Format) (c *replay.Change, buildID []byte,
	err error) {
	if c, err = s.replay.Record(rec, f); err != nil {
		return nil, nil, err
	}
	s.commandLines.follow(c, rec, f)
	if c.Mapping != nil && !s.recorded {
		s.images.Open(c.PID, c.Mapping)
		buildID = s.images.BuildID(c.PID, c.Mapping)
	}
	if s.generators != nil && (c.Kind == replay.Exit && c.PID == c.TID || c.Kind == replay.Comm && c.Exec) {
		s.generators.over(c.PID)
	}
	if name, addr := c.KernelSymbol(); name != "" && s.recorded {
		s.execve = execve{ref: name, refAddr: addr, open: s.openKernel}
	}
	return c, buildID, nil
}

// Expect starts to open the file that a record maps, before the record is taken: by then a short-lived
// process may be gone, and so may its file. It reports whether the file is being opened: most are known.
func (s *Session) Expect(rec perfring.Record) (opens bool) {
	s.commandLines.expect(rec, s.format)
	if s.teller != nil && rec.Type() == perfring.RecordExit {
		var d perfring.Task
		if perfring.DecodeTask(rec, &d) == nil && d.PID == d.TID {
			s.teller.Ended(d.PID)
		}
		return false
	}
	pid, m, ok := s.replay.Peek(rec, s.format)
	if !ok {
		return false
	}
	s.images.Open(pid, &m)
	return s.images.Opens(m.File)
}

// Glance is Expect for a record that comes while another one is still being taken, which waits for a file. It
// begins to open files that are not known, and leaves everything else to Expect.
func (s *Session) Glance(rec perfring.Record) {
	if pid, m, ok := s.replay.Peek(rec, s.format); ok {
		s.images.Ahead(pid, &m)
	}
}

// sawGaps reports whether copies of stacks have ended at pages that were never touched, and that are to be read
// now, since it was last asked: the same happens to other threads, until such pages of their stacks are read.
func (s *Session) sawGaps() bool {
	if s.gaps == nil {
		return false
	}
	saw := s.gaps.isNew
	s.gaps.isNew = false
	if s.rest != nil {
		saw = saw || s.rest.newWishes
		s.rest.newWishes = false
	}
	return saw
}

// unwind hands a sample on with its callchain completed and its registers
// and stack left out.
func (s *Session) unwind(rec perfring.Record, f *perfring.Format) error {
	sm := &s.sample
	if err := f.Sample(rec, sm); err != nil || sm.Len() != len(rec) {
		// Nothing of it may be handed on: where its stack is in it is unknown.
		s.Stats.Malformed++
		return nil
	}
	if s.cpu != nil {
		sm.CPU = uint32(s.cpu())
	}
	exclusion := exclusionOf(sm)
	if !s.recorded && exclusion != included {
		s.Stats.Excluded[exclusion]++
		return nil
	}
	s.Stats.Samples++
	s.met = s.space(sm.PID)
	s.commandLines.sample(sm)
	if !f.HasUser() {
		s.tell(sm, nil)
		return s.sink.Write(rec)
	}
	s.Stats.StackCopied += sm.DynSize
	w := &s.walked
	w.Record, w.Format, w.Sample = rec, f, sm
	w.Result, w.Space, w.SpaceID, w.Pair, w.Links = nil, nil, 0, nil, link.NotSought
	var user []uint64
	switch {
	case !f.HasStack(), sm.RegsABI == unix.PERF_SAMPLE_REGS_ABI_NONE, exclusion == guest:
	case s.user(w):
		user = s.result.IPs
	}
	w.Chain = unwind.Splice(w.Chain[:0], sm.Callchain.Len(), sm.Callchain.At, user)
	if s.pairs && w.Result != nil {
		w.Pair = s.pairOf(sm, w.Result)
	}
	s.tell(sm, w.Chain)
	if s.teller != nil && w.Space != nil {
		if err := s.teller.Sampled(sm.PID, w.Space); err != nil {
			return err
		}
	}
	err := s.sink.WriteSample(w)
	if errors.Is(err, perfring.ErrTooLarge) {
		s.Stats.Malformed++
		return nil
	}
	return err
}

// user unwinds the user stack of a sample into s.result, the result of w, and counts it. It returns false if
// the stack does not belong to the registers.
func (s *Session) user(w *perfdata.Walked) (ok bool) {
	sm := w.Sample
	s.result, ok = s.walk(sm)
	s.describeCopied()
	if !ok {
		return false
	}
	s.Stats.User++
	w.Result, w.Space, w.Place = &s.result, s.table.Space(sm.PID), ""
	if w.Space != nil {
		w.SpaceID = w.Space.ID()
	}
	if s.generators != nil && w.Space != nil {
		s.generators.sampled(w.Space, sm, &s.result)
	}
	if s.rest != nil {
		w.Links = s.rest.walked(sm, w.SpaceID, &s.stack, &s.result, s.walker)
	}
	if s.result.End != unwind.Root {
		w.Place = s.endPlace(sm.PID)
	}
	if !s.open || !isOpen(w) || s.rest.completes(w.SpaceID) {
		if w.Links.IsJoined() {
			s.Stats.Links[w.Links]++
		}
		s.result.Open = 0 // nothing completes it any more
		s.result.Conclude()
		s.Stats.count(sm, &s.result, w.Links.IsJoined())
		s.trouble.ended(s.result.End, w.Place)
	}
	if s.gaps != nil && s.result.End == unwind.DumpTooShort && sm.DynSize < sm.StackSize {
		sp := s.stack.Base
		gap := stackGap{pid: sm.PID, start: sp + sm.DynSize, end: sp + sm.StackSize, sp: sp}
		s.gaps.note(gap, sm.Time)
	}
	return true
}

// endPlace is the path of the file in which the last walk ended, as in [Place].
func (s *Session) endPlace(pid uint32) (path string) {
	if at := s.result.At; at != nil {
		return codePath(at)
	}
	space := s.table.Space(pid)
	switch {
	case space != nil && space.Denied():
		path = deniedPlace
		s.Stats.Denied++
	case pid == 0:
		path = outsidePlace
	}
	return path
}

// Settle hands on the samples that need not wait any more for later ones, given that all records up to a time
// have been taken.
func (s *Session) Settle(time uint64) error {
	s.commandLines.settle(time - min(time, perfring.Slack))
	s.ReadCommandLines()
	if s.joiner == nil {
		return s.writeErr
	}
	if s.rest != nil {
		if s.rest.hangs(time) {
			s.trouble.unread(errRestHangs)
		}
		if err := s.rest.settle(); err != nil {
			return err
		}
	}
	return s.joiner.settle(time)
}

// Flush hands on all samples that wait, as no more will come.
func (s *Session) Flush() error {
	if s.joiner == nil {
		return nil
	}
	return s.joiner.flush()
}

// walk unwinds the user stack of a sample. The copy is empty if SP is on a page that was never touched: the
// kernel does not fault it in. ok is false if the task is inside execve and the stack does not belong to the
// registers.
func (s *Session) walk(sm *perfring.Sample) (res unwind.Result, ok bool) {
	s.regs.SetPerf(rule.AMD64, sm.RegsMask, sm.Regs)
	if sm.CPUMode() == unix.PERF_RECORD_MISC_KERNEL {
		s.regs.DropUnsaved()
	}
	sp, _ := s.regs.Get(unwind.SP)
	s.stack = unwind.Stack{Base: sp, Data: sm.Stack, Asked: sm.StackSize, Wished: s.stack.Wished[:0]}
	s.rest.add(sm, &s.stack)
	if sm.DynSize > 0 {
		s.stack.Thread = sm.TID // an empty copy has nothing to compare with the last walk
	}

	s.images.Walks(sm.PID)

	space := s.met
	if space == nil {
		res = s.walker.SampledOnly(&s.regs, unwind.Unmapped)
	} else {
		res = s.walkIn(space, sm)
	}
	// This comes before /proc is read, which may show the next program.
	if s.isReplaced(sm, space, &res) {
		s.Stats.Exec++
		return res, false
	}
	if sm.DynSize == 0 && s.execve.unseen(sm) {
		return res, false
	}
	if space == nil {
		return res, true
	}
	if s.doubtful(sm, &res) && s.refresh(sm.PID) {
		res = s.walkIn(space, sm)
	}
	return res, true
}

// isReplaced reports whether the memory of a sample is not, or may not be, what its registers belong to, because
// the task is inside execve.
func (s *Session) isReplaced(sm *perfring.Sample, space *vmas.Space, res *unwind.Result) bool {
	isOther := sm.DynSize == 0 || !isStack(res)
	mayBeParents := space != nil && space.Forked()
	if !isOther && !mayBeParents {
		return false
	}
	loading, replacing := s.execve.loading(sm)
	return isOther && loading || mayBeParents && replacing
}

// walkIn unwinds the user stack of a sample whose registers are in s.regs.
//
// The ABI is the mode that the processor was in, 32-bit for i386 code. It is 64-bit for x32 programs too,
// which use 64-bit registers and 32-bit pointers; they have no walk of their own.
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

// space is the address space of a process. It is read from /proc if no record told of the process, and read
// again if records about it may have been lost.
func (s *Session) space(pid uint32) *vmas.Space {
	space := s.table.Space(pid)
	switch {
	case s.recorded:
		return space
	case space == nil && pid == 0:
		return nil // the idle task, or outside of the PID namespace
	case space == nil || s.table.IsUnread(pid):
		space, _ = s.table.SeedNow(pid)
	case space.Doubted() && s.table.Reread(pid):
		space = s.table.Space(pid)
	}
	if s.table.IsUnread(pid) {
		s.Stats.Early++
	}
	return space
}

// refresh reads the mappings of a process again, but not too often, and reports whether they have changed.
func (s *Session) refresh(pid uint32) bool {
	s.describeCopied()
	return s.table.Refresh(pid)
}
