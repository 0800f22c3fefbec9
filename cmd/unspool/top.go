package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/view/top"
)

// topFlags are the options of top as they are typed. What they say about recording is for the process that
// records, to which the command line is passed on.
type topFlags struct {
	recordFlags
	delay span
}

const (
	topFrequency = 199 // samples a second: enough for a second's table, and cheap
	topSpan      = 5 * time.Second
	leastDelay   = 100 * time.Millisecond
)

func topCommand(status *int) *cobra.Command {
	f := topFlags{delay: span(time.Second)}
	c := &cobra.Command{
		Use:   "top [options]",
		Short: "Show live where the time goes",
		Long: `Show what the machine, or some processes, do now: a table of functions, and a tree
of calls below the programs that make them, of the last five seconds, renewed every
second. Keys: q quits, t changes between table and tree, Enter opens a node, / filters,
and ? tells the others.

If standard output is not a terminal, a table of what was new is written every second.
No recording is kept.`,
		Example: `  unspool top
  unspool top -p firefox
  unspool top -d 10 --delay 2 > tables.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{"unspool top", fmt.Errorf("unexpected argument %q: top runs no command", args[0])}
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			var err error
			*status, err = f.top()
			return err
		},
		ValidArgsFunction:     cobra.NoFileCompletions,
		DisableFlagsInUseLine: true,
	}
	f.addRecording(c)
	fl := c.Flags()
	fl.Lookup("all-cpus").Usage = "show the whole system (default)"
	for _, name := range []string{"pid", "tid", "uid", "cpu", "cgroup"} {
		o := fl.Lookup(name)
		o.Usage = strings.Replace(o.Usage, "record", "show", 1)
	}
	fl.Lookup("freq").Usage = fmt.Sprintf("take `HZ` samples a second, or max (default %d)", topFrequency)
	fl.Lookup("event").Usage = "sample `EVENT`, also EVENT:u or :k (default cycles, or cpu-clock without a PMU)"
	fl.Lookup("duration").Usage = "end after `SECONDS`, or a time such as 5m (perf top's -d is --delay)"
	fl.Var(atLeast{&f.delay, leastDelay}, "delay", "show what is new every `SECONDS`, as perf top's --delay")
	f.names.add(c)
	f.sandboxFlags.add(c, "record and show")
	f.addSpool(fl)
	return c
}

// top shows what is recorded, or is the process that records.
func (f *topFlags) top() (status int, err error) {
	f.all = f.all || !f.given()
	f.output, f.quiet = "-", true
	o, err := f.options(nil)
	switch {
	case err != nil:
	case len(o.Events) == 1 && o.Events[0].Breakpoint():
		// Each hit is shown, unless a rate is asked for.
	case o.Freq == 0 && o.Period == 0:
		o.Freq = topFrequency
	}
	switch {
	case err != nil:
	case len(o.Events) > 1:
		err = errors.New("-e: top shows one event")
	}
	if err != nil {
		return statusFailure, badOptions("unspool top", err)
	}
	if f.spool.path != "" {
		f.sandbox = f.confines()
		return f.recordSpool(o)
	}
	if err := f.names.check(); err != nil {
		return statusFailure, err
	}
	live, err := startLive(o.PIDs)
	if err != nil {
		return statusFailure, err
	}
	err = f.show(live)
	// Where the recording failed, that is why it could not be read.
	if status, lerr := live.end(); status != 0 || lerr != nil {
		return status, lerr
	}
	if err != nil {
		return statusFailure, err
	}
	return 0, nil
}

// show shows what a recording has, until that or the user ends it.
func (f *topFlags) show(live *liveRecording) error {
	ctx, stop := untilInterrupted()
	defer stop()
	interactive := isTerminal(os.Stdin) && isTerminal(os.Stdout)
	os.Unsetenv("DEBUGINFOD_URLS") // what is shown cannot wait for servers
	confined, err := f.confineReading(reading{names: &f.names, terminal: interactive})
	if err != nil {
		return err
	}
	defer confined.close()
	r, err := perfdata.OpenStream(live.out, "the recording")
	if err != nil {
		return err
	}
	names := f.names.sources(ctx, "", nil)
	feed := func(fn func(*profile.Profile) error) error { return profile.Follow(r, names, fn) }
	delay := time.Duration(f.delay)
	o := top.Options{Span: max(topSpan, delay), Every: delay, Colour: os.Getenv("NO_COLOR") == ""}
	if interactive {
		return top.Interactive(ctx, os.Stdin, os.Stdout, feed, o)
	}
	return top.Plain(ctx, os.Stdout, feed, o)
}
