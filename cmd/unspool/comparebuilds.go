package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/profile/difference"
	"unspool/capture/verdict/builds"
	"unspool/capture/view/report"
)

// A comparison of builds runs two commands by turns, for their times, and records them, for the functions. The price of
// a profiler would be in the times. So in the first rounds each command is recorded, and then runs without a profiler;
// in the rounds after that it only runs. What it has in its caches is the same for both.

// mostRecorded is how many rounds are recorded: more say little more of functions, and are read and compared together.
const mostRecorded = 10

// ofRecord are the options of compare that are those of record where it records with that: see recordRun.
var ofRecord = []string{"event", "freq", "count", "mmap-pages", "stack-size", "call-graph", "max-stack", "strict",
	"sandbox", "no-sandbox"}

// ofBuilds are the other ones.
var ofBuilds = []string{"builds", "rounds", "json", "color", "wide", "quiet", "verbose"}

// buildArgs returns both commands. Options may stand behind them.
func (f *compareFlags) buildArgs(c *cobra.Command, args []string) error {
	if len(args) < builds.B+1 {
		return errors.New("--builds takes two command lines, 'A' 'B', as for sh -c")
	}
	f.commands = [2]string(args[:2])
	if err := c.Flags().Parse(args[2:]); err != nil {
		return err
	}
	if rest := c.Flags().Args(); len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q: --builds takes two command lines: quote each of them", rest[0])
	}
	for _, command := range f.commands {
		if command == "" {
			return errors.New("--builds: a command line is empty")
		}
	}
	var names cobra.Command
	new(nameFlags).add(&names)
	var err error
	f.passed = passedOn(c.Flags())
	c.Flags().Visit(func(fl *pflag.Flag) {
		if !slices.Contains(ofRecord, fl.Name) && !slices.Contains(ofBuilds, fl.Name) &&
			names.Flags().Lookup(fl.Name) == nil && err == nil {
			err = fmt.Errorf("--builds and --%s cannot be used together", fl.Name)
		}
	})
	return err
}

// passedOn returns the options of record that were typed.
func passedOn(flags *pflag.FlagSet) (options []string) {
	flags.Visit(func(fl *pflag.Flag) {
		switch list, ok := fl.Value.(pflag.SliceValue); {
		case !slices.Contains(ofRecord, fl.Name):
		case ok:
			for _, value := range list.GetSlice() {
				options = append(options, "--"+fl.Name+"="+value)
			}
		default:
			options = append(options, "--"+fl.Name+"="+fl.Value.String())
		}
	})
	return options
}

// compareBuilds runs, records and compares both commands.
func (f *compareFlags) compareBuilds() error {
	if err := f.nameFlags.check(); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "unspool-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	r := builds.Result{Commands: f.commands}
	files, err := f.runRounds(&r, folder)
	if err != nil {
		return err
	}
	if r.Recorded = len(files[builds.A]); r.Recorded == 0 {
		return errors.New("asked to end before both commands were over: there is nothing to compare")
	}
	ctx, stop := untilInterrupted()
	defer stop()
	if !f.json {
		if err := r.WriteText(os.Stdout); err != nil {
			return err
		}
	}
	functions, err := f.differenceOfBuilds(ctx, folder, files)
	if f.json {
		return errors.Join(err, r.WriteJSON(os.Stdout, functions))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Printf("\nBy function, from %s of each that are not in these times:\n\n%s",
		human.Plural(uint64(r.Recorded), "recording"), functions)
	return err
}

// runRounds runs the rounds until there are enough, or somebody asks to end. A round that is not over by then does not
// count. The files are the recordings of both.
func (f *compareFlags) runRounds(r *builds.Result, folder string) (files [2][]string, err error) {
	ctx, stop := untilInterrupted()
	defer stop()
	line := f.statusLine()
	defer line.clear()
	for !r.Rounds.Enough() && (f.rounds == 0 || len(r.Rounds) < int(f.rounds)) {
		n := len(r.Rounds)
		turns := [2]int{builds.First(n), 1 - builds.First(n)}
		if line.terminal {
			line.show(stateOf(r.Rounds))
		}
		if n < mostRecorded {
			paths := [2]string{filepath.Join(folder, fmt.Sprintf("A%d", n+1)), filepath.Join(folder, fmt.Sprintf("B%d", n+1))}
			for _, build := range turns {
				if err := f.recordBuild(ctx, build, paths[build]); err != nil {
					return files, unlessAsked(ctx, err)
				}
			}
			for build, path := range paths {
				files[build] = append(files[build], path)
			}
		}
		var round builds.Round
		for _, build := range turns {
			if round[build], err = f.timeBuild(ctx, build); err != nil {
				return files, unlessAsked(ctx, err)
			}
		}
		r.Rounds = append(r.Rounds, round)
	}
	return files, nil
}

// stateOf is what the status line shows: only how precise the rounds are. Whoever ends them because of what they say
// gets what they want to see.
func stateOf(rounds builds.Rounds) string {
	state := fmt.Sprintf("round %d", len(rounds)+1)
	if len(rounds) > 1 {
		cpu := rounds.CPU()
		state += fmt.Sprintf("  CPU time ±%.1f %%", 100*(cpu.High-cpu.Low)/2)
	}
	return state + "  Ctrl-C ends"
}

// unlessAsked is an error of a command, nil if somebody has asked to end: that has ended the command.
func unlessAsked(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// recordRun records a command as record does, in a process of its own, with the options that were typed and more. What
// it has used includes what the command has.
func (f *compareFlags) recordRun(ctx context.Context, path string, command []string, options ...string) (
	builds.Used, error,
) {
	args := slices.Concat([]string{"record", "-q", "--no-buildid-cache"}, f.passed, options, []string{"-o", path, "--"},
		command)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	return runMeasured(cmd, syscall.SIGINT)
}

// recordBuild records the command of a build.
func (f *compareFlags) recordBuild(ctx context.Context, build int, path string) error {
	_, err := f.recordRun(ctx, path, []string{"sh", "-c", f.commands[build]})
	return f.failed(build, "recorded", cmp.Or(ctx.Err(), err)) // one that is asked to end may end well
}

// timeBuild runs a command and measures it.
func (f *compareFlags) timeBuild(ctx context.Context, build int) (builds.Used, error) {
	used, err := runMeasured(exec.CommandContext(ctx, "sh", "-c", f.commands[build]), syscall.SIGTERM)
	return used, f.failed(build, "run", cmp.Or(ctx.Err(), err))
}

// runMeasured runs a command to its end, or ends it and its children by a signal. Its output is not shown, its errors
// are. CPU time is that of the command and of the processes that it has waited for.
func runMeasured(cmd *exec.Cmd, end syscall.Signal) (builds.Used, error) {
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C asks this process only
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, end) }
	cmd.WaitDelay = 10 * time.Second
	began := time.Now()
	err := cmd.Run()
	used := builds.Used{Wall: time.Since(began)}
	if s := cmd.ProcessState; s != nil {
		used.CPU = s.UserTime() + s.SystemTime()
	}
	return used, err
}

// failed is an error of a command, nil for none: a command that fails has not done the same work.
func (f *compareFlags) failed(build int, how string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%c failed when it was %s (%w): sh -c %s", 'A'+build, how, err, quoted(f.commands[build]))
}

// differenceOfBuilds is what 'report A1,A2,… B1,B2,…' says of the recordings, with functions that were inlined.
func (f *compareFlags) differenceOfBuilds(ctx context.Context, folder string, files [2][]string) ([]byte, error) {
	d := differenceFlags{
		Difference: report.Difference{
			Options: report.Options{AllNotes: f.verbose, PercentLimit: 1}, Amounts: true,
		},
		load:  profile.Options{Lines: true, Processes: !f.json},
		merge: difference.Options{Processes: !f.json},
		names: &f.nameFlags,
	}
	confined, err := f.confineComparing(folder, nil)
	if err != nil {
		return nil, err
	}
	defer confined.close()
	runs, err := d.recordings(ctx, files, files)
	for _, r := range slices.Concat(runs[:]...) {
		defer r.Timeline.Close()
	}
	for _, file := range slices.Concat(files[:]...) { // the folder is removed by who has kept the rights, if it is empty
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		return nil, err
	}
	for side := range runs {
		for i := range runs[side] {
			runs[side][i].Name = fmt.Sprintf("round %d", i+1)
			runs[side][i].Command = []string{"sh", "-c", f.commands[side]} // the recording is not kept
		}
	}
	m, err := difference.Merge(runs[0], runs[1], d.merge)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if f.json {
		err = report.WriteDifferenceJSON(&text, m, d.Difference)
		return text.Bytes(), err
	}
	d.AdviceFor, d.Colour = f.nameFlags.advice, f.color.on(os.Stdout)
	if isTerminal(os.Stdout) && !f.wide {
		d.Width = columns(os.Stdout)
	}
	err = report.WriteDifference(&text, m, d.Difference)
	return text.Bytes(), err
}
