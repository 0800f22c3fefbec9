package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/profile/difference"
	"unspool/capture/rights/sandbox"
	"unspool/capture/view/explore"
	"unspool/capture/view/load"
	"unspool/capture/view/report"
)

// reportFlags are the options of report as they are typed.
type reportFlags struct {
	report.Options
	by        string
	inline    bool
	noProcess bool
	comms     []string
	pids      []int
	tids      []int
	time      string
	json      bool
	http      string
	color     colouring
	noPager   bool
	verbose   bool
	html      string
	absolute  bool
	wide      bool
	asPerf
	nameFlags
	sandboxFlags

	filter profile.Filter
}

func reportCommand() *cobra.Command {
	var f reportFlags
	c := &cobra.Command{
		Use:   "report [options] [FILE | A[,A2…] B[,B2…]]",
		Short: "Show the hottest functions and the call tree of a recording, or what differs between two",
		Long: `Show where the time of a recording went: the functions that cost most, by
themselves and with what they called, and the tree of calls, outermost function
first, below the names of the processes if these are of several programs. FILE
(default perf.data, - for a pipe) is any perf.data file, also one that perf
wrote; raw stacks are unwound first.

Of recordings A before a change and B after it, it shows the functions and calls
that take more or less time in B. With several of each, commas between them, what
is more than the spread between runs is called significant and comes first. With
one of each the intervals have the error of sampling alone, and nothing is called
significant. The options apply to all.

On a terminal, text that is longer than the screen goes through $UNSPOOL_PAGER,
$PAGER or less, in colours as --color and NO_COLOR say.`,
		Example: `  unspool report
  unspool report --by process --no-kernel perf.data
  unspool report --comm 'cc1*' --inline --percent-limit 0.5
  unspool report --time 10,20
  unspool report --http
  unspool report perf.data --html
  unspool report perf.data.old perf.data
  unspool report before1,before2,before3 after1,after2,after3
  unspool report before.data after.data --html difference.html
  unspool report --json | jq -r '.events[0].functions[] | "\(.self) \(.name)"'`,
		RunE:                  f.run,
		DisableFlagsInUseLine: true,
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.by, "by", report.Function.String(),
		"add up by `WHAT`: function, comm, process, thread, image or source")
	addInline(fl, &f.inline, false)
	fl.Float64Var(&f.PercentLimit, "percent-limit", 1,
		"leave out what is below `PERCENT` of the samples in the call tree and by WHAT")
	fl.IntVar(&f.Top, "top", 0,
		"show `N` functions in a table (default 20, or 5 with another --by than function)")
	fl.BoolVar(&f.NoKernel, "no-kernel", false, "leave out the kernel's frames")
	fl.BoolVar(&f.noProcess, "no-process", false,
		"begin the call tree with functions, also if there are several programs")
	fl.StringSliceVar(&f.comms, "comm", nil,
		"only threads called `NAME`, which may be a pattern like 'cc1*', or several, NAME,NAME…")
	fl.IntSliceVar(&f.pids, "pid", nil, "only the process `PID`, or several, PID,PID…")
	fl.IntSliceVar(&f.tids, "tid", nil, "only the thread `TID`, or several, TID,TID…")
	addTimes(c, &f.time)
	f.nameFlags.add(c)
	fl.StringVar(&f.http, "http", "",
		"serve pprof's web interface at `ADDR`, --http alone on a free port of localhost")
	fl.Lookup("http").NoOptDefVal = anyAddress
	fl.BoolVar(&f.json, "json", false,
		"write JSON, with all functions and the whole call tree: see 'unspool help json'")
	fl.StringVar(&f.html, "html", "",
		"write a page with a flame graph to `PAGE`, of A and B one of the difference; at the end without PAGE: FILE.html")
	fl.BoolVar(&f.absolute, "absolute", false,
		"of A and B: go by CPU time and not by shares, for recordings of the same work")
	refuseEmpty(fl, "comm", "http", "html")
	f.asPerf.add(c)
	f.color.add(c)
	addWide(fl, &f.wide)
	fl.BoolVar(&f.noPager, "no-pager", false, "write to the terminal, however long it is")
	addVerbose(fl, &f.verbose)
	f.sandboxFlags.add(c, "report")
	c.RegisterFlagCompletionFunc("by",
		cobra.FixedCompletions(report.ByNames(), cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"percent-limit", "top", "comm", "pid", "tid"} {
		c.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return c
}

// run shows one recording, or the difference of two sides.
func (f *reportFlags) run(c *cobra.Command, args []string) error {
	args, err := f.recordings(f.address(args))
	if err == nil && len(args) > 2 {
		err = fmt.Errorf("unexpected argument %q: report reads one recording, or those of two sides, A1,A2 B1,B2",
			args[2])
	}
	if err == nil {
		err = f.check(c, len(args) == 2)
	}
	var sides [2][]string
	if err == nil && len(args) == 2 {
		sides, err = f.sides(args)
	}
	if err != nil {
		return &usageError{"unspool report", err}
	}
	if len(args) == 2 {
		return f.difference(sides)
	}
	f.File = "perf.data"
	if len(args) > 0 {
		f.File = args[0]
	}
	if f.html != "" {
		if f.html, err = htmlPage(f.html, f.File, len(args) > 0); err != nil {
			return &usageError{"unspool report", err}
		}
	}
	if _, err := os.Stat(f.File); len(args) == 0 && errors.Is(err, fs.ErrNotExist) &&
		len(perfdata.PieceNames(f.File)) == 0 {
		return errors.New("no perf.data here: 'unspool record -- COMMAND' makes one, " +
			"'unspool report FILE' reads another")
	}
	if f.html != "" {
		return f.page()
	}
	return f.report()
}

// address removes the address of --http from the arguments, if it was given after a space: it has a port and
// is not the name of a file.
func (f *reportFlags) address(args []string) []string {
	if f.http != anyAddress || len(args) == 0 || !strings.Contains(args[0], ":") {
		return args
	}
	if _, err := os.Stat(args[0]); err == nil {
		return args
	}
	f.http = args[0]
	return args[1:]
}

// anyAddress is --http without an address.
const anyAddress = "localhost:"

// check checks the options and reads the filter. two reports whether there are two recordings.
func (f *reportFlags) check(c *cobra.Command, two bool) (err error) {
	given := c.Flags().Changed
	if f.By, err = report.ParseBy(f.by); err != nil {
		return fmt.Errorf("--by: %w", err)
	}
	if f.sort != "" {
		if f.By, err = f.asPerf.by(); err != nil {
			return err
		}
	}
	switch {
	case f.sort != "" && given("by"):
		return errors.New("--by and --sort cannot be used together")
	case f.http != "" && f.json:
		return errors.New("--http and --json cannot be used together")
	case f.json && given("top"), f.json && given("percent-limit"):
		return errors.New("--top and --percent-limit cannot be used with --json, which writes everything")
	case f.PercentLimit < 0 || f.PercentLimit > 100 || math.IsNaN(f.PercentLimit):
		return fmt.Errorf("--percent-limit %v: must be 0 to 100", f.PercentLimit)
	case f.Top < 0:
		return fmt.Errorf("--top %d: must not be negative", f.Top)
	}
	if err := f.checkTwo(two); err != nil {
		return err
	}
	if !two && f.html != "" {
		for _, text := range []string{"json", "http", "by", "sort", "top", "percent-limit", "no-kernel"} {
			if given(text) {
				return fmt.Errorf("--html and --%s cannot be used together: the page has the whole call tree", text)
			}
		}
	}
	// For report, zero stands for the default.
	if f.PercentLimit == 0 {
		f.PercentLimit = -1
	}
	if f.Top == 0 && given("top") {
		f.Top = -1
	}
	f.filter.Comms = f.comms
	if f.filter.PIDs, err = ids(f.pids); err != nil {
		return fmt.Errorf("--pid %w", err)
	}
	if f.filter.TIDs, err = ids(f.tids); err != nil {
		return fmt.Errorf("--tid %w", err)
	}
	if f.filter.Times, err = times(f.time); err != nil {
		return err
	}
	f.Filter = f.filter.String()
	if err := f.filter.Check(); err != nil {
		return fmt.Errorf("--comm %w", err)
	}
	return nil
}

// sides are the recordings of both sides.
func (f *reportFlags) sides(args []string) (files [2][]string, err error) {
	for side, arg := range args {
		if files[side], err = recordingsOf(arg); err != nil {
			return files, err
		}
	}
	return files, nil
}

// checkTwo checks the options that are for one recording only, or for two.
func (f *reportFlags) checkTwo(two bool) error {
	switch {
	case two && f.http != "":
		return errors.New("--http shows one recording: --html writes a page about two")
	case two && f.By == report.Thread:
		return errors.New("--by thread: of the threads of two recordings only the names can be compared: --by comm")
	case two:
		switch f.html {
		case "-":
			return errors.New("--html -: the difference goes to stdout: name a file")
		case besideFile:
			return errors.New("--html: name the page about two recordings: --html PAGE.html")
		}
	case f.absolute:
		return errors.New("--absolute is for the difference of two recordings, A B")
	}
	return nil
}

// addTimes adds --time.
func addTimes(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "time", "",
		"only what was sampled between `FROM,TO`: seconds from the first sample, percentages, 10%,20%, or times of day, "+
			"14:03:10,14:03:20")
	refuseEmpty(c.Flags(), "time")
	c.RegisterFlagCompletionFunc("time", cobra.NoFileCompletions)
}

// times reads the value of --time.
func times(value string) (t profile.Times, err error) {
	if value == "" {
		return t, nil
	}
	if t, err = profile.ParseTimes(value); err != nil {
		err = fmt.Errorf("--time %w", err)
	}
	return t, err
}

func ids(given []int) (ids []uint32, err error) {
	for _, id := range given {
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("%d: must be 0 to %d", id, math.MaxInt32)
		}
		ids = append(ids, uint32(id))
	}
	return ids, nil
}

// report prints the report. A damaged recording is shown up to the damage, which is in the notes.
func (f *reportFlags) report() error {
	ctx, stop := untilInterrupted()
	defer stop()
	if f.http != "" {
		return f.serve(ctx)
	}
	var pages *pagerProcess
	if isTerminal(os.Stdout) && !f.json && !f.noPager {
		pages = startPager(os.Stdout)
		defer pages.end()
	}
	path := f.File
	confined, err := f.confineReading(reading{
		inputs: []*string{&path}, names: &f.nameFlags, verbose: f.verbose,
	})
	if err != nil {
		return err
	}
	var (
		p    *profile.Profile
		text []byte
	)
	if err = f.pieces(path, pages); err == nil {
		p, err = f.load(ctx, path)
	}
	if err == nil && !f.json {
		text, err = f.text(p)
	}
	confined.close()
	if err != nil {
		return err
	}
	stop() // from here on a signal ends us, as it ends any program that prints
	if f.json {
		return report.WriteJSON(os.Stdout, p, f.Options)
	}
	return pages.show(os.Stdout, text)
}

// text is the report. For its advice, files are opened still.
func (f *reportFlags) text(p *profile.Profile) ([]byte, error) {
	f.Advice, f.AllNotes = f.nameFlags.advice(p), f.verbose
	f.Programs = !f.noProcess && f.By != report.Comm && f.By != report.Process && f.By != report.Thread
	f.Colour = f.color.on(os.Stdout)
	if isTerminal(os.Stdout) && !f.wide {
		f.Width = columns(os.Stdout)
	}
	var text bytes.Buffer
	err := report.Write(&text, p, f.Options)
	return text.Bytes(), err
}

// difference prints what differs between the recordings of two sides.
func (f *reportFlags) difference(files [2][]string) error {
	f.AllNotes = f.verbose
	lines, processes := f.inline || f.By == report.Source, !f.noProcess && !f.json
	d := differenceFlags{
		Difference: report.Difference{Options: f.Options, Amounts: f.absolute},
		load:       profile.Options{Lines: lines, Functions: !lines, Filter: f.filter, Processes: processes},
		merge: difference.Options{
			Lines: f.By == report.Source, Processes: processes, NoKernel: f.NoKernel,
		},
		json: f.json, html: f.html, wide: f.wide, pages: !f.noPager, color: f.color,
		names: &f.nameFlags, reader: &f.sandboxFlags,
	}
	return d.compare(files)
}

// addWide adds --wide.
func addWide(fl *pflag.FlagSet, wide *bool) {
	fl.BoolVar(wide, "wide", false, "show names whole on a terminal, too, in lines that are wider than it")
}

// page writes a page about the recording, as convert does.
func (f *reportFlags) page() error {
	c := convertFlags{
		output: f.html, nameFlags: f.nameFlags, maxStack: defaultMaxStack, jobs: 1, verbose: f.verbose,
		exportFlags: exportFlags{
			name: "flamegraph", symbols: true, inline: true, noProcess: f.noProcess, filter: f.filter,
		},
		sandboxFlags: f.sandboxFlags,
	}
	return c.convert(f.File)
}

// load reads the recording at a path, with source lines if the options need them.
func (f *reportFlags) load(ctx context.Context, path string) (*profile.Profile, error) {
	line := newStatusLine(os.Stderr)
	defer line.clear()
	lines := f.inline || f.By == report.Source || f.http != ""
	return load.Profile(ctx, f.nameFlags.loading(ctx, path, line, profile.Options{
		Lines:     lines,
		Functions: !lines,
		Filter:    f.filter,
		// Elsewhere each thread is named beside its stacks.
		Processes: !f.noProcess && !f.json && f.http == "" && f.By == report.Function,
	}))
}

// serve serves the recording until it is interrupted. It prints the URL and does not start a browser, as
// every user could see the token in its command line.
func (f *reportFlags) serve(ctx context.Context) error {
	listener, err := explore.Listen(ctx, f.http)
	if err != nil {
		return err
	}
	defer listener.Close()
	path := f.File
	confined, err := f.confineReading(reading{
		inputs: []*string{&path}, names: &f.nameFlags, verbose: f.verbose, serves: true,
		programs: explore.Programs(),
	})
	if err != nil {
		return err
	}
	defer confined.close()
	p, err := f.load(ctx, path)
	if err != nil {
		return err
	}
	p.CommandLines = nil
	f.opener = nil // it has rights that this process gives up now
	confined.closeFiles()
	return explore.Serve(ctx, p, explore.Options{
		Symbols: f.nameFlags.sources(ctx, path, nil), Listener: listener, Drop: sandbox.DropRoot,
		Ready:   func(url string) { fmt.Printf("%s shows %s; press Ctrl-C to stop\n", url, f.File) },
		Problem: func(text string) { say("%s", text) },
	})
}
