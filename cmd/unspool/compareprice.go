package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"unspool/capture/verdict/builds"
	"unspool/capture/verdict/compare"
	"unspool/perfring"
)

// A price is what profiling costs a command. The command runs by turns alone and under record, which follows frame
// pointers or copies stacks, and all CPU time counts that this takes: of the command, of record and its opener, and of
// interrupts.

// priceRounds is how many rounds a price has if --rounds does not say.
const priceRounds = 8

// leastPriceRounds is how many it takes for an interval.
const leastPriceRounds = 2

// priceArgs checks what stands beside --price. files are recordings.
func (f *compareFlags) priceArgs(c *cobra.Command, files []string) error {
	switch {
	case f.given() || len(files) > 0:
		return errors.New("--price needs a COMMAND alone, which it can run again: -- COMMAND")
	case f.period > 0:
		return errors.New("--price measures at two rates: leave out -c")
	case f.duration > 0:
		return errors.New("--price needs a COMMAND that does the same work each time: leave out -d")
	case f.rounds > 0 && f.rounds < leastPriceRounds:
		return fmt.Errorf("--rounds %d: a price takes %d rounds or more", f.rounds, leastPriceRounds)
	}
	f.passed = passedOn(c.Flags())
	return nil
}

// recordAndPrice records a command, after which it is in the caches, and then measures the price, if that is asked for.
func (f *compareFlags) recordAndPrice(command []string, pairs string) (l livePairs, err error) {
	if !f.price {
		return f.recordLive(command, pairs)
	}
	before := compare.LoadAverage()
	ctx, stop := untilInterrupted()
	defer stop()
	if l, err = f.recordLive(command, pairs); err != nil || l.status != 0 {
		return l, err
	}
	p := &compare.Price{}
	if err := f.measurePrice(ctx, p, command, filepath.Join(filepath.Dir(pairs), "price.data")); err != nil {
		return l, err
	}
	if len(p.Rounds) < leastPriceRounds {
		say("asked to end before %d rounds were over: there is no price", leastPriceRounds)
		return l, nil
	}
	p.Load = [2]float64{before, compare.LoadAverage()}
	if cpus, err := perfring.ReadCPUList("/sys/devices/system/cpu/online"); err == nil {
		p.CPUs = len(cpus)
	}
	l.price = p
	return l, nil
}

// measurePrice runs the rounds, until somebody asks to end. A round that is not over by then does not count. A file is
// for the recordings.
func (f *compareFlags) measurePrice(ctx context.Context, p *compare.Price, command []string, file string) error {
	line := f.statusLine()
	defer line.clear()
	rounds := cmp.Or(int(f.rounds), priceRounds)
	for n := range rounds {
		if line.terminal {
			line.show(fmt.Sprintf("price: round %d of %d  Ctrl-C ends", n+1, rounds))
		}
		round := make(compare.PriceRound)
		for _, way := range compare.PriceTurns(n) {
			var err error
			if round[way], err = f.runPriced(ctx, way, command, file); err != nil {
				return unlessAsked(ctx, err)
			}
		}
		p.Rounds = append(p.Rounds, round)
	}
	return nil
}

// runPriced runs the command in a way, and returns the CPU time.
func (f *compareFlags) runPriced(ctx context.Context, way compare.PriceWay, command []string, file string) (
	time.Duration, error,
) {
	before, err := compare.InterruptTime()
	if err != nil {
		return 0, err
	}
	var used builds.Used
	if way.Hz == 0 {
		used, err = runMeasured(exec.CommandContext(ctx, command[0], command[1:]...), syscall.SIGTERM)
	} else {
		used, err = f.recordRun(ctx, file, command, fmt.Sprintf("--freq=%d", way.Hz),
			fmt.Sprintf("--%s=%t", chainsFlag, !way.Stacks))
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return 0, fmt.Errorf("%s failed when it was run for its price: %w", quoted(command[0]), err)
	}
	after, err := compare.InterruptTime()
	if err == nil && way.Hz > 0 {
		err = os.Remove(file)
	}
	return used.CPU + after - before, err
}
