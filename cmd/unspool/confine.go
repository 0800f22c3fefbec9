package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"unspool/capture/live"
	outfile "unspool/capture/output"
	"unspool/capture/rights/opener"
	"unspool/capture/rights/sandbox"
)

// sandboxFlags say whether unspool gives up its rights.
type sandboxFlags struct {
	noSandbox bool
	sandbox   bool
}

// add adds the options to a command; verb is what that does.
func (f *sandboxFlags) add(c *cobra.Command, verb string) {
	fl := c.Flags()
	fl.BoolVar(&f.sandbox, "sandbox", false,
		verb+" without privileges. A second process keeps them, and all that it does is open files. "+
			"(default for root)")
	fl.BoolVar(&f.noSandbox, "no-sandbox", false, verb+" with all privileges that root has")
	c.MarkFlagsMutuallyExclusive("sandbox", "no-sandbox")
}

// confines reports whether unspool gives up its rights. Who has capabilities by the program's file does not get
// more than they are for.
func (f *sandboxFlags) confines() bool {
	return f.sandbox || sandbox.Lowered() || os.Geteuid() == 0 && !f.noSandbox
}

// A confinement is what this process gives up, and who does for it what takes rights.
type confinement struct {
	client *opener.Client // nil for none, as where a recording is read with all privileges
	files  *opener.Files  // likewise
	report *sandbox.Report
	kernel map[string]*os.File // by path
	folder string              // for temporary files
}

// confine starts the opener of a recording, and makes the recording give up its rights once it has begun, unless it is
// to keep them.
func (f *recordFlags) confine(o *live.Options, stats *outfile.Place) (*confinement, error) {
	c := &confinement{}
	var err error
	if c.client, err = o.StartOpener(); err != nil {
		return nil, err
	}
	o.Opener = c.client
	if !f.sandbox {
		return c, nil
	}
	o.Grant = func() error {
		return errors.Join(stats.HandOver(c.client.GrantOutput), handOver(o.Rotation, c.client))
	}
	o.Confine = func(unfiltered error) {
		c.report = sandbox.Confine()
		c.lacks(unfiltered)
		if len(c.report.Missing) > 0 && o.Note != nil {
			o.Note(c.report.String())
		}
	}
	return c, nil
}

// lacks notes why the opener has no filter, nil if it has one.
func (c *confinement) lacks(unfiltered error) {
	if unfiltered != nil {
		c.report.Missing = append(c.report.Missing, fmt.Sprintf("the opener's seccomp (%v)", unfiltered))
	}
}

// recordPrivileged records with the capabilities that the program's file has, if it has any. Before and
// after, what the user names is opened without them.
func recordPrivileged(ctx context.Context, o live.Options) (out live.Outcome, err error) {
	err = raised(func() (err error) {
		out, err = live.Record(ctx, o)
		return err
	})
	return out, err
}

// raised does something with the capabilities of a recording.
func raised(do func() error) error {
	if err := sandbox.Raise(); err != nil {
		return err
	}
	return errors.Join(do(), sandbox.Lower())
}

// close tells the opener to remove the temporary folders, which are empty, and ends it.
func (c *confinement) close() {
	if c == nil {
		return
	}
	c.closeFiles()
	if c.client != nil {
		_ = c.client.RemoveFolders()
		c.client.Close()
	}
}

// closeFiles ends the process that opens files, if there is one.
func (c *confinement) closeFiles() {
	if c.files != nil {
		c.files.Close()
		c.files = nil
	}
}

func (c *confinement) String() string { return c.report.String() }
