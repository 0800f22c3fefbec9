package main

import (
	"os"

	"github.com/spf13/cobra"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/report"
	"unspool/capture/symbols"
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
			o.File = "perf.data"
			if len(args) > 0 {
				o.File = args[0]
			}
			return printReport(o)
		},
		DisableFlagsInUseLine: true,
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.Float64Var(&o.PercentLimit, "percent-limit", 1, "prune the call tree below `PERCENT` of the samples")
	fl.IntVar(&o.Top, "top", 20, "functions in the table, `N`")
	fl.BoolVar(&o.NoKernel, "no-kernel", false, "leave out the kernel's frames")
	return c
}

func printReport(o report.Options) error {
	r, err := perfdata.Open(o.File)
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(symbols.Options{}), profile.Options{})
	if err != nil {
		return err
	}
	if o.PercentLimit == 0 {
		o.PercentLimit = -1 // for report, zero stands for the default
	}
	if o.Top == 0 {
		o.Top = -1
	}
	if isTerminal(os.Stdout) {
		o.Colour = os.Getenv("NO_COLOR") == ""
		o.Width = columns(os.Stdout)
	}
	return report.Write(os.Stdout, p.ByFunction(), o)
}
