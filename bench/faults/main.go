package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

func main() {
	log.SetFlags(log.Ltime)
	if len(os.Args) < 2 {
		log.Fatal("usage: faults choose|run|table [options]; see the package's comment")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	list := flags.String("faults", "bench/faults/faults.txt", "the list of faults")
	var err error
	switch os.Args[1] {
	case "choose":
		n, seed := flags.Int("n", 60, "how many faults"), flags.Uint64("seed", 1, "another number chooses others")
		l := laneOf(flags, os.Args[2:])
		var faults []*fault
		if faults, err = choose(ctx, l, *n, *seed); err == nil {
			err = writeFaults(*list, faults)
		}
	case "run":
		r := new(runner)
		output := flags.String("o", "bench/faults/old.txt", "file to append to, where a later run goes on")
		flags.DurationVar(&r.budget, "budget", 4*time.Minute, "time for a fault, after which no more tests begin")
		live := flags.String("live",
			"^(perfring|capture|capture/(perfdata|profile|compare|check|syscap|opener|rest)|cmd/unspool)$",
			"packages whose failing tests are run again, with the fault and without")
		r.lane = laneOf(flags, os.Args[2:])
		r.live = regexp.MustCompile(*live)
		var faults []*fault
		if faults, err = readFaults(*list); err == nil {
			err = r.run(ctx, faults, *output)
		}
	case "table":
		output := flags.String("o", "bench/FAULTS.md", "file to write")
		columns := []column{{title: "old tests"}, {title: "make test"}, {title: "make test-machine"}}
		flags.StringVar(&columns[0].file, "old", "bench/faults/old.txt", "verdicts of the old tests")
		flags.StringVar(&columns[1].file, "new", "bench/faults/new.txt", "verdicts of make test")
		flags.StringVar(&columns[2].file, "machine", "bench/faults/machine.txt", "verdicts of make test-machine")
		_ = flags.Parse(os.Args[2:])
		var faults []*fault
		if faults, err = readFaults(*list); err == nil {
			err = writeTable(*output, faults, columns)
		}
	default:
		err = fmt.Errorf("unknown command %q", os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// laneOf adds the options that say which tests are run, and where, and parses all.
func laneOf(flags *flag.FlagSet, arguments []string) *lane {
	l := new(lane)
	flags.StringVar(&l.tree, "tree", ".", "checkout to copy, of which the product and the tests are")
	flags.StringVar(&l.work, "dir", "",
		"working directory, where a later run goes on (default in $TMPDIR, by tree and lane)")
	run := flags.String("run", "", "regular expression: run only these tests")
	skip := flags.String("skip", "", "regular expression: leave these tests out")
	flags.IntVar(&l.jobs, "jobs", 3, "tests at the same time while it is counted what they reach")
	_ = flags.Parse(arguments)
	var err error
	if l.run, err = regexp.Compile(*run); err != nil {
		log.Fatal(err)
	}
	if l.skip, err = regexp.Compile(*skip); err != nil {
		log.Fatal(err)
	}
	if l.tree, err = filepath.Abs(l.tree); err != nil {
		log.Fatal(err)
	}
	if l.work == "" {
		s, err := state(l.tree, *run, *skip)
		if err != nil {
			log.Fatal(err)
		}
		l.work = filepath.Join(os.TempDir(), "faults-"+s)
	}
	if l.work, err = filepath.Abs(l.work); err != nil {
		log.Fatal(err)
	}
	if err := os.MkdirAll(l.work, 0o755); err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(os.Stderr, "working directory:", l.work)
	return l
}
