package main

import (
	"fmt"
	"os"

	"unspool/capture/counts"
	"unspool/capture/live"
	outfile "unspool/capture/output"
	"unspool/capture/verdict/compare"
)

// A comparison of programs that run records first: in another process if that is confined (see child.go), as
// this one is to run programs that know packages, and to read files.

// A livePairs is such a recording, and what was found on the way.
type livePairs struct {
	costs  *compare.Costs // nil if they could not be measured
	price  *compare.Price // nil if it was not measured
	status int            // of a process that has failed and said why
}

// recordLive measures the cost of samples, and records into a file.
func (f *compareFlags) recordLive(command []string, output string) (l livePairs, err error) {
	f.output = output
	o, err := f.pairOptions(command)
	if err != nil {
		return l, badOptions("unspool compare", err)
	}
	l.costs = f.measure()
	f.sandbox = f.confines()
	if !f.sandbox {
		_, err = f.recordPairs(o)
		return l, err
	}
	recorded, err := outfile.Find(output)
	if err != nil {
		return l, err
	}
	defer recorded.Close()
	a, err := recordInChild(recorded, o.PIDs)
	l.status = a.status
	return l, err
}

// recordSpool is run by the process that records.
func (f *compareFlags) recordSpool(command []string) error {
	f.output = f.spool.path
	o, err := f.pairOptions(command)
	if err != nil {
		return badOptions("unspool compare", err)
	}
	f.sandbox = true
	if err := f.beSpooled(&o); err != nil {
		return err
	}
	defer o.Place.Close()
	started, err := f.recordPairs(o)
	if started && err == nil {
		f.tellMade()
	}
	return err
}

// pairOptions turns flags into what capture is asked to do.
func (f *compareFlags) pairOptions(command []string) (live.Options, error) {
	o, err := f.options(command)
	o.Pairs = true
	o.Compress = 1 // two callchains for each sample, in a temporary file
	if f.json {
		o.CommandStdout = os.Stderr // stdout is for the result alone
	}
	return o, err
}

// measure measures the cost of samples, nil if that fails.
func (f *compareFlags) measure() *compare.Costs {
	var measured compare.Costs
	err := raised(func() (err error) {
		measured, err = compare.Measure(int(f.stackSize))
		return err
	})
	if err == nil {
		return &measured
	}
	if !f.quiet {
		say("the cost of a sample could not be measured: %v", err)
	}
	return nil
}

// recordPairs records, and reports whether there is a recording.
func (f *compareFlags) recordPairs(o live.Options) (started bool, err error) {
	line := f.statusLine()
	o.Progress = line.update
	if !f.quiet {
		o.Note = line.note
	}
	ctx, stop := f.untilEnded()
	defer stop()
	confined, err := f.confine(&o, nil)
	if err != nil {
		return false, err
	}
	defer confined.close()
	out, err := recordPrivileged(ctx, o)
	line.clear()
	if f.verbose && out.Started {
		fmt.Fprintf(os.Stderr, "unspool: %s\nunspool: rings: %s\n", confined, counts.RingsText(&out.Stats.Rings))
	}
	return out.Started, err
}
