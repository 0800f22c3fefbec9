package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"unspool/capture/recorded"
	"unspool/capture/symbols"
	"unspool/capture/verdict/check"
)

// checkFlags are the options of check as they are typed.
type checkFlags struct {
	nameFlags
	maxStack  int
	strict    bool
	noJoin    bool
	json      bool
	failAbove []string
	verbose   bool
	sandboxFlags

	limits check.Tolerances
}

// statusAbove is the exit status when more edges are wrong than --fail-above allows.
const statusAbove = 1

func checkCommand(status *int) *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use:   "check [options] [FILE]",
		Short: "Check the stacks of a recording against the code",
		Long: `Find callers in a recording that cannot be right: check that each return address
follows a call, and that a direct call can have led to the function in which the
next frame is. FILE (default perf.data, - for a pipe) is any perf.data file, also
one that perf wrote; raw stacks are unwound first, and then each edge, a caller
and its callee, is counted by the way in which the caller was found: cfi,
frame_pointer, heuristic, live, kernel_fp. Recordings with callchains do not say
how these were found.`,
		Example: `  unspool check
  unspool check --json perf.data | jq '.worst[0]'
  unspool check --fail-above 0.1 --fail-above cfi=0.01 perf.data`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &usageError{"unspool check",
					fmt.Errorf("unexpected argument %q: check reads one recording", args[1])}
			}
			file := "perf.data"
			if len(args) > 0 {
				file = args[0]
			}
			if err := f.check(); err != nil {
				return &usageError{"unspool check", err}
			}
			above, err := f.run(file)
			if above {
				*status = statusAbove
			}
			return err
		},
		DisableFlagsInUseLine: true,
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.BoolVar(&f.json, "json", false, "print everything as JSON: see 'unspool help json'")
	fl.StringArrayVar(&f.failAbove, "fail-above", nil,
		"exit with status 1 if more than `PERCENT` of the edges are wrong, or SOURCE=PERCENT of one source's")
	fl.IntVar(&f.maxStack, "max-stack", defaultMaxStack, "end user stacks after `N` frames")
	fl.BoolVar(&f.strict, "strict", false, "unwind by CFI only: no frame pointers, no guesses, no joins")
	fl.BoolVar(&f.noJoin, "no-join", false, noJoinText)
	f.nameFlags.add(c)
	addVerbose(fl, &f.verbose)
	f.sandboxFlags.add(c, "check")
	c.RegisterFlagCompletionFunc("fail-above",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var keys []string
			for _, name := range check.SourceNames() {
				keys = append(keys, name+"=")
			}
			return keys, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		})
	return c
}

// check checks the options and reads --fail-above.
func (f *checkFlags) check() error {
	if f.maxStack < 1 || f.maxStack > largestMaxStack {
		return fmt.Errorf("--max-stack %d: must be 1 to %d frames", f.maxStack, largestMaxStack)
	}
	f.limits = check.NoLimits()
	for _, s := range f.failAbove {
		if err := f.limits.Lower(s); err != nil {
			return fmt.Errorf("--fail-above %w", err)
		}
	}
	return nil
}

// run prints the result, and reports whether it exceeds a limit of --fail-above.
func (f *checkFlags) run(file string) (above bool, err error) {
	ctx, stop := untilInterrupted()
	defer stop()
	confined, err := f.confineReading(reading{
		inputs: []*string{&file}, names: &f.nameFlags, verbose: f.verbose,
	})
	if err != nil {
		return false, err
	}
	defer confined.close()
	line := newStatusLine(os.Stderr)
	o := recorded.Options{Input: file, Symfs: f.symfs, Cache: f.cache, MaxStack: f.maxStack,
		Strict: f.strict, NoJoin: f.noJoin, OpenKernel: f.openKernel, Files: f.opener, Progress: line.converted}
	result, err := check.Recording(ctx, o, symbols.New(f.nameFlags.sources(ctx, file, line)))
	line.clear()
	if result == nil {
		return false, err
	}
	write := result.WriteText
	if f.json {
		write = result.WriteJSON
	}
	exceeded := f.limits.Exceeded(result)
	err = errors.Join(err, write(os.Stdout))
	for _, words := range exceeded {
		say("%s", words)
	}
	return len(exceeded) > 0, err
}
