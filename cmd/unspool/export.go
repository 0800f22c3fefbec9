package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"unspool/capture/format/export"
	outfile "unspool/capture/output"
	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// exportFlags say in which format a recording is written and how its names are found.
type exportFlags struct {
	name      string
	inline    bool
	noProcess bool
	cmdline   bool
	symbols   bool
	time      string         // --time; "" where a recording is made
	filter    profile.Filter // what else samples have to pass

	format   export.Format
	explicit bool // --symbols was given
}

func (f *exportFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.name, "format", "", "write `FORMAT`, whatever the output's name ends in: "+
		formatNames(func(export.Format) bool { return true }))
	addInline(fl, &f.inline, true)
	fl.BoolVar(&f.noProcess, "no-process", false, "leave out the names of processes, with which stacks begin in "+
		formatNames(func(f export.Format) bool { return f.Processes }))
	fl.BoolVar(&f.cmdline, "cmdline", false, "put the recorded command lines of processes into the output")
	fl.BoolVar(&f.symbols, "symbols", true,
		"put names into the output; --symbols=false leaves them to its reader")
	c.RegisterFlagCompletionFunc("format",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, f := range export.Formats() {
				names = append(names, f.Name+"\t"+f.About)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		})
	pre := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		f.explicit = c.Flags().Changed("symbols")
		if pre != nil {
			return pre(c, args)
		}
		return nil
	}
}

// formatNames lists the formats that have something.
func formatNames(have func(export.Format) bool) string {
	var names []string
	for _, f := range export.Formats() {
		if have(f) {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, ", ")
}

// formatTable lists the formats for the help.
func formatTable() string {
	var b strings.Builder
	for _, f := range export.Formats() {
		fmt.Fprintf(&b, "  %-11s %-16s %s\n", f.Name, strings.Join(f.Endings, " "), f.About)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// choose finds the format of an output.
func (f *exportFlags) choose(output string) (err error) {
	if f.format, err = export.Find(f.name, output); err != nil {
		return err
	}
	switch {
	case f.explicit && f.symbols && !f.exports():
		return errors.New("perf.data cannot hold names: perf and unspool look them up when they read it; other " +
			"formats can")
	case !f.symbols && f.exports() && !f.format.Nameless:
		return fmt.Errorf("--symbols=false: %s cannot be read without names", f.format.Name)
	}
	if f.cmdline && !f.format.CommandLines {
		return fmt.Errorf("--cmdline: in %s processes of one name are one: %s have command lines", f.format.Name,
			formatNames(func(f export.Format) bool { return f.CommandLines }))
	}
	if f.noProcess && !f.format.Processes {
		return fmt.Errorf("--no-process: in %s stacks do not begin with the names of processes", f.format.Name)
	}
	return nil
}

// exports reports whether the format is not perf.data.
func (f *exportFlags) exports() bool { return f.format.Name != export.Perf.Name }

// write writes a recording to a place, in the format. The recording itself is kept.
func (f *exportFlags) write(input, name string, to *outfile.Place, names nameFlags,
	quiet, verbose bool) error {
	ctx, stop := untilInterrupted()
	defer stop()
	within, err := times(f.time)
	if err != nil {
		return err
	}
	filter := f.filter
	if f.time != "" {
		filter.Times = within
	}
	o := export.Options{
		Filter: filter,
		Format: f.format, Input: input, Name: name, Output: to.Path(), Place: to,
		Lines: f.symbols && f.inline, NoNames: !f.symbols,
		NoProcesses: f.noProcess, CommandLines: f.cmdline,
	}
	var line *statusLine
	if !quiet {
		line = newStatusLine(os.Stderr)
		o.Progress, o.Lookup = line.named, line.looking
	}
	o.Symbols = names.sources(ctx, input, line)
	out, err := export.Write(ctx, o)
	line.clear()
	if out.Written == 0 || quiet {
		return err
	}
	notes := out.Problems
	if !verbose {
		notes = slices.Concat(out.Notes.Recording, profile.Few(out.Notes.Names, "-v lists them"))
	}
	for _, note := range notes {
		say("%s", note)
	}
	if to.Path() != "-" {
		fmt.Fprintf(os.Stderr, "%s in %s (%s), for %s\n",
			human.Plural(out.Samples, "sample"), to.Path(), f.format.Name, f.format.About)
	}
	return err
}

// spool finds a place for a recording that is written in another format afterwards: beside that output, or in
// a temporary folder, which the caller removes, if the output is a stream or its name is too long.
func spool(to *outfile.Place) (recorded *outfile.Place, folder string, err error) {
	if !to.Stream() {
		recorded, err = to.Beside(".perf.data")
		if !errors.Is(err, unix.ENAMETOOLONG) {
			return recorded, "", err
		}
	}
	if folder, err = os.MkdirTemp("", "unspool-"); err != nil {
		return nil, "", err
	}
	if recorded, err = outfile.Find(filepath.Join(folder, "perf.data")); err != nil {
		os.RemoveAll(folder)
	}
	return recorded, folder, err
}
