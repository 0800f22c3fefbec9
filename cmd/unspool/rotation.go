package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"unspool/capture/live"
	outfile "unspool/capture/output"
	"unspool/capture/rights/opener"
)

// rotationFlags say when a recording goes on in another file.
type rotationFlags struct {
	when rotationTime
	most int
	last span
}

const (
	defaultFiles = 10
	mostFiles    = 100
	leastLast    = time.Second
)

// add adds the options to a command.
func (f *rotationFlags) add(fl *pflag.FlagSet) {
	fl.Var(&f.when, "switch-output",
		"go on in another file, FILE.DATE, `WHEN` it has a size such as 20M, after a time such as 30s, "+
			"or at a signal, SIGUSR2 (so without WHEN)")
	fl.Lookup("switch-output").NoOptDefVal = bySignal
	fl.Var(atLeast{&f.last, leastLast}, "last",
		"keep the last `SECONDS` in memory, or 5m: written to FILE.DATE at SIGUSR2 and at the end")
	fl.IntVar(&f.most, "switch-max-files", defaultFiles, "keep the last `N` files of --switch-output or --last")
}

// A rotationTime is the value of --switch-output. The units of times are small letters, and those of sizes
// are capital ones or k, as perf's.
type rotationTime struct {
	text  string
	size  byteCount
	every span
}

// bySignal is the value for a rotation at signals only. These have an effect with the others, too.
const bySignal = "signal"

func (r *rotationTime) String() string { return r.text }

// Type is the placeholder in the help.
func (r *rotationTime) Type() string { return "when" }

func (r *rotationTime) Set(text string) error {
	const must = valueError("must be signal, a size such as 20M, or a time such as 30s")
	*r = rotationTime{text: text}
	var err error
	switch {
	case text == bySignal:
		return nil
	case text != "" && strings.ContainsAny(text[len(text)-1:], "smh"):
		err = r.every.Set(text)
	case text != "" && strings.ContainsAny(text[len(text)-1:], "BKMGkg"):
		err = r.size.Set(text)
	default:
		return must
	}
	if err != nil || r.size <= 0 && r.every <= 0 {
		return must
	}
	return nil
}

// rotates reports whether there are several files.
func (f *rotationFlags) rotates() bool { return f.when.text != "" || f.last > 0 }

// check returns an error for what cannot be.
func (f *rotationFlags) check(output string, exports bool) error {
	switch {
	case !f.rotates() && f.most != defaultFiles:
		return errors.New("--switch-max-files needs --switch-output or --last")
	case !f.rotates():
		return nil
	case f.when.text != "" && f.last > 0:
		return errors.New("--switch-output and --last cannot be used together")
	case f.most < 2 || f.most > mostFiles:
		return fmt.Errorf("--switch-max-files %d: must be 2 to %d", f.most, mostFiles)
	case exports:
		return errors.New("several files are written as perf.data, and not in other formats")
	case outfile.Stdout(output):
		return errors.New("several files cannot be written to a pipe")
	}
	return nil
}

// rotation describes several output files, whose names begin with that of a place; nil for one file only. end ends it.
func (f *rotationFlags) rotation(to *outfile.Place) (r *live.Rotation, end func(), err error) {
	if !f.rotates() {
		return nil, func() {}, nil
	}
	if to.Stream() {
		return nil, nil, fmt.Errorf("several files are to be written, and %s is none", to.Path())
	}
	longest, err := to.Beside(outfile.LongestSuffix)
	if err != nil {
		return nil, nil, err
	}
	longest.Close()
	asked, passed, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(asked, syscall.SIGUSR2)
	go pass(asked, passed, ended)
	r = &live.Rotation{
		Place: to, Most: f.most, Asked: passed,
		Size: int64(f.when.size), Every: time.Duration(f.when.every), Last: time.Duration(f.last),
	}
	return r, func() {
		signal.Stop(asked)
		close(ended)
	}, nil
}

// pass passes signals on until the recording has ended.
func pass(from <-chan os.Signal, to chan<- struct{}, ended <-chan struct{}) {
	for {
		select {
		case <-from:
			select {
			case to <- struct{}{}:
			case <-ended:
				return
			}
		case <-ended:
			return
		}
	}
}

// handOver leaves the files to the opener.
func handOver(r *live.Rotation, c *opener.Client) error {
	if r == nil {
		return nil
	}
	return r.Place.HandOver(c.GrantOutput)
}
