package capture

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"unspool/capture/output"
	"unspool/capture/perfdata"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// Options say what is recorded, and how.
type Options struct {
	AllCPUs bool
	PIDs    []int
	Command []string // run while recording; recorded itself unless AllCPUs or PIDs are set

	Events       []perfring.Event // none: cycles, or cpu-clock
	Freq, Period uint64           // samples a second, or events a sample; 0, 0: the default
	RingPages    int              // 0: 8 MiB a CPU
	StackSize    int              // bytes of stack to copy
	MaxStack     int              // frames of a user stack
	Strict       bool             // CFI only
	Pairs        bool             // for package compare: beside each stack, that of frame pointers
	Hurry        bool             // this process goes before those that it records, where it may
	Duration     time.Duration    // 0: until the command or the processes end, or until stopped

	CommandStdout *os.File // nil: our own

	Output      string        // file, "-" for stdout
	Place       *output.Place // what Output leads to, where it has been found already
	Compress    int           // zstd level, 0 for none
	CommandLine []string      // of unspool, for the file's header
	Version     string        // likewise

	// Note is told what was done otherwise than asked, in words.
	Note func(string)
	// Progress is called twice a second with what has been counted so far.
	Progress func(*Stats)
}

// An Outcome is what a recording came to.
type Outcome struct {
	Stats   Stats
	Trouble *Trouble
	// Started says that events were enabled: there is something to summarize.
	Started bool
	// ExitStatus is the command's own, 0 when there was none.
	ExitStatus int
}

const (
	wakeEvery   = 100 * time.Millisecond // each wake-up costs more than what there is to do
	flushEvery  = 200 * time.Millisecond // what a killed recording may lose
	reportEvery = 500 * time.Millisecond
	sweepEvery  = 10 * time.Second
)

// Record records until the duration is over, the command or the recorded
// processes have ended, or ctx is done. The recording is finished, and the
// outcome valid, whatever the error is: an error means that less was written
// than should have been.
func Record(ctx context.Context, o Options) (out Outcome, err error) {
	out.Trouble = newTrouble()
	r := &recording{Options: o, out: &out}
	if len(o.Command) > 0 {
		if o.CommandStdout == nil {
			o.CommandStdout = os.Stdout
		}
		if r.command, err = newCommand(o.Command, o.CommandStdout); err != nil {
			return out, err
		}
	}
	if err := r.open(); err != nil {
		if r.command != nil {
			r.command.cancel()
		}
		return out, err
	}
	defer r.source.Close()
	// What goes wrong while finishing mostly follows from what went wrong before.
	err = r.run(ctx)
	if ferr := r.finish(); err == nil {
		err = ferr
	}
	return out, err
}

// A recording is a live session with what it reads from and writes to.
type recording struct {
	Options
	out     *Outcome
	command *command
	source  *perfring.Source
	writer  *perfdata.Writer
	session *Session

	records uint64 // taken from the rings

	began   time.Time
	busyCPU time.Duration // CPU time used before the events were enabled
}

func (r *recording) open() error {
	t := perfring.Target{AllCPUs: r.AllCPUs, PIDs: r.PIDs}
	if r.command != nil && !t.AllCPUs && len(t.PIDs) == 0 {
		t.Command = r.command.pid()
	}
	var err error
	if len(r.Events) == 0 {
		var note string
		if r.Events, note, err = perfring.DefaultEvents(); err != nil {
			return err
		}
		if note != "" {
			r.note(note)
		}
	}
	r.source, err = perfring.Open(t, perfring.Options{
		Events: r.Events, Freq: r.Freq, Period: r.Period, StackSize: r.StackSize, Pages: r.RingPages,
		UserChain: !r.Strict || r.Pairs,
	})
	if err != nil {
		return err
	}
	for _, n := range r.source.Notes() {
		r.note(n)
	}
	var events []perfring.Attr
	for _, a := range r.source.Attrs() {
		events = append(events, a.WithBuildIDs())
	}
	r.writer, err = perfdata.Create(perfdata.Options{
		Path: r.Output, Place: r.Place, Events: events,
		CommandLine: r.CommandLine, Version: r.Version, Compress: r.Compress,
	})
	if err != nil {
		r.source.Close()
		return err
	}
	r.session = NewSession(Config{
		Format: r.source.Format(), Sink: r.writer, Proc: "/proc", Live: true, Kernel: r.kernelToo(),
		MaxStack: r.MaxStack, Strict: r.Strict, Pairs: r.Pairs,
		BuildIDs: func(path string, id []byte) { r.writer.BuildID(path, id, false) },
	})
	r.out.Trouble = r.session.Trouble()
	return nil
}

func (r *recording) note(s string) {
	if r.Note != nil {
		r.Note(s)
	}
}

// run records from the first sample to the last.
func (r *recording) run(ctx context.Context) error {
	if err := r.describeKernel(); err != nil {
		return err
	}
	if r.Hurry {
		hurry()
	}
	r.busyCPU = cpuTime()
	r.began = time.Now()
	r.out.Started = true
	stop := context.AfterFunc(ctx, r.source.Wake)
	defer stop()

	// The events first, then the scan of what runs already: see vmas.
	follows := r.command != nil && !r.AllCPUs && len(r.PIDs) == 0
	if !follows {
		if err := r.source.Enable(); err != nil {
			return err
		}
		if err := r.session.Seed(r.PIDs); err != nil {
			return err
		}
	}
	if r.command != nil {
		if err := r.command.run(r.source.Wake); err != nil {
			r.out.ExitStatus = err.(*CommandError).ExitStatus()
			return err
		}
	}
	return r.loop(ctx)
}

// describeKernel writes the kernel's mappings.
func (r *recording) describeKernel() error {
	records, ids, err := perfdata.KernelRecords(r.source.Format())
	if err != nil && r.kernelToo() {
		r.note(err.Error())
	}
	for _, rec := range records {
		if err := r.writer.Write(rec); err != nil {
			return err
		}
	}
	for _, id := range ids {
		r.writer.BuildID(id.Path, id.ID, id.Kernel)
	}
	return nil
}

// kernelToo says whether any event is sampled in the kernel.
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
	var pace pace
	for !r.over(ctx) {
		if err := r.wait(ctx, &pace); err != nil {
			return err
		}
		if err := r.drained(r.source.Drain(r.record)); err != nil {
			return err
		}
		now := time.Now()
		if now.After(flush) {
			flush = now.Add(flushEvery)
			if err := r.writer.Round(); err != nil {
				return err
			}
		}
		if now.After(report) && r.Progress != nil {
			report = now.Add(reportEvery)
			r.measure(now)
			r.Progress(&r.session.Stats)
		}
		if now.After(sweep) {
			sweep = now.Add(sweepEvery)
			r.session.Sweep()
		}
	}
	return nil
}

// wait waits until it is time to drain the rings. New mappings wake it, so that files are opened while the
// processes that map them are there.
func (r *recording) wait(ctx context.Context, p *pace) error {
	until := time.Now().Add(wakeEvery)
	if end := r.began.Add(r.Duration); r.Duration > 0 && end.Before(until) {
		until = end
	}
	for {
		p.hold()
		if err := r.source.Wait(max(0, time.Until(until))); err != nil {
			return err
		}
		r.source.Peek(r.session.Expect)
		if !time.Now().Before(until) || r.source.Pressing() || r.over(ctx) {
			return nil
		}
	}
}

// record takes the next record from the rings. What waits behind many may be a mapping of a process that is
// about to end.
func (r *recording) record(rec perfring.Record) error {
	if r.records++; r.records%64 == 0 {
		r.source.Peek(r.session.Expect)
	}
	return r.session.Record(rec)
}

// A pace bounds how often a recording is woken: at once as long as there are few new mappings, with what a
// program maps when it begins taken together, and every 5 ms in a storm.
type pace struct {
	at     time.Time
	credit time.Duration
}

const (
	wakePrice  = 5 * time.Millisecond
	mostCredit = 20 * wakePrice
	wakeLeast  = 2 * time.Millisecond // between two wake-ups
)

// hold takes the price of a wake-up from the credit, and waits for what is missing.
func (p *pace) hold() { time.Sleep(p.due(time.Now())) }

// due takes the price of a wake-up at a time from the credit, and returns how long to wait for what is
// missing.
func (p *pace) due(now time.Time) time.Duration {
	since := now.Sub(p.at)
	p.credit = min(p.credit+since, mostCredit) - wakePrice
	p.at = now
	return max(-p.credit, wakeLeast-since, 0)
}

// drained lets the recording go on after a ring had to be given up: that has
// cost one ring's content, and is said.
func (r *recording) drained(err error) error {
	if errors.Is(err, perfring.ErrCorrupt) {
		r.note(err.Error())
		return nil
	}
	return err
}

func (r *recording) over(ctx context.Context) bool {
	switch {
	case ctx.Err() != nil, r.Duration > 0 && time.Since(r.began) >= r.Duration:
		return true
	case r.command != nil:
		return r.command.ended()
	}
	return r.source.Done()
}

// measure brings the statistics that are not counted up to date.
func (r *recording) measure(now time.Time) {
	st := &r.session.Stats
	st.Command = r.Command
	st.Duration = now.Sub(r.began)
	st.CPU = cpuTime()
	st.Busy = st.CPU - r.busyCPU
	st.MaxRSS = maxRSS()
	st.Lost = r.source.Lost()
	st.Written = uint64(r.writer.Written())
}

// finish takes what is left in the rings and completes the file, ends the
// command if it still runs, and sums up.
func (r *recording) finish() error {
	now := time.Now()
	err := r.source.Disable()
	if ferr := r.drained(r.source.Flush(r.session.Record)); err == nil {
		err = ferr
	}
	r.measure(now)
	if err == nil {
		err = r.session.Lost(r.session.Stats.Lost, r.anyID())
	}
	if r.command != nil {
		r.endCommand()
	}
	r.session.TellBuildIDs()
	if cerr := r.writer.Close(); err == nil {
		err = cerr
	}
	r.session.Stats.CPU = cpuTime()
	r.session.Stats.MaxRSS = maxRSS()
	r.session.Stats.Written = uint64(r.writer.Written())
	r.out.Stats = r.session.Stats
	return err
}

// anyID is the ID of an event.
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
)

// endCommand waits for the command to end, and makes it if it does not. An
// interrupt from the terminal reaches the command by itself.
func (r *recording) endCommand() {
	c := r.command
	if r.out.ExitStatus != 0 {
		return // it never ran
	}
	wait := func(d time.Duration) bool {
		select {
		case <-c.done:
			return true
		case <-time.After(d):
			return false
		}
	}
	timeUp := r.Duration > 0 && time.Since(r.began) >= r.Duration
	if !c.ended() && (timeUp || !wait(graceToEnd)) {
		c.cmd.Process.Signal(syscall.SIGTERM)
		if !wait(graceToTerm) {
			c.cmd.Process.Kill()
			<-c.done
		}
	}
	r.out.ExitStatus = c.exitStatus()
	if timeUp && c.status.Signaled() &&
		(c.status.Signal() == syscall.SIGTERM || c.status.Signal() == syscall.SIGKILL) {
		r.out.ExitStatus = 0 // it ended because we were asked to end it
	}
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
