package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"unspool/capture/format/syscap"
	"unspool/capture/live"
	"unspool/capture/output/human"
	"unspool/perfring"
)

// unwinderName is the name by which Sysprof starts its own helper. Called by it, unspool is live-unwinder.
const unwinderName = "sysprof-live-unwinder"

// byName puts the command ahead of the arguments if the program is called by the name of Sysprof's helper.
func byName(program string, args []string) []string {
	if filepath.Base(program) == unwinderName {
		return append([]string{"live-unwinder"}, args...)
	}
	return args
}

// unwinderFlags are the options of live-unwinder as they are given.
type unwinderFlags struct {
	perf      []string
	event     int
	capture   int
	kallsyms  int
	stackSize int
}

func liveUnwinderCommand() *cobra.Command {
	f := unwinderFlags{}
	c := &cobra.Command{
		Use:   "live-unwinder --perf-fd FD:CPU… --event-fd FD --capture-fd FD --stack-size BYTES",
		Short: "Unwind stacks for Sysprof while it records",
		Long: `Take the place of sysprof-live-unwinder, which sysprofd starts: read samples from
the perf events that Sysprof has opened, unwind their stacks, and write the frames of a
Sysprof capture, until something is written to the eventfd or nobody reads any more.

It is not for the command line. A link to unspool by the name of sysprof-live-unwinder,
in the place of Sysprof's, is all that Sysprof needs.`,
		Args:                  noArguments,
		RunE:                  func(*cobra.Command, []string) error { return f.run() },
		DisableFlagsInUseLine: true,
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringArrayVar(&f.perf, "perf-fd", nil, "read the event that is open as `FD`, or FD:CPU; may be repeated")
	fl.IntVar(&f.event, "event-fd", -1, "end when something is written to the eventfd `FD`")
	fl.IntVar(&f.capture, "capture-fd", -1, "write the capture to `FD`: a pipe, a socket or a file")
	fl.IntVarP(&f.kallsyms, "kallsyms", "k", -1, "put the kernel's symbols, read from `FD`, into the capture")
	fl.IntVarP(&f.stackSize, "stack-size", "s", 0, "how many `BYTES` of each stack the events copy; 0 for none")
	return c
}

// descriptors checks the numbers that were given, and keeps the descriptors from the processes that are
// started.
func (f *unwinderFlags) descriptors() (fds, cpus []int, err error) {
	for _, text := range f.perf {
		number, on, told := strings.Cut(text, ":")
		fd, err := strconv.Atoi(number)
		cpu := -1
		if err == nil && told {
			cpu, err = strconv.Atoi(on)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("--perf-fd %q: must be FD or FD:CPU", text)
		}
		fds, cpus = append(fds, fd), append(cpus, max(cpu, -1))
	}
	if len(fds) == 0 {
		return nil, nil, errors.New("--perf-fd is missing")
	}
	if f.stackSize < 0 || f.stackSize > perfring.MaxStackSize || f.stackSize%8 != 0 {
		return nil, nil, fmt.Errorf("--stack-size %d: must be a multiple of 8, at most %d bytes", f.stackSize,
			perfring.MaxStackSize)
	}
	for _, fd := range append([]int{f.capture}, fds...) {
		if fd <= 2 {
			return nil, nil, fmt.Errorf("descriptor %d: --perf-fd and --capture-fd must be greater than 2", fd)
		}
		unix.CloseOnExec(fd)
	}
	for _, fd := range []int{f.event, f.kallsyms} {
		if fd >= 0 {
			unix.CloseOnExec(fd)
		}
	}
	return fds, cpus, nil
}

// run unwinds until it is told to end.
func (f *unwinderFlags) run() error {
	fds, cpus, err := f.descriptors()
	if err != nil {
		return &usageError{"unspool live-unwinder", err}
	}
	// Sysprof enables the events at once, so the rings come before everything else.
	source, err := perfring.Adopt([]perfring.Adopted{{
		Name: "Sysprof's", Attr: syscap.Attr(f.stackSize), FDs: fds, CPUs: cpus,
	}}, syscap.RingSize(f.stackSize)/os.Getpagesize())
	if err != nil {
		return err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as for record
	ctx, stop := untilInterrupted()
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a reader that goes away is the end, not a failure

	o := live.Options{
		AllCPUs: true, Adopted: source, StackSize: f.stackSize, MaxStack: defaultMaxStack, RaisePriority: true,
		Note: func(s string) { say("%s", s) },
	}
	record := recordFlags{}
	record.sandbox = record.confines()
	confined, err := record.confine(&o, nil)
	if err != nil {
		source.Close()
		return err
	}
	defer confined.close()
	to := syscap.LiveOptions{FD: f.capture, Format: source.Format(), Texts: confined.client}
	if f.kallsyms >= 0 {
		to.Kallsyms = os.NewFile(uintptr(f.kallsyms), "kallsyms")
	}
	if o.To, err = syscap.NewLive(to); err != nil {
		source.Close()
		return err
	}
	return f.record(ctx, o)
}

// record records until something is written to the eventfd or the reader has gone.
func (f *unwinderFlags) record(ctx context.Context, o live.Options) error {
	told, err := live.UntilTold(ctx, f.event, f.capture)
	if err != nil {
		return err
	}
	out, err := recordPrivileged(told, o)
	if n := out.Stats.Malformed; n > 0 {
		say("%s not laid out as those of Sysprof's events: left out", human.Plural(n, "record"))
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}
