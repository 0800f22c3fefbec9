package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"unspool/capture/live"
	outfile "unspool/capture/output"
	"unspool/capture/rights/passing"
	"unspool/capture/rights/sandbox"
	"unspool/vmas/process"
)

// A confined process cannot look names up, which another format than perf.data, or a comparison, needs. So
// such a recording is made by a process of its own, and read by this one. A pair of sockets connects the two:
// a byte, or the end of this process, asks the recording to end; a byte back means that there is a recording.

// spoolFlag is the option of such a process.
const spoolFlag = "spool"

// spooled is its value: the number of its socket, over which it is asked to end, the processes that were
// found for what the user named, and the file into which it records, as in 100:4711,4712:PATH.
type spooled struct {
	asked int
	pids  []int
	path  string
}

func (s *spooled) String() string {
	return fmt.Sprintf("%d:%s:%s", s.asked, strings.Trim(strings.ReplaceAll(fmt.Sprint(s.pids), " ", ","), "[]"),
		s.path)
}

// Type is the placeholder in the help.
func (s *spooled) Type() string { return "value" }

func (s *spooled) Set(text string) (err error) {
	asked, rest, _ := strings.Cut(text, ":")
	pids, path, _ := strings.Cut(rest, ":")
	for p := range strings.FieldsFuncSeq(pids, func(r rune) bool { return r == ',' }) {
		pid, err := strconv.Atoi(p)
		if err != nil {
			return err
		}
		s.pids = append(s.pids, pid)
	}
	s.path = path
	s.asked, err = strconv.Atoi(asked)
	return err
}

// recordingMade is the byte that means that there is a recording.
const recordingMade = 1

func (f *recordFlags) addSpool(fl *pflag.FlagSet) {
	fl.Var(&f.spool, spoolFlag, "")
	_ = fl.MarkHidden(spoolFlag)
}

// leastSocket is above the descriptors that users open in a shell, as for --stats /dev/fd/3.
const leastSocket = 100

// childResult is what has come of a recording in another process. The caller closes the files.
type childResult struct {
	started bool       // there is a recording
	status  int        // of the process
	files   []*os.File // see [nameFlags]
}

// recordInChild records into a place, in another process, which prints its errors itself. pids are the
// processes that were found, nil for none.
func recordInChild(recorded *outfile.Place, pids []int) (a childResult, err error) {
	a.status = statusFailure
	ours, theirs, err := newSockets()
	if err != nil {
		return a, err
	}
	defer ours.Close()
	cmd := again(&spooled{theirs, pids, recorded.Path()})
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	asked := make(chan os.Signal, 2)
	signal.Notify(asked, endingSignals()...)
	defer signal.Stop(asked)
	err = cmd.Start()
	unix.Close(theirs)
	if err != nil {
		return a, fmt.Errorf("start a process for the recording: %w", err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go passOn(asked, ours, ended)

	var said byte
	a.files, said, _ = receiveFiles(ours) // returns when the other process ends, at the latest
	if a.started = said == recordingMade; a.started {
		recorded.NoteKept()
	}
	a.status, err = exitOf(cmd)
	return a, err
}

// newSockets connects this process with one that records. The caller closes both.
func newSockets() (ours *os.File, theirs int, err error) {
	our, their, err := passing.Sockets()
	if err != nil {
		return nil, -1, fmt.Errorf("socketpair: %w", err)
	}
	theirs, err = unix.FcntlInt(uintptr(their), unix.F_DUPFD, leastSocket)
	unix.Close(their)
	if err != nil {
		unix.Close(our)
		return nil, -1, err
	}
	return os.NewFile(uintptr(our), "recording"), theirs, nil
}

// typed leaves out of a command line what the user has not typed.
func typed(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return strings.HasPrefix(arg, "--"+spoolFlag+"=")
	})
}

// It is shown, and was started as "exe".
func init() {
	if len(os.Args) > 2 && strings.HasPrefix(os.Args[2], "--"+spoolFlag+"=") {
		process.Rename("unspool")
	}
}

// again is this program with the same command line and the same capabilities, to record.
func again(s *spooled) *exec.Cmd {
	spool := fmt.Sprintf("--%s=%v", spoolFlag, s)
	return &exec.Cmd{Path: "/proc/self/exe", Args: slices.Concat(os.Args[:2], []string{spool}, os.Args[2:]),
		SysProcAttr: &syscall.SysProcAttr{AmbientCaps: sandbox.ForChildren()}}
}

// exitOf waits for the end of a process that records, and says how it ended.
func exitOf(cmd *exec.Cmd) (status int, err error) {
	err = cmd.Wait()
	var exit *exec.ExitError
	switch w, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case err != nil && !errors.As(err, &exit):
		return statusFailure, err
	case w.Signaled():
		return statusFailure, fmt.Errorf("the process that records was ended by a signal (%v)", w.Signal())
	}
	return cmd.ProcessState.ExitCode(), nil
}

// passOn asks the process that records to end at the first signal, and ends both processes at the second.
func passOn(asked <-chan os.Signal, to *os.File, ended <-chan struct{}) {
	for range 2 {
		select {
		case <-asked:
			_, _ = to.Write([]byte{0})
		case <-ended:
			return
		}
	}
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
}

// beSpooled prepares the process that records. The caller closes o.Place.
func (f *recordFlags) beSpooled(o *live.Options) (err error) {
	unix.CloseOnExec(f.spool.asked)
	o.Output = f.spool.path
	o.CommandLine = slices.Delete(slices.Clone(o.CommandLine), 2, 3)
	o.Place, err = outfile.Find(f.spool.path)
	return err
}

// tellMade tells the other process that there is a recording.
func (f *recordFlags) tellMade() {
	for {
		if _, err := unix.Write(f.spool.asked, []byte{recordingMade}); err != unix.EINTR {
			return
		}
	}
}

// recordSpool is run by the process that records.
func (f *recordFlags) recordSpool(o live.Options) (status int, err error) {
	if err := f.beSpooled(&o); err != nil {
		return statusFailure, err
	}
	defer o.Place.Close()
	stats, err := findStats(f.stats)
	if err != nil {
		return statusFailure, err
	}
	defer stats.Close()
	started, status, err := f.run(o, stats)
	if started {
		f.tellMade()
	}
	return status, err
}

// untilAsked is untilInterrupted for the process that records: it is asked over its socket, and ignores
// signals that both processes get.
func (f *recordFlags) untilAsked() (ctx context.Context, stop func()) {
	signal.Notify(make(chan os.Signal, 1), endingSignals()...)
	ctx, stop = context.WithCancel(context.Background())
	go func() {
		again := f.wasAsked()
		stop()
		if again && f.wasAsked() {
			os.Exit(statusFailure)
		}
	}()
	return ctx, stop
}

// wasAsked waits until the process is asked to end. It returns false when the other process has ended.
func (f *recordFlags) wasAsked() bool {
	var b [1]byte
	for {
		if n, err := unix.Read(f.spool.asked, b[:]); err != unix.EINTR {
			return n == 1
		}
	}
}
