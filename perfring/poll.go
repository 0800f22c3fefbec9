package perfring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// poller sleeps until a ring has something to read. Every task and CPU has one descriptor in one
// epoll instance. The kernel reports EPOLLHUP for an event whose task has exited, and all tasks
// that inherited it, and would do so forever: such a descriptor leaves the poller at once.
type poller struct {
	epoll  int
	fds    []int // by index, which is what epoll reports
	alive  int
	events [64]unix.EpollEvent

	mu   sync.Mutex // wake may come from anywhere, also while close runs
	wake int        // eventfd; -1 once closed
}

const wakeIndex = -1

func newPoller() (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	p := &poller{epoll: epoll, wake: wake}
	if err := p.control(wake, wakeIndex); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) control(fd, index int) error {
	// EpollEvent.Fd is the half of the user's data that x/sys names; the kernel does not look at it.
	err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)})
	if err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// add watches the descriptor of an event.
func (p *poller) add(fd int) error {
	if err := p.control(fd, len(p.fds)); err != nil {
		return err
	}
	p.fds = append(p.fds, fd)
	p.alive++
	return nil
}

// wait returns when a ring has reached its watermark, wakeUp was called, the last task has exited or
// the timeout is over; a negative one never is.
func (p *poller) wait(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		ms := -1
		if timeout >= 0 {
			left := max(0, time.Until(deadline))
			ms = int((left + time.Millisecond - 1) / time.Millisecond)
		}
		n, err := unix.EpollWait(p.epoll, p.events[:], ms)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		ready, gone := false, p.alive > 0
		for _, e := range p.events[:max(n, 0)] {
			switch {
			case e.Fd == wakeIndex:
				var b [8]byte
				_, _ = unix.Read(p.wake, b[:])
				ready = true
			case e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
				_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, p.fds[e.Fd], nil)
				p.alive--
			default:
				ready = true
			}
		}
		gone = gone && p.alive == 0
		if ready || gone || timeout >= 0 && !time.Now().Before(deadline) {
			return nil
		}
	}
}

func (p *poller) wakeUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake >= 0 {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(p.wake, one[:]) // EAGAIN: it is awake already
	}
}

func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake >= 0 {
		_ = unix.Close(p.wake)
		_ = unix.Close(p.epoll)
		p.wake = -1
	}
}
