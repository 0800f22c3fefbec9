package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"unspool/capture/counts"
	"unspool/capture/live"
	"unspool/capture/live/control"
	outfile "unspool/capture/output"
	"unspool/capture/rights/priority"
	"unspool/perfring"
)

// recordFlags are the options of record as they are typed.
type recordFlags struct {
	targetFlags
	events    []string
	freq      rate
	period    positive
	ring      string
	output    string
	compress  int
	duration  span
	delay     delay
	control   string
	stackSize stackSize
	graph     callGraph
	maxStack  int
	strict    bool
	noJoin    bool
	noCmdline bool
	stats     string
	quiet     bool
	verbose   bool
	noCache   bool
	chains    bool    // for compare --price
	spool     spooled // in a process of its own
	rotationFlags
	sandboxFlags
	exportFlags
	names nameFlags
}

const (
	defaultMaxStack = 2048
	leastDuration   = time.Millisecond
	largestMaxStack = 7000 // what fits a record of 64 KiB beside the kernel's part
)

func recordCommand(status *int) *cobra.Command {
	var f recordFlags
	c := &cobra.Command{
		Use:   "record [options] -a | -p PID[,PID…] | -- COMMAND [ARG…]",
		Short: "Record a profile",
		Long: `Record samples with full stacks, of a command, of running processes, or of the
whole system, into a perf.data file that perf, Hotspot and 'unspool report' read, or in
the format of another tool.

Events have the names that 'unspool help events' and 'perf list' show. mem:ADDR:x takes a sample for each call of
the function at ADDR, and mem:ADDR/LEN:w for each write to memory there.

With -a or -p, a COMMAND says how long to record: while it runs. Ctrl-C ends a
recording and leaves a complete file.`,
		Example: `  unspool record -- make -j4
  unspool record -p 4711 -d 5
  unspool record -a -F 4999 -o - | perf report -i -
  unspool record -o flames.html -- ./program
  unspool record -e page-faults -c 1 -- ./program
  unspool record -e mem:0x401136:x:u -- ./program`,
		Args: func(_ *cobra.Command, args []string) error {
			if !f.given() && len(args) == 0 {
				return &usageError{"unspool record", errors.New("nothing to record: give -a, -p PID or a COMMAND")}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var err error
			*status, err = f.record(args)
			var missing *live.CommandError
			if errors.As(err, &missing) && f.compress == 1 && numeric(args[0]) {
				err = fmt.Errorf("%w; the level of -z is given as -z=%s", err, args[0])
			}
			return err
		},
		ValidArgsFunction:     completeCommand,
		DisableFlagsInUseLine: true,
	}
	f.addRecording(c)
	fl := c.Flags()
	fl.BoolVar(&f.wait, "wait", false, "with -p NAME, wait until there is a process with that name")
	fl.BoolVar(&f.noJoin, "no-join", false,
		noJoinText)
	fl.BoolVar(&f.noCmdline, "no-cmdline", false,
		"do not record the command lines of sampled processes")
	fl.VarP(&f.delay, "delay", "D",
		"take no samples for the first `MS` milliseconds, or 2s; -1: until --control says so")
	fl.StringVar(&f.control, "control", "",
		"follow commands from a `FIFO`, fifo:CTL or fifo:CTL,ACK: enable, disable, stop, ping")
	fl.StringVarP(&f.output, "output", "o", "perf.data",
		"write to `FILE`, - for a pipe; its ending says the format")
	f.rotationFlags.add(fl)
	fl.BoolVarP(&f.noCache, "no-buildid-cache", "N", false,
		"do not keep files that are gone, or of another root, in perf's build-ID cache (~/.debug)")
	fl.IntVarP(&f.compress, "compress", "z", 0, compressText)
	fl.Lookup("compress").NoOptDefVal = "1"
	f.exportFlags.add(c)
	f.names.addShorten(c)
	fl.StringVar(&f.stats, "stats", "",
		"write statistics as JSON to `FILE`, - for stdout, COMMAND's then being stderr: see 'unspool help json'")
	refuseEmpty(fl, "control", "stats")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but errors")
	addVerbose(fl, &f.verbose)
	fl.BoolVar(&f.chains, chainsFlag, false, "")
	_ = fl.MarkHidden(chainsFlag)
	c.MarkFlagsMutuallyExclusive("cmdline", "no-cmdline")
	f.sandboxFlags.add(c, "record")
	f.addSpool(fl)
	return c
}

// addRecording adds the options that say what is recorded, and how.
func (f *recordFlags) addRecording(c *cobra.Command) {
	fl := c.Flags()
	fl.SetInterspersed(false) // what follows COMMAND is COMMAND's
	fl.SortFlags = false
	f.targetFlags.add(c)
	fl.StringArrayVarP(&f.events, "event", "e", nil,
		"sample `EVENT`, also EVENT:u or :k, or several (default cycles, or cpu-clock without a PMU)")
	fl.VarP(&f.freq, "freq", "F", "take `HZ` samples a second, or max (default 999)")
	fl.VarP(&f.period, "count", "c",
		"sample every `N`th event instead (default for tracepoints and mem:ADDR: 1)")
	ring := "`PAGES` of ring buffer for each CPU, or a size such as 4M"
	if f.ring == "" {
		ring += " (default what holds 1/4 s of samples, within 256M for all)"
	}
	fl.StringVarP(&f.ring, "mmap-pages", "m", f.ring, ring)
	fl.VarP(atLeast{&f.duration, leastDuration}, "duration", "d",
		"end after `SECONDS`, or a time such as 5m, and COMMAND with it")
	most := fmt.Sprintf("copy `BYTES` of each stack, also 16k: a multiple of 8, at most %d",
		perfring.MaxStackSize)
	if f.stackSize == 0 {
		most += " (default that, or less where rings are small and the rest is read)"
	}
	fl.Var(&f.stackSize, "stack-size", most)
	f.graph.add(fl, &f.stackSize)
	fl.IntVar(&f.maxStack, "max-stack", defaultMaxStack, "end user stacks after `N` frames")
	fl.BoolVar(&f.strict, "strict", false, "unwind by CFI only: no frame pointers, no guesses, no joins")
	c.RegisterFlagCompletionFunc("event", completeEvents)
}

// chainsFlag is the option by which stacks are left to frame pointers.
const chainsFlag = "chains-only"

// options turns flags into what capture is asked to do.
func (f *recordFlags) options(command []string) (o live.Options, err error) {
	o = live.Options{
		Command: command,
		Freq:    uint64(f.freq), Period: uint64(f.period),
		StackSize: int(f.stackSize), MaxStack: f.maxStack, Strict: f.strict, NoJoin: f.noJoin, RaisePriority: true,
		ChainsOnly: f.chains,
		Output:     f.output, Compress: f.compress,
		CommandLine: os.Args,
		Version:     "unspool " + version,
	}
	if err := f.targetFlags.check(); err != nil {
		return o, err
	}
	switch {
	case f.delay < 0 && f.control == "":
		return o, errors.New("-D -1 needs --control, which says when samples are taken")
	case f.freq > 0 && f.period > 0:
		return o, errors.New("-F and -c cannot be used together")
	case f.maxStack < 1 || f.maxStack > largestMaxStack:
		return o, fmt.Errorf("--max-stack %d: must be 1 to %d frames", f.maxStack, largestMaxStack)
	case f.compress < 0 || f.compress > 22:
		return o, fmt.Errorf("-z %d: must be a level from 1 to 22", f.compress)
	case f.output == "":
		return o, errors.New("-o: the file's name is empty")
	case outfile.Stdout(f.stats) && outfile.Stdout(f.output):
		return o, fmt.Errorf("-o %s and --stats %s cannot both write to stdout", f.output, f.stats)
	}
	if err := f.targets(&o, f.spool.pids, f.quiet); err != nil {
		return o, err
	}
	if outfile.Stdout(f.output) || outfile.Stdout(f.stats) {
		o.CommandStdout = os.Stderr // the pipe is for the recording alone, or for the statistics
	}
	o.Duration, o.Delay = time.Duration(f.duration), time.Duration(f.delay)
	if o.RingPages, err = ringPages(f.ring); err != nil {
		return o, err
	}
	if len(f.events) > 0 {
		if o.Events, err = perfring.ParseEvents(strings.Join(f.events, ",")); err != nil {
			return o, &eventsError{err}
		}
	}
	return o, nil
}

// ringPages reads a number of pages, or a size with a unit, and rounds it up
// to the power of two that the kernel wants. Empty is 0, for the default.
func ringPages(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	const most = 1 << 20 // 4 GiB
	must := fmt.Errorf("-m %s: must be a number of pages, or a size in K, M or G such as 4M, "+
		"at most 4 GiB for each CPU", s)
	number, unit, err := inUnits(s)
	if err != nil {
		return 0, must
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil || n == 0 {
		return 0, must
	}
	if number != s {
		page := uint64(os.Getpagesize())
		n = (n*unit + page - 1) / page
	}
	if n > most {
		return 0, must
	}
	pages := 1
	for uint64(pages) < n {
		pages *= 2
	}
	return pages, nil
}

// badOptions is an error of options, which says where their help is, unless only a process is missing.
func badOptions(command string, err error) error {
	if missing := (*missingProcess)(nil); errors.As(err, &missing) {
		return err
	}
	return &usageError{command, err}
}

// record runs a recording and returns its exit status.
func (f *recordFlags) record(command []string) (status int, err error) {
	o, err := f.options(command)
	if err == nil {
		err = f.choose(f.output)
	}
	if err == nil {
		err = f.rotationFlags.check(f.output, f.exports())
	}
	if err != nil {
		return statusFailure, badOptions("unspool record", err)
	}
	if s := f.graph.remark(); s != "" && !f.quiet && f.spool.path == "" {
		say("%s", s)
	}
	f.sandbox = f.confines()
	if f.spool.path != "" {
		return f.recordSpool(o)
	}
	// The outputs are found before COMMAND runs, which could put something in their way.
	to, err := outfile.Find(f.output)
	if err != nil {
		return statusFailure, err
	}
	defer to.Close()
	var end func()
	if o.Rotation, end, err = f.rotation(to); err != nil {
		return statusFailure, err
	}
	defer end()
	stats, err := findStats(f.stats)
	if err != nil {
		return statusFailure, err
	}
	defer stats.Close()
	if f.exports() {
		return f.export(o, to, stats)
	}
	o.Place = to
	_, status, err = f.run(o, stats)
	return status, err
}

// export records, and writes the recording in another format when it is over.
func (f *recordFlags) export(o live.Options, to, stats *outfile.Place) (status int, err error) {
	recorded, folder, err := spool(to)
	if err != nil {
		return statusFailure, err
	}
	defer recorded.Close()
	remove := func() {
		recorded.Remove()
		if folder != "" {
			os.RemoveAll(folder)
		}
	}
	var started bool
	if !f.sandbox {
		o.Output, o.Place = recorded.Path(), recorded
		started, status, err = f.run(o, stats)
	} else {
		var a childResult
		a, err = recordInChild(recorded, o.PIDs)
		f.names.files, started, status = a.files, a.started, a.status
	}
	defer f.names.closeFiles()
	if !started {
		remove()
		return status, err
	}
	werr := f.writeConfined(recorded, folder, to, remove)
	if werr != nil {
		return statusFailure, errors.Join(err, fmt.Errorf("%w; the recording is in %s", werr, recorded.Path()))
	}
	return status, err
}

// writeConfined writes a recording in the other format without rights, and removes it then. The folder is the
// temporary one that it is in, "" for none.
func (f *recordFlags) writeConfined(recorded *outfile.Place, folder string, to *outfile.Place,
	remove func()) error {
	// It is opened here, as the user who called sudo may not read where it is.
	input, err := os.Open(recorded.Input())
	if err != nil {
		return err
	}
	defer input.Close()
	r := reading{outputs: []*outfile.Place{to, recorded}, names: &f.names, verbose: f.verbose, after: true}
	if folder != "" {
		r.folders = []string{folder}
	}
	confined, err := f.confineReading(r)
	if err != nil {
		return err
	}
	defer confined.close()
	path := fmt.Sprintf("/proc/self/fd/%d", input.Fd())
	if err := f.write(path, f.output, to, f.names, f.quiet, f.verbose); err != nil {
		return err
	}
	remove()
	return nil
}

// run records and sums up; it reports whether there is a recording. Errors are returned
// after the summary of what could be recorded all the same.
func (f *recordFlags) run(o live.Options, stats *outfile.Place) (started bool, status int, err error) {
	var line *statusLine
	o.Warn = func(s string) { say("%s", s) }
	if !f.quiet {
		line = newStatusLine(os.Stderr)
		o.Note, o.Warn = line.note, line.note
		o.Progress = line.update
	}

	if f.control != "" { // opened by the process that records only, as each line is read once
		if o.Control, err = control.Open(f.control); err != nil {
			return false, statusFailure, fmt.Errorf("--control: %w", err)
		}
		defer o.Control.Close()
	}

	// One goroutine does the work. With more processors, each wake-up wakes another thread to look for some.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ctx, stop := f.untilEnded()
	defer stop()
	// Without a handler the runtime would end the process when the reader of
	// our pipe has gone; ignored, the command would inherit it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	confined, err := f.confine(&o, stats)
	if err != nil {
		return false, statusFailure, err
	}
	defer confined.close()
	o.CommandLines = f.recordsCommandLines()
	kept, err := f.keepNames(&o)
	if err != nil {
		return false, statusFailure, err
	}
	out, err := recordPrivileged(ctx, o)
	line.clear()
	limits := counts.Settings{StackSize: out.StackSize, MaxStack: f.maxStack, ReadsRest: out.ReadsRest,
		RealTime: priority.SaysRealTime(out.Stats.Priority)}
	name := o.Output
	switch {
	case f.exports():
		name = "-" // it is not what was asked for
	case errors.As(err, new(*fs.PathError)):
		name = "-" // the error says what has become of the file
	case o.Rotation != nil:
		name = cmp.Or(o.Rotation.Files(), "-")
	}
	if f.verbose && out.Started {
		fmt.Fprintf(os.Stderr, "unspool: %s\nunspool: rings: %s\n", confined, counts.RingsText(&out.Stats.Rings))
	}
	switch {
	case f.quiet:
	case out.TargetsEnded:
		say("%s", f.ended(o.PIDs))
	case o.Cgroup != nil && cgroupIsGone(o.Cgroup):
		say("the cgroup %s was removed meanwhile, as when a service is stopped: one of that path that came later is not "+
			"in the recording; -G with the slice that it is in records both", o.Cgroup.Name())
	}
	if serr := sumUp(&out.Result, limits, name, stats, f.quiet, f.verbose); err == nil {
		err = serr
	}
	if out.Started {
		kept.tell(f.quiet)
	}
	if err != nil {
		return out.Started, statusFailure, err
	}
	return out.Started, out.ExitStatus, nil
}

// recordsCommandLines reports whether command lines of processes are recorded: for another format than perf.data, only
// if that is to have them.
func (f *recordFlags) recordsCommandLines() bool { return !f.noCmdline && (f.cmdline || !f.exports()) }

// untilEnded returns a context that is done when somebody asks the recording to end.
func (f *recordFlags) untilEnded() (ctx context.Context, stop func()) {
	if f.spool.path != "" {
		return f.untilAsked()
	}
	return untilInterrupted()
}

// sumUp tells what a recording or a conversion came to: in words on stderr, unless quiet, and as JSON in the
// place stats, unless that is nil. The error is that of this file.
func sumUp(out *counts.Result, l counts.Settings, name string, stats *outfile.Place,
	quiet, verbose bool) error {
	if !out.Started {
		return nil
	}
	if name == "-" {
		name = ""
	}
	if !quiet {
		counts.WriteSummary(os.Stderr, &out.Stats, out.Trouble, l, name)
		if verbose {
			counts.WriteFiles(os.Stderr, out.Trouble)
		}
	} else {
		counts.WriteLosses(os.Stderr, &out.Stats, l)
	}
	if stats == nil {
		return nil
	}
	return writeStats(stats, &out.Stats)
}

// findStats finds the place of the statistics, nil for no name.
func findStats(name string) (*outfile.Place, error) {
	if name == "" {
		return nil, nil
	}
	return outfile.Find(name)
}

// writeStats writes the statistics as JSON.
func writeStats(to *outfile.Place, s *counts.Stats) error {
	file, err := to.Create()
	if err != nil {
		return err
	}
	defer file.Discard()
	if err := s.WriteJSON(file); err != nil {
		return err
	}
	return file.Keep()
}
