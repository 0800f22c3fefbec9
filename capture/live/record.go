package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/capture/session/commandlines"
	"unspool/capture/session/generators"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

const (
	wakeEvery  = 100 * time.Millisecond // a wake-up costs more than the work that it finds
	flushEvery = 200 * time.Millisecond // what a killed recording may lose
	sweepEvery = 10 * time.Second
	// leastDrain is the time between two drains if rings are still a quarter full after the first: what is
	// younger than perfring.Slack stays in them.
	leastDrain time.Duration = perfring.Slack / 2
)

// Record records until the duration is over, the command or the recorded
// processes have ended, or ctx is done. The recording is finished, and the
// outcome valid, whatever the error is: an error means that less was written
// than should have been.
func Record(ctx context.Context, o Options) (out Outcome, err error) {
	out.Trouble = counts.NewTrouble()
	if err := checkProc(); err != nil {
		return out, err
	}
	ending, end := context.WithCancel(ctx)
	defer end()
	r := &recording{Options: o, out: &out, ending: ending.Done(), end: end, early: newEarlyDrains()}
	if o.Opener == nil && o.Source == nil {
		if r.Opener, err = o.StartOpener(); err != nil {
			return out, err
		}
		defer r.Opener.Close()
	}
	if len(o.Command) > 0 {
		if r.command, err = newCommand(r.Opener, o.Command); err != nil {
			return out, err
		}
	}
	defer r.opener.release()
	if err := r.open(); err != nil {
		if r.command != nil {
			r.command.cancel()
		}
		return out, err
	}
	defer r.source.Close()
	err = r.run(ctx)
	switch ferr := r.finish(); {
	case err == nil:
		err = ferr
	case errors.Is(err, errOpenerGone) && ferr != nil: // so not all is in the file
		err = fmt.Errorf("%w: %w", err, ferr)
	default: // errors of finish mostly follow from one of run
	}
	return out, err
}

// checkProc refuses a proc file system of another PID namespace, in which PIDs are other processes.
func checkProc() error {
	self, err := os.Readlink("/proc/self")
	if err != nil || self == strconv.Itoa(os.Getpid()) {
		return nil
	}
	return errors.New("/proc shows another PID namespace than this one: mount this one's, " +
		"as unshare --mount-proc does")
}

// A recording is a live session with what it reads from and writes to.
type recording struct {
	Options
	out     *Outcome
	command *command
	source  *perfring.Source
	writer  Destination
	files   files // the same, if it goes on in other files; else nil
	session *session.Session
	// generators are nil where somebody else has opened the events.
	generators *generators.ProcessSet

	opener openerLife

	ending <-chan struct{} // closed when the recording is to end, even if something hangs
	end    func()          // closes it

	sampling  sampling
	untilPeek int // how many records are taken until the rings are looked at
	early     earlyDrains
	opens     bool       // expect has met a file that was not known, since wait last looked
	priority  precedence // nil for none
	outran    bool       // a recorded real-time thread was seen, and the priority raised if possible

	began     time.Time
	lastDrain uint64 // when it began, by [perfring.Source.Now]
}

func (r *recording) open() error {
	if err := r.opener.begin(r.Opener); err != nil {
		return err
	}
	if err := r.openSource(); err != nil {
		return err
	}
	for _, n := range r.source.Notes() {
		r.note(n)
	}
	r.out.StackSize = r.source.StackSize()
	c := session.Config{
		Format: r.source.Format(), Sink: r.sink(), Proc: "/proc", Live: true, Kernel: r.kernelToo(),
		MaxStack: r.MaxStack, Strict: r.Strict, Pairs: r.Pairs,
		Room: func() bool { return !r.source.HalfFull() }, SomeRoom: func() bool { return !r.source.NearlyFull() },
		Waits: func() { r.source.Glance(r.session.Glance) }, OfSamples: func() bool { return r.source.OfSamples() },
		Join: !r.NoJoin && !r.Strict && !r.Pairs && !r.ChainsOnly, JoinAfter: session.JoinAfter, KeepFiles: r.KeepFiles,
		CommandLines: r.CommandLines,
		BuildIDs:     func(path string, id []byte) { r.writer.BuildID(path, id, false) },
	}
	switch {
	case r.Source != nil:
		c.Processes, c.Kernel = r.Processes, false
	default:
		c.Processes = r.Opener
	}
	if r.Adopted != nil {
		c.CPU, c.Stop, c.Unordered = r.source.CPU, r.ending, true
	}
	if r.Adopted == nil {
		r.generators = generators.New(c.Processes, !r.Pairs && (r.Place == nil || !r.Place.Stream()), r.Rotation != nil)
		c.Generators = r.generators
	}
	r.session = session.New(c)
	r.out.Trouble = r.session.Trouble()
	if r.Watcher != nil {
		r.Watcher.Begin(r.session)
	}
	return nil
}

// openSource opens the events and the file, unless there are some.
func (r *recording) openSource() error {
	if r.Adopted != nil {
		r.source, r.writer = r.Adopted, r.To
		return nil
	}
	if r.Source != nil {
		r.source = r.Source
		return r.createFor()
	}
	t := perfring.Target{AllCPUs: r.AllCPUs, PIDs: r.PIDs, MayEnd: r.PIDsMayEnd, TIDs: r.TIDs, CPUs: r.CPUs,
		Cgroup: r.Cgroup}
	if r.command != nil && !t.AllCPUs && len(t.PIDs) == 0 {
		t.Command = r.command.pid
	}
	var err error
	var ofEvents string
	if len(r.Events) == 0 {
		if r.Events, ofEvents, err = perfring.DefaultEvents(); err != nil {
			return err
		}
	}
	r.source, err = perfring.Open(t, perfring.Options{
		Events: r.Events, Freq: r.Freq, Period: r.Period, StackSize: r.StackSize, Pages: r.RingPages,
		LeastStack: r.leastStack(), NoStack: r.ChainsOnly,
		UserChain: !r.Strict || r.Pairs || r.ChainsOnly, Delayed: r.Delay != 0,
	})
	if err != nil {
		return err
	}
	if ofEvents != "" { // an error comes alone
		r.note(ofEvents)
	}
	return r.createFor()
}

// createFor begins the output for the events that were opened. With an error it closes them.
func (r *recording) createFor() (err error) {
	var events []perfring.Attr
	for _, a := range r.source.Attrs() {
		events = append(events, a.WithBuildIDs())
	}
	if r.writer, err = r.create(events); err != nil {
		r.source.Close()
	}
	return err
}

// create begins the output.
func (r *recording) create(events []perfring.Attr) (Destination, error) {
	o := perfdata.Options{
		Path: r.Output, Place: r.Place, Events: events,
		CommandLine: commandlines.Mask(r.CommandLine), Version: r.Version, Compress: r.Compress, Stop: r.ending,
	}
	var err error
	switch {
	case r.Rotation != nil && r.Rotation.Last > 0:
		r.files, err = newFlight(r.Rotation, o)
	case r.Rotation != nil:
		r.files, err = createSegments(r.Rotation, o)
	default:
		return perfdata.Create(o)
	}
	return r.files, err
}

// sink is the writer, with the watcher if there is one.
func (r *recording) sink() session.Sink {
	if r.Watcher == nil {
		return r.writer
	}
	return session.Both(r.writer, r.Watcher)
}

func (r *recording) note(s string) {
	if r.Note != nil {
		r.Note(s)
	}
}

func (r *recording) warn(s string) {
	if r.Warn != nil {
		r.Warn(s)
	}
}

// run records from the first sample to the last.
func (r *recording) run(ctx context.Context) error {
	if err := r.describeKernel(); err != nil {
		return err
	}
	if r.RaisePriority {
		r.raisePriority()
	}
	defer r.lowerPriority()
	if err := r.confine(); err != nil {
		return err
	}
	r.session.Stats.Start = r.opener.cpuTime()
	r.began = time.Now()
	r.out.Started = true
	stop := context.AfterFunc(ctx, r.source.Wake)
	defer stop()
	defer r.opener.watch(r.ending, r.source.Wake)()
	if r.Duration > 0 {
		time.AfterFunc(r.Duration, r.end)
	}

	if err := r.begin(); err != nil {
		return err
	}
	if r.command != nil {
		if err := r.command.run(r.source.Wake); err != nil {
			r.out.ExitStatus = err.(*CommandError).ExitStatus()
			return err
		}
	}
	r.beginSampling()
	r.awaitAsked()
	r.early.begun = true // to the recording, threads that run already are as new as others
	if err := r.loop(ctx); err != nil {
		return err
	}
	if r.opener.gone.Load() {
		return errOpenerGone
	}
	r.out.TargetsEnded = r.command == nil && r.source.Done()
	return nil
}

// describeKernel writes the kernel's mappings, which are only in files.
func (r *recording) describeKernel() error {
	if r.Adopted != nil {
		return nil
	}
	var records [][]byte
	var ids []perfdata.FileBuildID
	if r.Source == nil { // it has no kernel
		var err error
		if records, ids, err = perfdata.KernelRecords(r.source.Format()); err != nil && r.kernelToo() {
			r.note(err.Error())
		}
	}
	describe := func(w Destination) error {
		for _, rec := range records {
			if err := w.Write(rec); err != nil {
				return err
			}
		}
		for _, id := range ids {
			w.BuildID(id.Path, id.ID, id.Kernel)
		}
		return nil
	}
	if r.files != nil { // a confined process could not read the kernel's symbols again
		return r.files.begin(describe)
	}
	return describe(r.writer)
}

// kernelToo reports whether any event is sampled in the kernel.
func (r *recording) kernelToo() bool {
	for _, a := range r.source.Attrs() {
		if a.PerfEventAttr.Bits&unix.PerfBitExcludeKernel == 0 {
			return true
		}
	}
	return false
}

// loop takes records from the rings until the recording is over.
func (r *recording) loop(ctx context.Context) error {
	flush, report, sweep := r.began.Add(flushEvery), r.began.Add(counts.ProgressEvery), r.began.Add(sweepEvery)
	wakes := newWakeups()
	guard, cpus := cpuGuard{r.began, counts.CPUTime()}, r.began
	for !r.over(ctx) {
		if err := r.wait(ctx, &wakes); err != nil {
			return err
		}
		if err := r.seedSome(); err != nil {
			return err
		}
		if err := r.switchSampling(); err != nil {
			return err
		}
		r.lastDrain = r.source.Now()
		if err := r.drained(r.source.Drain(r.record)); err != nil {
			return err
		}
		if err := r.session.Settle(r.lastDrain); err != nil {
			return err
		}
		if err := r.answerPing(r.lastDrain); err != nil {
			return err
		}
		now := time.Now()
		if now.After(cpus) {
			cpus = now.Add(wakeEvery)
			for _, n := range r.source.FollowCPUs() {
				r.note(n)
			}
		}
		if now.After(flush) || r.Adopted != nil {
			flush = now.Add(flushEvery)
			if err := r.writer.Round(); err != nil {
				return err
			}
		}
		if r.files != nil {
			if err := r.files.rotate(r, func() bool { return r.over(ctx) }); err != nil {
				return err
			}
		}
		if now.After(report) && r.Progress != nil {
			report = now.Add(counts.ProgressEvery)
			r.measure(now)
			r.Progress(&r.session.Stats)
		}
		guard.check(r, now)
		if now.After(sweep) {
			sweep = now.Add(sweepEvery)
			r.session.Sweep()
		}
	}
	return nil
}
