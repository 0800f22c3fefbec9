package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// A liveRecording is made by a process of its own, as that for another format is (see recordApart), while
// this one shows it: it comes through a pipe.
type liveRecording struct {
	cmd   *exec.Cmd
	asked *os.File // asks that process to end
	out   *os.File // the recording
	said  lastBytes
}

// livePipe is how many bytes the pipe holds: the recording goes on while names are looked up.
const livePipe = 1 << 20

// startLive starts this program again with the same command line, to record. pids are the processes that were
// found, nil for none.
func startLive(pids []int) (*liveRecording, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	l := &liveRecording{asked: os.NewFile(uintptr(pair[0]), "recording")}
	theirs, err := unix.FcntlInt(uintptr(pair[1]), unix.F_DUPFD, leastSocket)
	unix.Close(pair[1])
	if err != nil {
		l.asked.Close()
		return nil, err
	}
	defer unix.Close(theirs)
	out, in, err := os.Pipe()
	if err != nil {
		l.asked.Close()
		return nil, err
	}
	defer in.Close()
	_, _ = unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, livePipe) // a smaller one does
	l.out = out
	spool := fmt.Sprintf("--%s=%v", spoolFlag, &spooled{theirs, pids, "-"})
	l.cmd = &exec.Cmd{
		Path:   "/proc/self/exe",
		Args:   slices.Concat(os.Args[:2], []string{spool}, os.Args[2:]),
		Stdout: in, Stderr: &l.said,
	}
	if err := l.cmd.Start(); err != nil {
		l.asked.Close()
		out.Close()
		return nil, fmt.Errorf("start a process for the recording: %w", err)
	}
	return l, nil
}

// end ends the recording. If it failed by itself, what it has said about that goes to the user, with its exit
// status.
func (l *liveRecording) end() (status int, err error) {
	l.asked.Close()
	go io.Copy(io.Discard, l.out) // what it still has to write
	err = l.cmd.Wait()
	var exit *exec.ExitError
	switch w, _ := l.cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case err != nil && !errors.As(err, &exit):
		return statusFailure, err
	case w.Signaled():
		return statusFailure, fmt.Errorf("the process that records was ended by a signal (%v)", w.Signal())
	}
	if status = l.cmd.ProcessState.ExitCode(); status != 0 {
		_, _ = os.Stderr.Write(l.said.Bytes())
	}
	return status, nil
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct{ bytes.Buffer }

const mostLast = 64 << 10

func (b *lastBytes) Write(p []byte) (int, error) {
	n, err := b.Buffer.Write(p)
	if more := b.Len() - mostLast; more > 0 {
		b.Next(more)
	}
	return n, err
}
