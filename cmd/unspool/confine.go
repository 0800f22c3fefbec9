package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"unspool/capture"
	"unspool/capture/opener"
	outfile "unspool/capture/output"
	"unspool/capture/sandbox"
)

// A confinement is what a recording gives up, and who does for it what takes rights.
type confinement struct {
	client *opener.Client // nil for none
	report *sandbox.Report
}

// confines says whether a recording gives up its rights. Who has capabilities by the program's file does not
// get more than they are for.
func (f *recordFlags) confines() bool {
	return f.sandbox || sandbox.Lowered() || os.Geteuid() == 0 && !f.noSandbox
}

// confine has a recording give up its rights once it has begun, but for what it asks an opener for.
func (f *recordFlags) confine(o *capture.Options, stats *outfile.Place) (*confinement, error) {
	c := &confinement{}
	if !f.sandbox {
		return c, nil
	}
	var err error
	if c.client, err = opener.Start(); err != nil {
		return nil, err
	}
	o.Opener = c.client
	o.Grant = func() error { return stats.HandOver(c.client.GrantOutput) }
	o.Confine = func(unfiltered error) {
		c.report = sandbox.Confine()
		if unfiltered != nil {
			c.report.Missing = append(c.report.Missing, fmt.Sprintf("the opener's seccomp (%v)", unfiltered))
		}
		if len(c.report.Missing) > 0 && o.Note != nil {
			o.Note(c.report.String())
		}
	}
	return c, nil
}

// recordPrivileged records with the capabilities that the program's file has, if it has any. Before and
// after, what the user names is opened without them.
func recordPrivileged(ctx context.Context, o capture.Options) (out capture.Outcome, err error) {
	if err := sandbox.Raise(); err != nil {
		return out, err
	}
	out, err = capture.Record(ctx, o)
	return out, errors.Join(err, sandbox.Lower())
}

// close ends the opener.
func (c *confinement) close() {
	if c.client != nil {
		c.client.Close()
	}
}

func (c *confinement) String() string { return c.report.String() }
