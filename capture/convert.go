package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"unspool/capture/output"
	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind/image"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// ConvertOptions say which recording is converted, and how.
type ConvertOptions struct {
	Input  string        // perf.data with raw stacks, "-" for standard input
	Output string        // file, "-" for stdout
	Place  *output.Place // what Output leads to, where it has been found already

	Symfs    string // directory below which files are looked for first
	Cache    string // perf's build-ID cache; empty: ~/.debug
	MaxStack int    // frames of a user stack
	Strict   bool   // CFI only
	Pairs    bool   // for package compare: beside each stack, that of frame pointers
	Compress int    // zstd level, 0 for none
	Jobs     int    // cores to use; 0 is 1

	// Note is told what the recording lacks, in words.
	Note func(string)
	// Progress is called twice a second with what has been counted so far and
	// which share of the input has been read; that is negative in a pipe.
	Progress func(s *Stats, share float64)
}

// Convert unwinds the stacks of a recording, into one that holds callchains in
// their stead and everything else as it was. The outcome is valid, and the
// output a complete recording, whatever the error is: a *perfdata.DamageError says
// how far the input could be read.
func Convert(ctx context.Context, o ConvertOptions) (out Outcome, err error) {
	out.Trouble = newTrouble()
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
	c := &conversion{ConvertOptions: o, reader: r, out: &out, began: time.Now(), busyCPU: cpuTime()}
	c.report = c.began.Add(reportEvery)
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

// openInput opens the recording. The beginning of a pipe may be long in coming.
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

// Check refuses files that are not there.
func (o *ConvertOptions) Check() error {
	if o.Symfs != "" {
		if st, err := os.Stat(o.Symfs); err != nil {
			return err
		} else if !st.IsDir() {
			return &fs.PathError{Op: "open", Path: o.Symfs, Err: unix.ENOTDIR}
		}
	}
	return nil
}

// checkOutput refuses to write what is being read.
func (o *ConvertOptions) checkOutput() error {
	if err := o.Place.CheckInput(o.Input); err != nil {
		return err
	}
	return o.Place.CheckOld(o.Input)
}

// A conversion is what a recording goes through: one lane in the goroutine of
// the reader, or several beside it.
type conversion struct {
	ConvertOptions
	out      *Outcome
	reader   *perfdata.Reader
	writer   *perfdata.Writer
	own      *lane  // where there are no others
	parallel *lanes // nil where there is one lane only
	files    image.Offline
	events   int    // how many the output has
	records  uint64 // taken so far
	failed   error  // why the output could not be begun

	// passOn says that everything known is to be written at the end of a
	// round, as somebody may be waiting for it.
	passOn bool

	began   time.Time
	report  time.Time
	busyCPU time.Duration
}

// begin creates the output. The events and features of a pipe are known when its first
// record comes.
func (c *conversion) begin() (err error) {
	defer func() { c.failed = err }()
	if err := checkArch(c.Input, c.reader); err != nil {
		return err
	}
	events := c.reader.Events()
	c.events = len(events)
	c.writer, err = perfdata.Create(perfdata.Options{
		Path: c.Output, Place: c.Place, Events: events, Features: c.reader.Features(), Compress: c.Compress,
	})
	if err != nil {
		return err
	}
	c.out.Started = true
	c.passOn = c.Place.Stream() || c.reader.Pipe()
	for _, id := range c.reader.BuildIDs() {
		c.writer.BuildID(id.Path, id.ID, id.Kernel)
	}
	c.files = c.offline()
	if c.Jobs > 1 {
		c.parallel = c.startLanes(c.Jobs)
	} else {
		c.own = new(lane)
		c.prepare(c.own, c)
	}
	if !HasStacks(events) && c.Note != nil {
		c.Note(fmt.Sprintf("%s has no raw stacks: it is handed on as it is", c.Input))
	}
	return nil
}

// prepare makes the session of a lane.
func (c *conversion) prepare(l *lane, sink Sink) {
	l.sampled = make(map[sampledFile]bool)
	format := perfring.NewFormat(&c.reader.Events()[0].PerfEventAttr)
	l.session = NewSession(Config{
		Format: &format, Sink: sink, Offline: &c.files,
		MaxStack: c.MaxStack, Strict: c.Strict, Pairs: c.Pairs, BuildIDs: l.sampledFile,
	})
}

// HasStacks says whether any of the events brings copies of the user stack.
func HasStacks(events []perfring.Attr) bool {
	for i := range events {
		if events[i].PerfEventAttr.Sample_type&unix.PERF_SAMPLE_STACK_USER != 0 {
			return true
		}
	}
	return false
}

// offline says where the files of the recording may be found.
func (c *conversion) offline() image.Offline {
	o := image.Offline{Symfs: c.Symfs, Cache: c.Cache}
	if o.Cache == "" {
		if home, err := os.UserHomeDir(); err == nil {
			o.Cache = filepath.Join(home, ".debug")
		}
	}
	ids := make(map[string]vmas.BuildID)
	for _, id := range c.reader.BuildIDs() {
		if known, ok := ids[id.Path]; ok && known != vmas.NewBuildID(id.ID) {
			// Which of the two builds a mapping had is not told.
			ids[id.Path] = vmas.BuildID{}
		} else if !id.Kernel {
			ids[id.Path] = vmas.NewBuildID(id.ID)
		}
	}
	o.BuildID = func(path string) vmas.BuildID { return ids[path] }
	var uts unix.Utsname
	o.SameKernel = unix.Uname(&uts) == nil &&
		unix.ByteSliceToString(uts.Release[:]) == c.reader.Text(perfdata.OSRelease)
	return o
}

// record takes the next record.
func (c *conversion) record(rec perfring.Record, f *perfring.Format, _ uint64) error {
	if c.writer == nil {
		if err := c.begin(); err != nil {
			return err
		}
	}
	if len(c.reader.Events()) != c.events {
		return errors.New("an event is told of behind the first record: this is not supported")
	}
	switch {
	case rec.Type() == perfring.RecordAuxtrace:
		if c.parallel != nil {
			c.parallel.drain()
		}
		return c.writer.WriteTrace(rec, c.reader.Payload)
	case c.parallel != nil:
		c.parallel.record(rec, f)
		return nil
	}
	if c.records++; c.records%1024 == 0 {
		read, total := c.reader.Position()
		c.tell(c.own.session.counted, read, total)
	}
	return c.own.session.RecordAs(rec, f)
}

// Write takes an unwound record.
func (c *conversion) Write(rec []byte) error {
	if c.passOn && perfring.Record(rec).Type() == perfring.RecordFinishedRound {
		return c.writer.Round()
	}
	return c.writer.Write(rec)
}

// WriteSample takes a sample with its callchain.
func (c *conversion) WriteSample(w *perfdata.Walked) error { return c.writer.WriteSample(w) }

// tell reports progress when it is time to.
func (c *conversion) tell(counted func() Stats, read, total int64) {
	now := time.Now()
	if c.Progress == nil || now.Before(c.report) {
		return
	}
	c.report = now.Add(reportEvery)
	st := counted()
	st.Duration = now.Sub(c.began)
	share := -1.0
	if total > 0 {
		share = float64(read) / float64(total)
	}
	c.Progress(&st, share)
}

// counted is what a session has counted.
func (s *Session) counted() Stats {
	st := s.Stats
	st.Lost = s.lost.Lost()
	return st
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
	all := []*lane{c.own}
	if c.parallel != nil {
		err = c.parallel.end()
		all = c.parallel.lanes
	}
	for _, id := range c.reader.BuildIDs() { // in a pipe, some come late
		c.writer.BuildID(id.Path, id.ID, id.Kernel)
	}
	sampled := make(map[sampledFile]bool)
	var counts []Stats
	for _, l := range all {
		l.session.TellBuildIDs()
		maps.Copy(sampled, l.sampled)
		counts = append(counts, l.session.counted())
		c.out.Trouble.add(l.session.Trouble())
	}
	order := func(a, b sampledFile) int { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.id, b.id)) }
	for _, f := range slices.SortedFunc(maps.Keys(sampled), order) {
		c.writer.BuildID(f.path, []byte(f.id), false)
	}
	if cerr := c.writer.Close(); err == nil {
		err = cerr
	}
	st := sum(counts)
	st.Malformed += c.reader.Unknown()
	st.Command = c.reader.CommandLine()
	st.Duration = time.Since(c.began)
	st.CPU = cpuTime()
	st.Busy = st.CPU - c.busyCPU
	st.MaxRSS = maxRSS()
	st.Written = uint64(c.writer.Written())
	c.out.Stats = st
	return err
}
