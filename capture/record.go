package capture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"unspool/capture/control"
	"unspool/capture/output"
	"unspool/capture/perfdata"
	"unspool/capture/rights/opener"
	"unspool/perfring"
	"unspool/unwind/image"
	"unspool/vmas/process"

	"golang.org/x/sys/unix"
)

// Options are the settings of [Record].
type Options struct {
	AllCPUs bool
	PIDs    []int
	// PIDsMayEnd means that processes of PIDs that have ended before they are recorded are no error, but for all.
	PIDsMayEnd bool

	TIDs    []int    // of PIDs, only these threads; nil: all
	CPUs    []int    // only what runs on these CPUs; nil: on all
	Cgroup  *os.File // of AllCPUs, only what is in the cgroup of this directory
	Command []string // run while recording; recorded itself unless AllCPUs or PIDs are set

	Events        []perfring.Event // none: cycles, or cpu-clock
	Freq, Period  uint64           // samples a second, or events a sample; 0, 0: the default
	RingPages     int              // 0: see perfring.Options
	StackSize     int              // bytes of stack to copy; 0: see perfring.Options
	MaxStack      int              // frames of a user stack
	Strict        bool             // CFI only
	NoJoin        bool             // stacks that the copy cuts off are not completed: see package unwind/link
	Pairs         bool             // for package compare: each stack is followed by that of frame pointers
	RaisePriority bool             // with priority over the recorded processes, if that is permitted
	Delay         time.Duration    // until samples are taken; below 0: until Control says so
	Duration      time.Duration    // 0: until the command or the processes end, or until stopped

	CommandStdout *os.File // nil: our own

	// Opener, if set, reads the processes and does everything else that needs rights once the events are
	// open. Confine is called then to give up the rights of this process; unfiltered says why the opener has
	// kept more rights than it needs, nil if it has not. Before that, Grant, if set, tells the opener what else
	// it is to do later.
	Opener  *opener.Client
	Grant   func() error
	Confine func(unfiltered error)

	// Sampled, if set, is given the files in which frames were, which it closes: when the recording ends, which is
	// last, and, of one that is written to several files, whenever one is complete. Files that no process maps any more
	// are kept for that, of KeepFiles bytes at most.
	Sampled   func(files []SampledFile, last bool)
	KeepFiles int64

	// CommandLines has those of sampled processes be recorded, without secrets.
	CommandLines bool

	// Control, if set, says when samples are taken, and when the recording ends. It belongs to the caller.
	Control *control.Control

	// Watcher, if set, is given all that is written, with how each frame was found.
	Watcher Watcher

	// Adopted, if set, has the events: somebody else has opened them on all CPUs, and enables and disables them.
	// The recording closes it. To is where it goes then, instead of a file.
	Adopted *perfring.Source
	To      StreamOutput

	// Source, if set, has the events of a machine that is simulated, and Processes are its processes.
	Source    *perfring.Source
	Processes process.Access

	Output      string        // file, "-" for stdout
	Place       *output.Place // what Output leads to, if it has been resolved already
	Rotation    *Rotation     // instead of Output and Place
	Compress    int           // zstd level, 0 for none
	CommandLine []string      // of unspool, for the file's header
	Version     string        // likewise

	// Note is called with a line for the user about what was done otherwise than asked. Warn is the same for what
	// has failed, while the recording goes on; it may be nil.
	Note, Warn func(string)
	// Progress is called twice a second with the counts so far.
	Progress func(*Stats)
}

// A SampledFile is an open file in which frames were.
type SampledFile = image.SampledFile

// An Outcome is the result of a recording or a conversion.
type Outcome struct {
	Stats     Stats
	Trouble   *Trouble
	StackSize int // bytes of a stack that were copied at most
	// ReadsRest means that the rest of stacks that are cut off is read when they are sampled.
	ReadsRest bool
	// Started means that events were enabled, or the output begun: there is something to summarize.
	Started bool
	// Copied means that a recording without raw stacks was converted: nothing was unwound.
	Copied bool
	// TargetsEnded means that all processes or threads that were to be recorded have ended, not counting a command.
	TargetsEnded bool
	// ExitStatus is the command's own, 0 when there was none.
	ExitStatus int
}

const (
	wakeEvery   = 100 * time.Millisecond // a wake-up costs more than the work that it finds
	flushEvery  = 200 * time.Millisecond // what a killed recording may lose
	reportEvery = 500 * time.Millisecond
	sweepEvery  = 10 * time.Second
	// leastDrain is the time between two drains if rings are still a quarter full after the first: what is
	// younger than perfring.Slack stays in them.
	leastDrain time.Duration = perfring.Slack / 2
)

// Record records until the duration is over, the command or the recorded
// processes have ended, or ctx is done. The recording is finished, and the
// outcome valid, whatever the error is: an error means that less was written
// than should have been.
func Record(ctx context.Context, o Options) (out Outcome, err error) {
	out.Trouble = newTrouble()
	if err := checkProc(); err != nil {
		return out, err
	}
	ending, end := context.WithCancel(ctx)
	defer end()
	r := &recording{Options: o, out: &out, ending: ending.Done(), end: end, early: newEarlyDrains()}
	if len(o.Command) > 0 {
		if o.CommandStdout == nil {
			o.CommandStdout = os.Stdout
		}
		if r.command, err = newCommand(o.Command, o.CommandStdout); err != nil {
			return out, err
		}
	}
	defer r.releaseOpener()
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
	writer  Output
	session *Session

	openerGone atomic.Bool

	ending <-chan struct{} // closed when the recording is to end, even if something hangs
	end    func()          // closes it

	sampling  sampling
	untilPeek int // how many records are taken until the rings are looked at
	early     earlyDrains
	opens     bool       // expect has met a file that was not known, since wait last looked
	priority  precedence // nil for none
	outran    bool       // a recorded real-time thread was seen, and the priority raised if possible

	began     time.Time
	lastDrain uint64        // when it began, by [perfring.Source.Now]
	busyCPU   time.Duration // CPU time used before the events were enabled
	openCPU   time.Duration // CPU time of the opener, as last known

	killOpener *process.Leash // nil without an opener
}

func (r *recording) open() (err error) {
	if r.Opener != nil {
		if r.killOpener, err = process.NewLeash(r.Opener.PID(), syscall.SIGKILL); err != nil {
			return fmt.Errorf("prepare the end of the process that opens files: %w", err)
		}
	}
	if err := r.openSource(); err != nil {
		return err
	}
	for _, n := range r.source.Notes() {
		r.note(n)
	}
	r.out.StackSize = r.source.StackSize()
	c := Config{
		Format: r.source.Format(), Sink: r.sink(), Proc: "/proc", Live: true, Kernel: r.kernelToo(),
		MaxStack: r.MaxStack, Strict: r.Strict, Pairs: r.Pairs,
		Room: func() bool { return !r.source.HalfFull() }, SomeRoom: func() bool { return !r.source.NearlyFull() },
		Waits: func() { r.source.Glance(r.session.Glance) }, OfSamples: func() bool { return r.source.OfSamples() },
		Join: !r.NoJoin && !r.Strict && !r.Pairs, JoinAfter: JoinAfter, KeepFiles: r.KeepFiles,
		Generated:    r.Adopted == nil,
		KeepMaps:     r.Adopted == nil && !r.Pairs && (r.Place == nil || !r.Place.Stream()),
		CommandLines: r.CommandLines,
		BuildIDs:     func(path string, id []byte) { r.writer.BuildID(path, id, false) },
	}
	switch {
	case r.Source != nil:
		c.Processes, c.Kernel = r.Processes, false
	case r.Opener != nil:
		c.Processes = r.Opener
	}
	if r.Adopted != nil {
		c.CPU, c.Stop, c.Unordered = r.source.CPU, r.ending, true
	}
	r.session = NewSession(c)
	if g := r.session.generators; g != nil {
		g.pieces = r.Rotation != nil
	}
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
		t.Command = r.command.pid()
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
		UserChain: !r.Strict || r.Pairs, Delayed: r.Delay != 0,
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
func (r *recording) create(events []perfring.Attr) (Output, error) {
	o := perfdata.Options{
		Path: r.Output, Place: r.Place, Events: events,
		CommandLine: maskCommand(r.CommandLine), Version: r.Version, Compress: r.Compress, Stop: r.ending,
	}
	switch {
	case r.Rotation != nil && r.Rotation.Last > 0:
		return newFlight(r.Rotation, o)
	case r.Rotation != nil:
		return createSegments(r.Rotation, o)
	}
	return perfdata.Create(o)
}

// sink is the writer, with the watcher if there is one.
func (r *recording) sink() Sink {
	if r.Watcher == nil {
		return r.writer
	}
	return &both{r.writer, r.Watcher}
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
	r.busyCPU = r.cpu()
	r.began = time.Now()
	r.out.Started = true
	stop := context.AfterFunc(ctx, r.source.Wake)
	defer stop()
	defer r.watchOpener()()
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
	if r.openerGone.Load() {
		return errOpenerGone
	}
	r.out.TargetsEnded = r.command == nil && r.source.Done()
	return nil
}

// watchOpener ends the recording when the opener is gone, and bounds what is waited for of it when the recording is
// to end, until stop is called.
func (r *recording) watchOpener() (stop func()) {
	if r.Opener == nil {
		return func() {}
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-r.Opener.Gone():
			r.openerGone.Store(true)
			r.source.Wake()
		case <-r.ending:
			r.boundOpener()
		case <-over:
		}
	}()
	return func() { close(over) }
}

// boundOpener gives the opener up when it has not answered for a while: it may be stopped, or hang. It is killed, as a
// stopped one would stay for ever.
func (r *recording) boundOpener() {
	if r.Opener != nil {
		r.Opener.Bound(graceToOpen, r.killOpener.Pull)
	}
}

// releaseOpener lets go of the opener: whoever asks it from now on waits as long as it takes, and does not kill it.
func (r *recording) releaseOpener() {
	if r.Opener != nil {
		r.Opener.Bound(0, nil)
	}
	r.killOpener.Close()
}

// describeKernel writes the kernel's mappings, which are only in files.
func (r *recording) describeKernel() error {
	if r.Adopted != nil {
		return nil
	}
	var records [][]byte
	var ids []perfdata.BuildID
	if r.Source == nil { // it has no kernel
		var err error
		if records, ids, err = perfdata.KernelRecords(r.source.Format()); err != nil && r.kernelToo() {
			r.note(err.Error())
		}
	}
	describe := func(w Output) error {
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
	switch w := r.writer.(type) { // a confined process could not read the kernel's symbols again
	case *segments:
		w.begins = describe
	case *flight:
		w.begins = describe
		return nil
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
	flush, report, sweep := r.began.Add(flushEvery), r.began.Add(reportEvery), r.began.Add(sweepEvery)
	wakes := newWakeups()
	guard, cpus := cpuGuard{r.began, cpuTime()}, r.began
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
		if err := r.rotate(ctx); err != nil {
			return err
		}
		if now.After(report) && r.Progress != nil {
			report = now.Add(reportEvery)
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

// wait waits until the rings are to be drained. New mappings wake it, so that files are opened while the
// processes that map them exist.
func (r *recording) wait(ctx context.Context, w *wakeups) error {
	if r.session.sawGaps() {
		r.early.begun = true
	}
	until := time.Now().Add(r.untilDrain())
	if end := r.began.Add(r.Duration); r.Duration > 0 && end.Before(until) {
		until = end
	}
	if at, waits := r.resumes(); waits && at.Before(until) {
		until = at
	}
	if answer := time.Now().Add(perfring.Slack); r.sampling.pinged != 0 && answer.Before(until) {
		until = answer
	}
	for {
		if r.session.HasUnread() {
			return nil
		}
		now := time.Now()
		until = r.early.until(now, until)
		// Adopted events wake for samples as well: for nothing, as long as no files are new.
		hold := until.Sub(now)
		if r.Adopted == nil || w.findsNew(now) {
			hold = min(hold, w.due(now))
		}
		if hold > 0 {
			if err := r.source.Pause(hold); err != nil {
				return err
			}
			w.waited(r.source.Crowded())
		}
		timeout := max(0, time.Until(until))
		if r.source.Pressing() {
			timeout = 0
		}
		if err := r.source.Wait(timeout); err != nil {
			return err
		}
		r.delayed(time.Since(now) - max(0, until.Sub(now)))
		r.source.Peek(r.expect)
		r.session.ReadCommandLines()
		if r.opens {
			r.opens = false
			w.foundNew(time.Now())
			// The files are opened now, as their processes may be about to end. Where none are, this would
			// only wake a thread of the runtime, which would look for work in vain.
			runtime.Gosched()
		}
		if r.source.Pressing() {
			if left := leastDrain - time.Duration(r.source.Now()-r.lastDrain); left > 0 {
				return r.source.Sleep(left)
			}
			return nil
		}
		if !time.Now().Before(until) || r.told() || r.over(ctx) {
			return nil
		}
	}
}

// untilDrain is how long the next drain may wait.
func (r *recording) untilDrain() time.Duration { return r.session.rest.drainEvery(r.drainEvery()) }

// expect looks at a record before it is taken.
func (r *recording) expect(rec perfring.Record) {
	if r.session.Expect(rec) {
		r.opens = true
	}
	if t := rec.Type(); t == perfring.RecordFork || t == perfring.RecordComm {
		r.early.begun = true
	}
	r.outrunTask(rec)
}

// leastPeek is after how many records the rings are looked at while they are drained.
const leastPeek = 64

// record takes the next record from the rings. Now and then it looks ahead for new mappings, as their
// processes may be about to end.
func (r *recording) record(rec perfring.Record) error {
	if r.untilPeek--; r.untilPeek <= 0 {
		// As rare as there are rings that it goes through, which would else be most of a record's cost.
		r.untilPeek = max(leastPeek, r.source.Rings()/2)
		r.source.Peek(r.expect)
	}
	return r.session.Record(rec)
}

// drained lets the recording continue after a corrupt ring, whose content is lost: the user is told.
func (r *recording) drained(err error) error {
	if errors.Is(err, perfring.ErrCorrupt) {
		r.note(err.Error())
		return nil
	}
	return err
}

func (r *recording) over(ctx context.Context) bool {
	switch {
	case ctx.Err() != nil, r.sampling.stopped, r.openerGone.Load(), r.Duration > 0 && time.Since(r.began) >= r.Duration:
		return true
	case r.command != nil:
		return r.command.ended()
	}
	return r.source.Done()
}

// measure updates the statistics that are measured rather than counted.
func (r *recording) measure(now time.Time) {
	st := &r.session.Stats
	st.Command = maskCommand(r.Command)
	st.Duration = now.Sub(r.began)
	st.CPU = r.cpu()
	st.Busy = st.CPU - r.busyCPU
	st.MaxRSS = maxRSS()
	st.Lost = r.source.Lost()
	st.Forgotten = r.session.table.Forgotten()
	st.LeftOut = r.session.table.LeftOut()
	st.OfflineCPUs = r.source.OfflineCPUs()
	st.Written = uint64(r.writer.Written())
}

// finish completes the recording, ends the command if it still runs, which may take longer than the opener has,
// and sums up.
func (r *recording) finish() error {
	err := r.complete()
	if r.command != nil {
		if cerr := r.endCommand(); err == nil {
			err = cerr
		}
	}
	r.session.Stats.CPU = r.cpu()
	r.session.Stats.MaxRSS = maxRSS()
	r.session.Stats.Written = uint64(r.writer.Written())
	r.out.Stats = r.session.Stats
	return err
}

// complete takes what is left in the rings, and completes the file.
func (r *recording) complete() error {
	r.boundOpener()
	now := time.Now()
	err := r.readLastCommandLines()
	if r.Adopted == nil {
		if derr := r.source.Disable(); err == nil {
			err = derr
		}
	}
	if ferr := r.drained(r.source.Flush(r.session.Record)); err == nil {
		err = ferr
	}
	if ferr := r.session.Flush(); err == nil {
		err = ferr
	}
	if ferr := r.session.EndCommandLines(); err == nil {
		err = ferr
	}
	if ferr := r.answerPing(math.MaxUint64); err == nil {
		err = ferr
	}
	r.measure(now)
	if err == nil {
		err = r.session.Lost(r.session.Stats.Lost, r.anyID())
	}
	r.session.TellBuildIDs()
	r.keepMaps()
	r.tellSampled(true)
	if cerr := r.writer.Close(); err == nil {
		err = cerr
	}
	return err
}

// keepMaps makes the recording keep the perf maps of what was sampled, and notes what generated code lacks.
func (r *recording) keepMaps() {
	g := r.session.generators
	if g == nil {
		return
	}
	defer g.close()
	g.finish()
	r.writer.KeepPerfMaps(g.kept())
	r.out.Trouble.generated = g.told()
}

// readLastCommandLines reads command lines as long as records tell what else happens.
func (r *recording) readLastCommandLines() error {
	if !r.CommandLines {
		return nil
	}
	err := r.drained(r.source.Drain(r.record))
	r.session.ReadLastCommandLines()
	return err
}

// tellSampled hands the sampled files on, if they are asked for.
func (r *recording) tellSampled(last bool) {
	if r.Sampled != nil {
		r.Sampled(r.session.Images().Files(), last)
	}
}

// anyID is the ID of one of the events.
func (r *recording) anyID() uint64 {
	for _, a := range r.source.Attrs() {
		if len(a.IDs) > 0 {
			return a.IDs[0]
		}
	}
	return 0
}

const (
	graceToEnd  = 500 * time.Millisecond // after an interrupt from the terminal
	graceToTerm = 3 * time.Second
	graceToDie  = 5 * time.Second // after SIGKILL, which takes as long as the kernel takes to free its memory
	// graceToOpen is how long the opener may take for an answer when the recording is to end.
	graceToOpen = 5 * time.Second
)

// errOpenerGone is why a recording ends by itself.
var errOpenerGone = errors.New("the process that opens files for this one was killed, so the recording ends here")

// A NotEndedError means that the command has survived SIGKILL so far, or could not be sent it.
type NotEndedError struct {
	Command string
	PID     int
}

func (e *NotEndedError) Error() string {
	return fmt.Sprintf("%s (process %d) has not ended %v after SIGKILL: it has become another user's, its cgroup is "+
		"frozen, or the kernel holds it", e.Command, e.PID, graceToDie)
}

// endCommand waits for the command to end, and ends it if it does not. An interrupt from the terminal reaches
// the command directly.
func (r *recording) endCommand() error {
	c := r.command
	if !c.started {
		c.cancel()
		return nil
	}
	defer c.release()
	if r.out.ExitStatus != 0 { // it never ran
		c.reap()
		return nil
	}
	wait := func(d time.Duration) bool {
		select {
		case <-c.done:
			return true
		case <-time.After(d):
			return false
		}
	}
	timeUp := r.sampling.stopped || r.Duration > 0 && time.Since(r.began) >= r.Duration
	if !c.ended() && (timeUp || !wait(graceToEnd)) {
		c.term.Pull()
		if !wait(graceToTerm) {
			c.kill.Pull()
			if !wait(graceToDie) {
				return &NotEndedError{c.name, c.pid()}
			}
		}
	}
	c.reap()
	r.out.ExitStatus = c.exitStatus()
	if timeUp && c.status.Signaled() &&
		(c.status.Signal() == syscall.SIGTERM || c.status.Signal() == syscall.SIGKILL) {
		r.out.ExitStatus = 0 // it ended because we were asked to end it
	}
	return nil
}

// cpu is the CPU time of this process and of its opener.
func (r *recording) cpu() time.Duration {
	if r.Opener != nil {
		r.openCPU = max(r.openCPU, r.Opener.CPU())
	}
	return cpuTime() + r.openCPU
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func maxRSS() uint64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return uint64(u.Maxrss) << 10
}
