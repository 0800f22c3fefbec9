package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// A liveRecording is made by a process of its own, as that for another format is (see recordInChild), while
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
	asked, theirs, err := newSockets()
	if err != nil {
		return nil, err
	}
	defer unix.Close(theirs)
	l := &liveRecording{asked: asked}
	out, in, err := os.Pipe()
	if err != nil {
		l.asked.Close()
		return nil, err
	}
	defer in.Close()
	_, _ = unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, livePipe) // a smaller one does
	l.out = out
	l.cmd = again(&spooled{theirs, pids, "-"})
	l.cmd.Stdout, l.cmd.Stderr = in, &l.said
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
	if status, err = exitOf(l.cmd); status != 0 && err == nil {
		_, _ = os.Stderr.Write(l.said.Bytes())
	}
	return status, err
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
