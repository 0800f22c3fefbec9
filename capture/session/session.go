package session

import (
	"os"
	"time"

	"unspool/capture/counts"
	"unspool/capture/perfdata/replay"
	"unspool/capture/session/commandlines"
	"unspool/capture/session/generators"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/vmas"
	"unspool/vmas/process"
)

// A Session turns records with raw stacks into records with callchains.
type Session struct {
	Stats counts.Stats

	config  Config
	trouble *counts.Trouble

	table  *vmas.Table
	replay *replay.Replay // into table
	images *image.Store
	walker *unwind.Unwinder
	execve execve
	work   work          // is used again for each sample
	lost   replay.Losses // what was lost, as records tell

	completer    completer
	teller       teller
	commandLines *commandlines.Lines // nil where none are recorded
	sink         Sink
}

// A Config has the settings of a session.
type Config struct {
	Format *perfring.SampleFormat // of the records
	Sink   Sink

	// Proc is "/proc" if processes that no record tells of are looked up there, or "" if only records are
	// used.
	Proc string
	// Processes is how processes are read; nil reads them directly, in this process, which can hang with what it reads:
	// recordings have an opener.
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
	// Open means that the sink completes such stacks, and that samples are counted there: this session counts what
	// comes only.
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

	// Generators, if set, are told of what is sampled in generated code.
	Generators *generators.ProcessSet
	// KeepFiles is how many bytes of files that no process maps any more are kept, for [image.Store.Files].
	KeepFiles int64
	// BuildIDs, if set, is called for each file that a frame was in and whose build ID no record has: when no
	// process maps it any more, and for the others by [Session.TellBuildIDs]. id is nil for a file that has
	// none, or that could not be read.
	BuildIDs func(name string, id []byte)
}

// New returns a session that knows no process yet.
func New(c Config) *Session {
	s := &Session{config: c, trouble: counts.NewTrouble(), sink: c.Sink}
	if c.OpenKernel == nil {
		s.config.OpenKernel = os.Open
	}
	if c.Processes == nil {
		s.config.Processes = process.Direct("/proc")
	}
	s.openImages()
	s.openTable()
	if !c.Open {
		s.sink = NewCounter(s.sink, &s.Stats, s.trouble)
	}
	s.completer.open = c.Open || c.Join
	if c.Join {
		s.completer.joiner = NewJoiner(s.sink, c.MaxStack, c.JoinAfter)
		s.completer.joiner.Unordered = c.Unordered
		s.sink = s.completer.joiner
	}
	if c.Live && c.Join {
		s.completer.gaps = newGaps(process.Aside(s.config.Processes)) // what stays unread must not keep the rest unread
	}
	s.teller = newTeller(c.Format, s.sink, &s.Stats)
	s.teller.listener, _ = c.Sink.(ProcessSink)
	s.walker = unwind.NewUnwinder(s.images)
	s.walker.MaxFrames, s.walker.Strict, s.walker.Live = c.MaxStack, c.Strict, c.Live
	if c.Kernel {
		s.execve = openExecve()
	}
	return s
}

// openImages makes the store of images.
func (s *Session) openImages() {
	c := &s.config
	hooks := image.Hooks{Failed: s.trouble.NoteFile, Dropped: c.BuildIDs, Copied: s.teller.copied.note}
	if c.BuildIDs != nil {
		hooks.Unidentified = func(path string) { c.BuildIDs(path, nil) }
	}
	s.images = image.New(image.Config{
		Processes: c.Processes, Offline: c.Offline, Hurried: c.Live, Room: c.Room,
		SomeRoom: c.SomeRoom, Waits: c.Waits, Stop: c.Stop,
		KeepFiles: c.KeepFiles, Hooks: hooks,
	})
}

// openTable makes the table of address spaces, and what follows records into it.
func (s *Session) openTable() {
	c := &s.config
	var seeds process.Texts
	if c.Proc != "" {
		seeds = c.Processes
	}
	s.table = vmas.NewTableOf(seeds, s.images.Forget)
	s.table.Room, s.table.Look = c.SomeRoom, c.Waits
	texts := process.Texts(c.Processes)
	if p, ok := c.Processes.(interface{ IdleTexts() process.Texts }); ok {
		s.table.IdleTexts = p.IdleTexts()
		texts = s.table.IdleTexts
	}
	if c.CommandLines {
		s.commandLines = commandlines.New(texts, c.SomeRoom, s.commandLine)
	}
	s.replay = replay.New(s.table)
	if s.isRecorded() {
		s.replay = replay.NewRecorded(s.table)
	}
	s.replay.OfSamples = c.OfSamples
}

// isRecorded reports whether the records come from a recording: no sample is left out, and /proc is not used.
func (s *Session) isRecorded() bool { return s.config.Offline != nil }

// Format is that of the records.
func (s *Session) Format() *perfring.SampleFormat { return s.config.Format }

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
	if s.config.BuildIDs != nil {
		s.images.Sampled(s.config.BuildIDs)
	}
}

// Trouble returns where stacks ended before their root.
func (s *Session) Trouble() *counts.Trouble { return s.trouble }

// Record takes the next record. Records must come in order of time. The error is the sink's: a record that
// cannot be decoded is counted and not handed on, as its contents are unknown.
func (s *Session) Record(rec perfring.Record) error { return s.RecordAs(rec, s.config.Format) }

// RecordAs is Record for a record of an event that has a format of its own.
func (s *Session) RecordAs(rec perfring.Record, f *perfring.SampleFormat) error {
	if s.teller.err != nil {
		return s.teller.err
	}
	if rec.Type() == perfring.RecordSample {
		return s.sampled(rec, f)
	}
	c, buildID, err := s.Follow(rec, f)
	if err != nil {
		s.Stats.Malformed++
		return nil
	}
	s.lost.Add(c)
	s.Stats.Throttled = s.lost.Throttled
	rec = c.Record
	if buildID != nil && !s.isRecorded() {
		rec = s.teller.identified(rec, buildID)
	}
	return s.sink.Write(rec)
}

// Follow applies a record that is no sample to the address spaces, and starts to open the file that it maps
// while the process exists; files of a recording are opened when they are sampled. buildID is that of the
// file, nil if it is not known.
func (s *Session) Follow(rec perfring.Record, f *perfring.SampleFormat) (c *replay.Change, buildID []byte,
	err error) {
	if c, err = s.replay.Record(rec, f); err != nil {
		return nil, nil, err
	}
	s.commandLines.Follow(c, rec, f)
	if c.Mapping != nil && !s.isRecorded() {
		s.images.Open(c.PID, c.Mapping)
		buildID = s.images.BuildID(c.PID, c.Mapping)
	}
	if s.config.Generators != nil && (c.Kind == replay.Exit && c.PID == c.TID || c.Kind == replay.Comm && c.Exec) {
		s.config.Generators.Over(c.PID)
	}
	if name, addr := c.KernelSymbol(); name != "" && s.isRecorded() {
		s.execve = execve{ref: name, refAddr: addr, open: s.config.OpenKernel}
	}
	return c, buildID, nil
}

// Expect starts to open the file that a record maps, before the record is taken: by then a short-lived
// process may be gone, and so may its file. It reports whether the file is being opened: most are known.
func (s *Session) Expect(rec perfring.Record) (opens bool) {
	s.commandLines.Expect(rec, s.config.Format)
	if s.teller.listener != nil && rec.Type() == perfring.RecordExit {
		var d perfring.Task
		if perfring.DecodeTask(rec, &d) == nil && d.PID == d.TID {
			s.teller.listener.Ended(d.PID)
		}
		return false
	}
	pid, m, ok := s.replay.Peek(rec, s.config.Format)
	if !ok {
		return false
	}
	s.images.Open(pid, &m)
	return s.images.Opens(m.File)
}

// Glance is Expect for a record that comes while another one is still being taken, which waits for a file. It
// begins to open files that are not known, and leaves everything else to Expect.
func (s *Session) Glance(rec perfring.Record) {
	if pid, m, ok := s.replay.Peek(rec, s.config.Format); ok {
		s.images.Ahead(pid, &m)
	}
}

// SawGaps reports whether copies of stacks have ended at pages that were never touched, and that are to be read
// now, since it was last asked: the same happens to other threads, until such pages of their stacks are read.
func (s *Session) SawGaps() bool { return s.completer.sawGaps() }

// ReadRest makes the session read stacks that copies cut off when they are sampled, if it completes stacks, and as
// far as that is possible, which it reports. The records have to come from the source.
func (s *Session) ReadRest(source *perfring.Source, from RingReader) bool {
	return s.completer.readRest(source, from)
}

// ReadNow begins to read stacks when they are sampled, before it is known that copies cut any off: beside threads that
// leave this process no CPU, it would be known too late.
func (s *Session) ReadNow() { s.completer.rest.readNow() }

// DrainEvery is how often the rings have to be drained for that, at least: otherwise as often as told.
func (s *Session) DrainEvery(usual time.Duration) time.Duration {
	return s.completer.rest.drainEvery(usual)
}

// Settle hands on the samples that need not wait any more for later ones, given that all records up to a time
// have been taken.
func (s *Session) Settle(time uint64) error {
	s.commandLines.Settle(time - min(time, perfring.Slack))
	s.commandLines.Read()
	if s.completer.joiner == nil {
		return s.teller.err
	}
	return s.completer.settle(time, s.trouble)
}

// Flush hands on all samples that wait, as no more will come.
func (s *Session) Flush() error { return s.completer.flush() }

// Restate writes what is known of processes again, ahead of their next samples, to a sink that begins anew by
// a call of begin. The samples that wait to be joined are handed on before that.
func (s *Session) Restate(begin func() error) error {
	if err := s.completer.flush(); err != nil {
		return err
	}
	s.table.Restate()
	s.commandLines.Restate()
	s.teller.restate()
	return begin()
}

// Counted is what the session has counted.
func (s *Session) Counted() counts.Stats {
	st := s.Stats
	st.Lost = s.lost.Lost()
	return st
}
