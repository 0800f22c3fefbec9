package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"unspool/capture/counts"
	outfile "unspool/capture/output"
	"unspool/capture/recorded"
	"unspool/capture/view/load"
)

// convertFlags are the options of convert as they are typed.
type convertFlags struct {
	output string
	nameFlags
	maxStack int
	strict   bool
	noJoin   bool
	compress int
	jobs     int
	stats    string
	quiet    bool
	verbose  bool
	exportFlags
	sandboxFlags
}

const (
	compressText = "compress with zstd, at a `LEVEL` from 1 to 22 (1 without LEVEL)"
	noJoinText   = "leave stacks that are larger than the copy incomplete, and do not add the callers that " +
		"samples before and after have"
)

func convertCommand() *cobra.Command {
	var f convertFlags
	c := &cobra.Command{
		Use:   "convert [options] IN -o OUT",
		Short: "Unwind a perf recording, or write one in another tool's format",
		Long: `Turn a recording of 'perf record --call-graph dwarf' into one with plain
callchains, mostly 30 times smaller or more, that perf, Hotspot and 'unspool
report' read. Everything but registers and stacks is kept as it is. IN and OUT
are files, or - for a pipe.

With another ending of OUT, or --format, write any recording for another tool,
with names, source lines and inlined functions:

` + formatTable() + `

The mapped files are looked for by build ID: below --symfs, in perf's build-ID
cache, and where they were, if they are still the same. IN is read once, from
front to back. A recording that is cut or damaged is converted up to the damage.`,
		Example: `  unspool convert perf.data -o small.data
  perf record --call-graph dwarf -o - -- ./program | unspool convert - -o perf.data
  unspool convert perf.data -o - | perf report -i -
  unspool convert perf.data -o profile.pb.gz && go tool pprof profile.pb.gz
  unspool convert --symfs /mnt/target perf.data -o small.data`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return &usageError{"unspool convert", errors.New("nothing to convert: give a recording, or - for a pipe")}
			case len(args) > 1:
				return &usageError{"unspool convert",
					fmt.Errorf("unexpected argument %q: convert reads one recording", args[1])}
			case f.output == "":
				return &usageError{"unspool convert", errors.New("no output given: -o FILE, or -o - for a pipe")}
			}
			return nil
		},
		RunE:                  func(_ *cobra.Command, args []string) error { return f.convert(args[0]) },
		DisableFlagsInUseLine: true,
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringVarP(&f.output, "output", "o", "", "write to `OUT`, - for a pipe; its ending says the format")
	f.nameFlags.add(c)
	fl.IntVar(&f.maxStack, "max-stack", defaultMaxStack, "end user stacks after `N` frames")
	fl.BoolVar(&f.strict, "strict", false, "unwind by CFI only: no frame pointers, no guesses, no joins")
	fl.BoolVar(&f.noJoin, "no-join", false, noJoinText)
	fl.IntVarP(&f.compress, "compress", "z", 0, compressText)
	fl.Lookup("compress").NoOptDefVal = "1"
	fl.IntVarP(&f.jobs, "jobs", "j", 1, "use `N` cores; the output is the same")
	fl.StringVar(&f.stats, "stats", "",
		"write statistics as JSON to `FILE`, - for stdout: see 'unspool help json'")
	refuseEmpty(fl, "stats")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but errors")
	addVerbose(fl, &f.verbose)
	f.exportFlags.add(c)
	addTimes(c, &f.exportFlags.time)
	f.sandboxFlags.add(c, "convert")
	return c
}

// options turns flags into the options of [recorded.Convert].
func (f *convertFlags) options(input string) (o recorded.Options, err error) {
	o = recorded.Options{
		Input: input, Output: f.output,
		Symfs: f.symfs, Cache: f.cache,
		MaxStack: f.maxStack, Strict: f.strict, NoJoin: f.noJoin, Compress: f.compress, Jobs: f.jobs,
		OpenKernel: f.openKernel, CommandLines: f.cmdline,
	}
	switch {
	case f.maxStack < 1 || f.maxStack > largestMaxStack:
		return o, fmt.Errorf("--max-stack %d: must be 1 to %d frames", f.maxStack, largestMaxStack)
	case f.compress < 0 || f.compress > 22:
		return o, fmt.Errorf("-z %d: must be a level from 1 to 22", f.compress)
	case f.jobs < 1 || f.jobs > largestJobs:
		return o, fmt.Errorf("-j %d: must be 1 to %d cores", f.jobs, largestJobs)
	case outfile.Stdout(f.stats) && outfile.Stdout(f.output):
		return o, fmt.Errorf("-o %s and --stats %s cannot both write to stdout", f.output, f.stats)
	}
	within, err := times(f.time)
	o.Select = within.Select
	return o, err
}

const largestJobs = 64

// convert converts a recording. Errors are returned after the summary of what
// could be converted all the same.
func (f *convertFlags) convert(input string) error {
	o, err := f.options(input)
	if err == nil {
		err = f.choose(f.output)
	}
	if err != nil {
		return &usageError{"unspool convert", err}
	}
	ctx, stop := untilInterrupted()
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	to, err := outfile.Find(f.output)
	if err != nil {
		return err
	}
	defer to.Close()
	stats, err := findStats(f.stats)
	if err != nil {
		return err
	}
	defer stats.Close()
	if err := f.checkOutput(to, input); err != nil {
		return err // before anything is unwound
	}
	confined, err := f.confineReading(reading{
		outputs: []*outfile.Place{to, stats}, inputs: []*string{&o.Input}, names: &f.nameFlags,
		verbose: f.verbose,
	})
	if err != nil {
		return err
	}
	defer confined.close()
	o.Symfs, o.Cache, o.Files = f.symfs, f.cache, f.opener
	if f.exports() {
		o.Select = nil // stacks are completed from all samples
		return f.export(ctx, o, input, to, stats)
	}
	o.Place = to
	line := f.follow(&o)
	out, err := recorded.Convert(ctx, o)
	line.clear()
	if errors.Is(err, recorded.ErrNoneSelected) {
		within, _ := times(f.time)
		err = fmt.Errorf("no samples %s", within.Within())
	}
	if err != nil && out.Stats.Samples == 0 {
		f.quiet = true // the error says it all
	}
	return errors.Join(err, f.sumUp(&out, f.output, stats))
}

// checkOutput returns an error if the output would replace the input. A recording that it would replace is
// kept as ".old".
func (f *convertFlags) checkOutput(to *outfile.Place, input string) error {
	err := to.CheckInput(input)
	if err == nil && !f.exports() {
		err = to.CheckOld(input)
	}
	return err
}

// export converts a recording into another format; name is what the user calls it. Raw stacks are unwound
// into a temporary recording first.
func (f *convertFlags) export(ctx context.Context, o recorded.Options, name string,
	to, stats *outfile.Place) error {
	line := f.follow(&o)
	unwound, err := load.Unwind(ctx, o)
	line.clear()
	if unwound == nil {
		return err
	}
	defer unwound.Close()
	if unwound.Outcome != nil {
		err = errors.Join(err, f.sumUp(unwound.Outcome, "-", stats))
	} else if f.stats != "" && line != nil {
		line.note(name + " has no raw stacks: nothing was unwound, so --stats writes nothing")
	}
	return errors.Join(err, f.write(unwound.Path, name, to, f.nameFlags, f.quiet, f.verbose))
}

// follow lets a status line follow the conversion.
func (f *convertFlags) follow(o *recorded.Options) *statusLine {
	if f.quiet {
		return nil
	}
	line := newStatusLine(os.Stderr)
	o.Note = line.note
	o.Progress = line.converted
	return line
}

func (f *convertFlags) sumUp(out *recorded.Conversion, name string, stats *outfile.Place) error {
	limits := counts.Settings{MaxStack: f.maxStack, Converted: true, Copied: out.Copied}
	return sumUp(&out.Result, limits, name, stats, f.quiet, f.verbose)
}
