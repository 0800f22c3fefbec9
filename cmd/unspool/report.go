package main

import (
	"os"

	"github.com/spf13/cobra"

	"unspool/capture/report"
)

func reportCommand() *cobra.Command {
	var o report.Options
	c := &cobra.Command{
		Use:   "report [options] [FILE]",
		Short: "Show the hottest functions and the call tree of a recording",
		Long: `Show where the time of a recording went: the functions that cost most, by
themselves and with what they called, and the tree of calls, outermost function
first. FILE (default perf.data, - for a pipe) is any perf.data file with
callchains, also one that perf wrote.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return nil
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.Float64Var(&o.PercentLimit, "percent-limit", 1, "prune the call tree below `PERCENT` of the samples")
	fl.IntVar(&o.Top, "top", 20, "functions in the table, `N`")
	fl.BoolVar(&o.NoKernel, "no-kernel", false, "leave out the kernel's frames")
	_ = os.Stdout
	return c
}
