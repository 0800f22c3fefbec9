package recorded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"unspool/capture/counts"
	"unspool/capture/output"
	"unspool/capture/perfdata"
	"unspool/capture/rights/opener"
	"unspool/capture/session"
	"unspool/perfring"
	"unspool/unwind/image"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/vdso"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// Options are the settings of [Convert].
type Options struct {
	Input  string        // perf.data with raw stacks, "-" for standard input
	Output string        // file, "-" for stdout
	Place  *output.Place // what Output leads to, if it has been resolved already

	Symfs    string // directory below which files are looked for first
	Cache    string // perf's build-ID cache; empty: ~/.debug
	MaxStack int    // frames of a user stack
	Strict   bool   // CFI only
	NoJoin   bool   // stacks that the copy cuts off are not completed: see package unwind/link
	Pairs    bool   // for package compare: each stack is followed by that of frame pointers
	// CommandLines has those of processes in the recording be kept.
	CommandLines bool
	// OpenKernel opens /proc/kallsyms, which tells the samples that were taken inside execve; nil for os.Open.
	OpenKernel func(path string) (*os.File, error)
	// Files opens mapped files and debug files; nil for this process.
	Files *opener.Files

	// Select, if set, returns what reports which samples are converted, by their times in ns of the recording's
	// clock, or nil for all. Other records are all converted: later samples need them.
	Select func(*perfdata.Reader) (func(time uint64) (bool, error), error)

	Watcher  session.Watcher // with one job: is handed what is written, too; may be nil
	Compress int             // zstd level, 0 for none
	Jobs     int             // cores to use; 0 is 1

	// Note is called with a line for the user about what the recording lacks.
	Note func(string)
	// Progress is called twice a second with the counts so far and the share of the input that has been read,
	// which is negative for a pipe.
	Progress func(s *counts.Stats, share float64)
}

// ErrNoneSelected is the error where Select has selected no sample: no file is written.
var ErrNoneSelected = errors.New("no samples are selected")

// Convert unwinds the stacks of a recording and writes one that has callchains in their place and everything
// else unchanged. The outcome is valid, and the output a complete recording, whatever the error is. If
// [errors.As] finds a *[perfdata.DamageError] in it, that says how far the input could be read.
func Convert(ctx context.Context, o Options) (out Conversion, err error) {
	out.Trouble = counts.NewTrouble()
	if err := o.Check(); err != nil {
		return out, err
	}
	if o.Place == nil {
		if o.Place, err = output.Find(o.Output); err != nil {
			return out, err
		}
		defer o.Place.Close()
	}
	if err := o.checkOutput(); err != nil {
		return out, err
	}
	r, err := openInput(ctx, o.Input)
	if err != nil {
		return out, err
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, r.Stop)
	defer stop()
	c := &conversion{
		Options: o, stop: ctx.Done(), reader: r, out: &out, began: time.Now(), startCPU: counts.CPUTime(),
	}
	c.report = c.began.Add(counts.ProgressEvery)
	err = r.Ordered(c.record)
	if errors.Is(err, perfdata.ErrStopped) && ctx.Err() != nil {
		read, _ := r.Position()
		err = fmt.Errorf("interrupted after %d bytes of data", read)
	}
	if ferr := c.finish(); err == nil || errors.Is(err, perfdata.ErrStopped) {
		err = ferr
	}
	if err == nil {
		err = r.FeatureDamage()
	}
	return out, err
}

// A Conversion is the result of a conversion.
type Conversion struct {
	counts.Result
	// Copied means that the recording has no raw stacks: nothing was unwound.
	Copied bool
}

// openInput opens the recording. A pipe may take long to deliver its beginning.
func openInput(ctx context.Context, path string) (*perfdata.Reader, error) {
	type opened struct {
		r   *perfdata.Reader
		err error
	}
	done := make(chan opened, 1)
	go func() {
		r, err := perfdata.Open(path)
		done <- opened{r, err}
	}()
	select {
	case o := <-done:
		return o.r, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: interrupted before it began", path)
	}
}

// Check refuses a Symfs and a Cache that are no directories.
func (o *Options) Check() error {
	for _, folder := range []string{o.Symfs, o.Cache} {
		if folder == "" {
			continue
		}
		if st, err := os.Stat(folder); err != nil {
			return err
		} else if !st.IsDir() {
			return &fs.PathError{Op: "open", Path: folder, Err: unix.ENOTDIR}
		}
	}
	return nil
}

// checkOutput refuses to overwrite the input.
func (o *Options) checkOutput() error {
	if err := o.Place.CheckInput(o.Input); err != nil {
		return err
	}
	return o.Place.CheckOld(o.Input)
}

// A conversion has the state of [Convert]: one lane on the goroutine of the reader, or several on their own.
type conversion struct {
	Options
	out      *Conversion
	stop     <-chan struct{}
	reader   *perfdata.Reader
	writer   *perfdata.Writer
	own      *lane  // the only lane, nil if there are several
	parallel *lanes // nil if there is only one
	files    image.Offline
	events   int    // how many events the output has
	records  uint64 // converted so far
	failed   error  // why the output could not be created

	wanted   func(time uint64) (bool, error) // see Select; nil for all samples
	selected bool                            // a sample is

	// passOn means that everything is written at the end of each round, as a reader of the output may be
	// waiting.
	passOn bool

	began    time.Time
	report   time.Time
	startCPU time.Duration
}

// begin creates the output. The events and features of a pipe are known when its first
// record comes.
func (c *conversion) begin() (err error) {
	defer func() { c.failed = err }()
	if err := checkArch(c.Input, c.reader); err != nil {
		return err
	}
	if c.Select != nil {
		if c.wanted, err = c.Select(c.reader); err != nil {
			return err
		}
	}
	events := c.reader.Events()
	c.events = len(events)
	c.writer, err = perfdata.Create(perfdata.Options{
		Path: c.Output, Place: c.Place, Events: events, Features: c.reader.Features(), Compress: c.Compress,
		Stop: c.stop, Whole: c.wanted != nil,
	})
	if err != nil {
		return err
	}
	c.out.Started = true
	c.passOn = c.Place.Stream() || c.reader.Pipe()
	for _, id := range c.reader.BuildIDs() {
		c.writer.BuildID(id.Path, id.ID, id.Kernel)
	}
	c.writer.KeepPerfMaps(c.reader.PerfMaps())
	c.files = c.offline()
	if c.Jobs > 1 {
		c.parallel = c.startLanes(c.Jobs)
	} else {
		c.own = new(lane)
		if c.Watcher == nil {
			c.prepare(c.own, c)
		} else {
			c.prepare(c.own, session.Both(c, c.Watcher))
			c.Watcher.Begin(c.own.session)
		}
	}
	c.out.Copied = !HasStacks(events)
	if c.out.Copied && c.Note != nil {
		c.Note(fmt.Sprintf("%s has no raw stacks: it is copied unchanged", c.Input))
	}
	return nil
}

// prepare makes the session of a lane.
func (c *conversion) prepare(l *lane, sink session.Sink) {
	l.sampled = make(map[sampledFile]bool)
	format := perfring.NewFormat(&c.reader.Events()[0].PerfEventAttr)
	l.session = session.New(session.Config{
		Format: &format, Sink: sink, Offline: &c.files, OpenKernel: c.OpenKernel,
		Join: c.joins() && !l.join, Open: l.join, JoinAfter: session.JoinAfterRecorded,
		MaxStack: c.MaxStack, Strict: c.Strict, Pairs: c.Pairs, BuildIDs: l.sampledFile, Stop: c.stop,
	})
}

// joins reports whether stacks that the copy cuts off are completed. Strict stacks are not, and neither are
// pairs, which compare what a copy of a given size shows.
func (o *Options) joins() bool { return !o.NoJoin && !o.Strict && !o.Pairs }

// HasStacks reports whether samples of any of the events have copies of the user stack.
func HasStacks(events []perfring.Attr) bool {
	for i := range events {
		if events[i].PerfEventAttr.Sample_type&unix.PERF_SAMPLE_STACK_USER != 0 {
			return true
		}
	}
	return false
}

// offline returns where the files of the recording may be found.
func (c *conversion) offline() image.Offline {
	o := image.Offline{Symfs: c.Symfs, Cache: cmp.Or(c.Cache, debugfile.Cache())}
	o.Recorded = RecordedAt(c.Input)
	if c.Files != nil {
		c.Files.Until(c.stop)
		o.Opener = c.Files
	}
	ids := c.reader.FileBuildIDs()
	o.BuildID = func(name string) vmas.BuildID { return vmas.NewBuildID(ids[name]) }
	var uts unix.Utsname
	o.SameKernel = unix.Uname(&uts) == nil &&
		unix.ByteSliceToString(uts.Release[:]) == c.reader.Text(perfdata.OSRelease)
	return o
}

// RecordedAt is when the recording at a path was finished, zero if it is in no regular file or directory of
// such.
func RecordedAt(path string) (at time.Time) {
	if info, err := os.Stat(perfdata.MainFile(path)); err == nil && info.Mode().IsRegular() {
		at = info.ModTime()
	}
	return at
}

// record converts the next record.
func (c *conversion) record(rec perfring.Record, f *perfring.SampleFormat, time uint64) error {
	if c.writer == nil {
		if err := c.begin(); err != nil {
			return err
		}
	}
	if events := c.reader.Events(); len(events) > c.events { // a pipe may tell of some behind its first record
		if err := c.settle(); err != nil {
			return err
		}
		if err := c.writer.AddEvents(events[c.events:]); err != nil {
			return err
		}
		c.events = len(events)
	}
	if c.wanted != nil && rec.Type() == perfring.RecordSample {
		wanted, err := c.wanted(time)
		if !wanted || err != nil {
			return err
		}
		c.selected = true
	}
	switch {
	case !c.CommandLines && perfdata.IsCommandLine(rec):
		return nil
	case rec.Type() == perfring.RecordAuxtrace:
		if err := c.settle(); err != nil {
			return err
		}
		return c.writer.WriteTrace(rec, c.reader.Payload)
	case c.parallel != nil:
		c.parallel.record(rec, f)
		return nil
	}
	if c.records++; c.records%1024 == 0 {
		read, total := c.reader.Position()
		c.tell(c.own.session.Counted, read, total)
	}
	return c.own.session.RecordAs(rec, f)
}

// settle waits until all records so far are written.
func (c *conversion) settle() error {
	if c.parallel != nil {
		c.parallel.drain()
		return nil
	}
	return c.own.session.Flush()
}

// Write writes an unwound record.
func (c *conversion) Write(rec []byte) error {
	if c.passOn && perfring.Record(rec).Type() == perfring.RecordFinishedRound {
		return c.writer.Round()
	}
	return c.writer.Write(rec)
}

// WriteSample writes a sample with its callchain.
func (c *conversion) WriteSample(w *perfdata.Walked) error { return c.writer.WriteSample(w) }

// tell reports progress if it is due.
func (c *conversion) tell(counted func() counts.Stats, read, total int64) {
	now := time.Now()
	if c.Progress == nil || now.Before(c.report) {
		return
	}
	c.report = now.Add(counts.ProgressEvery)
	st := counted()
	st.Duration = now.Sub(c.began)
	share := -1.0
	if total > 0 {
		share = float64(read) / float64(total)
	}
	c.Progress(&st, share)
}

// finish completes the output and sums up.
func (c *conversion) finish() (err error) {
	switch {
	case c.failed != nil:
		return nil
	case c.writer != nil:
	case len(c.reader.Events()) == 0:
		return fmt.Errorf("%s: no events: it ends before its first record", c.Input)
	default:
		if err := c.begin(); err != nil {
			return err
		}
	}
	lanes := []*lane{c.own}
	var all []counts.Stats
	if c.parallel != nil {
		err = c.parallel.end()
		lanes = c.parallel.lanes
		all = append(all, c.parallel.stats)
		c.out.Trouble.Add(c.parallel.trouble)
	} else {
		err = c.own.session.Flush()
	}
	for _, id := range c.reader.BuildIDs() { // in a pipe, some come late
		c.writer.BuildID(id.Path, id.ID, id.Kernel)
	}
	sampled := make(map[sampledFile]bool)
	for _, l := range lanes {
		l.session.TellBuildIDs()
		maps.Copy(sampled, l.sampled)
		all = append(all, l.session.Counted())
		c.out.Trouble.Add(l.session.Trouble())
	}
	for _, f := range slices.SortedFunc(maps.Keys(sampled), sampledFile.compare) {
		c.writer.BuildID(f.path, []byte(f.id), false)
	}
	if c.wanted != nil && !c.selected {
		err = cmp.Or(err, ErrNoneSelected)
		c.writer.Fail(err)
	}
	if cerr := c.writer.Close(); err == nil {
		err = cerr
	}
	st := counts.Sum(all)
	st.Malformed += c.reader.Unknown()
	st.Forgotten = lanes[0].session.Table().Forgotten() // each lane follows all records
	if c.Watcher == nil {                               // which may use it on
		for _, l := range lanes {
			l.session.Close()
		}
	}
	st.Command = c.reader.CommandLine()
	st.Duration = time.Since(c.began)
	st.CPU = counts.CPUTime()
	st.Start = c.startCPU
	st.Busy = st.CPU - st.Start
	st.MaxRSS = counts.MaxRSS()
	st.Written = uint64(c.writer.Written())
	c.out.Stats = st
	return err
}

// Prepare reads what a process needs of the system that will read recordings, and opens what it may not open when it
// is confined.
func Prepare() error {
	_, _ = vdso.Own32() // runs a program
	return session.Prepare()
}
