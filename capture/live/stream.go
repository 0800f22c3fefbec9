package live

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/session"
)

// A Destination is where a recording goes.
type Destination interface {
	session.Sink
	// BuildID is told of a file that samples are in. id is nil if it has none, or none that is known.
	BuildID(path string, id []byte, kernel bool)
	// KeepPerfMaps is given the perf maps of processes that samples are in, those that were given before included, when
	// a file is about to be complete.
	KeepPerfMaps(maps []perfdata.PerfMap)
	// Round is called now and then, after the rings were drained.
	Round() error
	// Written is how many bytes were written so far.
	Written() int64
	// Close writes what is still to be written.
	Close() error
}

// A StreamOutput is the Destination for events that somebody else has opened.
type StreamOutput interface {
	Destination
	session.ProcessSink
	// Begin is called ahead of everything else.
	Begin() error
	// Waits means that something could not be written yet, so that Round is to be called soon.
	Waits() bool
}

const (
	// streamEvery is how often the rings are drained for a stream: whoever reads it gets nothing that comes
	// after the end.
	streamEvery = 100 * time.Millisecond
	// streamSoon is the same while something waits to be written.
	streamSoon = 5 * time.Millisecond
	// seedSlice is how long the running processes are read at a time: the rings fill meanwhile.
	seedSlice = 5 * time.Millisecond
	// firstSlice is the same for the first time, as long as the rings are nearly empty.
	firstSlice = time.Second
)

// begin enables the events, unless that is another's to do or happens when the command executes. The running
// processes are read after that: see package vmas.
func (r *recording) begin() error {
	switch {
	case r.Adopted != nil:
		if err := r.To.Begin(); err != nil {
			return err
		}
		return r.session.SeedLater(nil)
	case r.command != nil && !r.AllCPUs && len(r.PIDs) == 0:
		return nil
	}
	if err := r.source.Enable(); err != nil {
		return err
	}
	if err := r.session.SeedLater(r.PIDs); err != nil {
		return err
	}
	return r.seedFor(firstSlice, r.source.Pressing)
}

// drainEvery is how often the rings are drained.
func (r *recording) drainEvery() time.Duration {
	switch {
	case r.Adopted == nil:
		return wakeEvery
	case r.To.Waits():
		return streamSoon
	}
	return min(streamEvery, max(wakeLeast, r.source.UntilQuarter()))
}

// seedSome reads some of the processes that are still to be read.
func (r *recording) seedSome() error { return r.seedFor(seedSlice, nil) }

// seedFor does so for a time, or until a condition holds, if there is one.
func (r *recording) seedFor(slice time.Duration, until func() bool) error {
	began := time.Now()
	return r.session.SeedSome(func() bool { return time.Since(began) < slice && (until == nil || !until()) })
}

// UntilTold returns a context that is done when something is written to an eventfd, which is left there, or
// when the reader of a pipe or a socket has gone. Either descriptor may be -1. Both are waited for in the
// runtime's poller, through an epoll instance: others hold them, too, so whether they block stays as it is.
func UntilTold(ctx context.Context, event, written int) (context.Context, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	unix.SetNonblock(epoll, true) // os uses the runtime's poller then
	told := os.NewFile(uintptr(epoll), "told")
	for fd, events := range map[int]uint32{event: unix.EPOLLIN, written: 0} { // EPOLLHUP comes anyway
		if fd < 0 {
			continue
		}
		err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events})
		if err != nil && err != unix.EPERM { // a regular file's reader does not go
			told.Close()
			return nil, fmt.Errorf("epoll_ctl: descriptor %d: %w", fd, err)
		}
	}
	conn, err := told.SyscallConn()
	if err != nil {
		told.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { told.Close() }) // ends the wait
	go func() {
		defer cancel()
		_ = conn.Read(func(uintptr) bool {
			var come [1]unix.EpollEvent
			n, err := unix.EpollWait(epoll, come[:], 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
	}()
	return ctx, nil
}
