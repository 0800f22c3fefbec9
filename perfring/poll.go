package perfring

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// poller sleeps until a ring has something to read. Every task and CPU has one descriptor in one
// epoll instance. When the task of an event and all tasks that inherited it have exited, the kernel
// reports EPOLLHUP for it, again and again: such a descriptor is removed from the poller at once.
//
// It is woken fifty times a second or more, and then Go's scheduler must not cost more than the work
// itself. During a system call that may block, the runtime's monitor thread checks every 20 µs whether
// it does block. So the poller sleeps in the runtime's own poller, for which the epoll instance is a
// descriptor like any other. The timeout is a timerfd in the epoll instance. System calls that cannot
// block are made by package sys.
//
// The descriptors of the rings for the side-band, and those of adopted events, are in an epoll instance of
// their own, which is a descriptor like any other in the first one: for a pause it is muted there, so that
// new records cause no wake-up. 500 mappings a second cost 26 ms of CPU time a second before, and 16 since. A third one
// takes the rings for samples while each sample causes a signal, which wakes whoever waits for its ring, too.
type poller struct {
	fd        int // of the epoll instance
	side      int // of the one for rings that do not end a pause
	unwatched int // of the one for rings that are only looked at, -1 if there is none
	epoll     *os.File
	conn      syscall.RawConn // of epoll
	fds       []polled        // by index, which is what epoll reports
	alive     int
	events    [64]unix.EpollEvent
	n         int                   // number of events that poll found
	err       error                 // of poll
	poll      func(fd uintptr) bool // bound once
	asked     bool                  // poll was called in this wait
	muted     bool                  // side is
	pausing   bool                  // rings in side do not end the wait
	noRings   bool                  // no rings do
	news      func() bool           // reports whether a ring has records that were not looked at
	presses   func() bool           // reports whether a ring that is not in side is a quarter full

	timer int    // timerfd
	armed bool   // it is set
	until uint64 // to when, in nanoseconds of CLOCK_MONOTONIC

	mu   sync.Mutex // wakeUp may be called by any goroutine, also while close runs
	wake int        // eventfd; -1 once closed
}

// A polled is the descriptor of an event.
type polled struct {
	fd, in int  // in is the epoll instance in which it is, -1 for none
	counts bool // among alive
}

// Indices of the descriptors that are not events.
const (
	wakeIndex  = -1
	timerIndex = -2
	sideIndex  = -3
)

func newPoller(news, presses func() bool) (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	p := &poller{fd: epoll, side: -1, unwatched: -1, wake: -1, timer: -1, news: news, presses: presses}
	_ = unix.SetNonblock(epoll, true) // this makes os use the runtime's poller
	p.epoll = os.NewFile(uintptr(epoll), "epoll")
	if err := p.open(); err != nil {
		p.closeAll()
		return nil, err
	}
	return p, nil
}

// open makes the descriptors that wake the poller besides the rings for samples: the timer, the eventfd, and
// the epoll instance for the side-band.
func (p *poller) open() (err error) {
	if p.conn, err = p.epoll.SyscallConn(); err != nil {
		return err
	}
	p.poll = func(fd uintptr) bool {
		p.ask(int(fd))
		// The kernel reports a ring once (perf_poll in kernel/events/core.c), and the runtime's poller may have
		// received that report. So a second call of this function during a wait means that there are new
		// records. Records that were reported before the wait began are seen in the rings themselves.
		again := p.asked
		p.asked = true
		switch {
		case p.n != 0: // -1 with an error
			return true
		case p.noRings:
			return false
		case p.pausing: // the report may have been of the rings in side
			return p.presses()
		}
		return again || p.news()
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("timerfd_create: %w", err)
	}
	if p.side, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	for _, d := range []struct{ fd, index int }{
		{p.wake, wakeIndex}, {p.timer, timerIndex}, {p.side, sideIndex},
	} {
		if err := control(p.fd, d.fd, d.index); err != nil {
			return err
		}
	}
	return nil
}

// ask asks an epoll instance for events. It does not block.
func (p *poller) ask(epoll int) {
	p.n, p.err = sys.EpollPoll(epoll, p.events[:])
}

func control(epoll, fd, index int) error {
	// x/sys calls half of the user data EpollEvent.Fd; the kernel does not interpret it.
	err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)})
	if err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// add watches the descriptor of an event. silent means that its records do not end a pause, counts that its
// task is one to wait for.
func (p *poller) add(fd int, silent, counts bool) error {
	d := polled{fd, p.fd, counts}
	if silent {
		d.in = p.side
	}
	if err := control(d.in, fd, len(p.fds)); err != nil {
		return err
	}
	p.fds = append(p.fds, d)
	if counts {
		p.alive++
	}
	return nil
}

// pause is wait without the rings in side.
func (p *poller) pause(timeout time.Duration) error {
	if err := p.setMuted(true); err != nil {
		return err
	}
	p.pausing = true
	defer func() { p.pausing = false }()
	return p.sleep(timeout)
}

// sleepWithoutRings is pause without any rings.
func (p *poller) sleepWithoutRings(timeout time.Duration) error {
	p.noRings = true
	defer func() { p.noRings = false }()
	return p.pause(timeout)
}

// setMuted turns wake-ups by the side-band rings off, or on again. What they got meanwhile causes one then.
func (p *poller) setMuted(is bool) error {
	if is == p.muted {
		return nil
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: sideIndex}
	if is {
		event.Events = 0
	}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, p.side, &event); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	p.muted = is
	return nil
}

// setUnwatched turns wake-ups by the sample rings off, or on again. Meanwhile whoever waits has to look at them
// in time; that a task has ended is found out with the next wait.
func (p *poller) setUnwatched(is bool) (err error) {
	if is == (p.unwatched >= 0) {
		return nil
	}
	from, to := p.unwatched, p.fd
	if is {
		if p.unwatched, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			return fmt.Errorf("epoll_create1: %w", err)
		}
		from, to = p.fd, p.unwatched
	} else {
		p.unwatched = -1
		defer unix.Close(from)
	}
	for i := range p.fds {
		d := &p.fds[i]
		if d.in != from {
			continue
		}
		_ = unix.EpollCtl(from, unix.EPOLL_CTL_DEL, d.fd, nil)
		if err := control(to, d.fd, i); err != nil {
			return err
		}
		d.in = to
	}
	return nil
}

// reapUnwatched collects the tasks of the unwatched set that have ended.
func (p *poller) reapUnwatched() {
	if p.unwatched >= 0 {
		p.ask(p.unwatched)
		p.look()
	}
}

// wait returns when a ring has reached its watermark, wakeUp was called, the last task has exited or
// the timeout has passed; a negative timeout never passes. After a pause there mostly is something new.
func (p *poller) wait(timeout time.Duration) error {
	if p.reapUnwatched(); p.muted && p.news() {
		return nil
	}
	if err := p.setMuted(false); err != nil {
		return err
	}
	return p.sleep(timeout)
}

// sleep is wait without a look at the rings before.
func (p *poller) sleep(timeout time.Duration) error {
	if timeout == 0 { // a timer that ends at once would interrupt this thread, and wake it
		p.ask(p.fd)
		_, err := p.found()
		return err
	}
	if err := p.arm(timeout); err != nil {
		return err
	}
	for {
		p.asked = false
		if err := p.conn.Read(p.poll); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		if ready, err := p.found(); ready || err != nil {
			return err
		}
	}
}

// found goes through what ask has found, with what it leads to. ready means that the wait is over.
func (p *poller) found() (ready bool, err error) {
	if p.err != nil && p.err != unix.EINTR {
		return false, fmt.Errorf("epoll_wait: %w", p.err)
	}
	alive := p.alive
	ready, side := p.look()
	if side {
		p.ask(p.side)
		news, _ := p.look()
		ready = ready || news
	}
	return ready || alive > 0 && p.alive == 0, nil
}

// look goes through what ask has found. ready means that there is more than the end of tasks, side that the
// epoll instance side is to be asked.
func (p *poller) look() (ready, side bool) {
	ready = p.n == 0
	for _, e := range p.events[:max(p.n, 0)] {
		switch {
		case e.Fd == sideIndex:
			side = true
		case e.Fd == wakeIndex:
			if !p.pausing { // the wait that follows a pause ends, too
				empty(p.wake)
			}
			ready = true
		case e.Fd == timerIndex:
			empty(p.timer)
			p.armed = false
			ready = true
		case e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
			d := &p.fds[e.Fd]
			_ = unix.EpollCtl(d.in, unix.EPOLL_CTL_DEL, d.fd, nil)
			d.in = -1
			if d.counts {
				p.alive--
			}
		default:
			ready = ready || !p.noRings
		}
	}
	return ready, side
}

// arm sets the timer, or stops it where the timeout is negative. Often the wait before was to last until the
// same time, and the timer is set already.
func (p *poller) arm(timeout time.Duration) error {
	const near = uint64(100 * time.Microsecond)
	until := Now() + uint64(max(0, timeout))
	if timeout < 0 && !p.armed || timeout >= 0 && p.armed && until-p.until+near <= 2*near {
		return nil
	}
	var at unix.ItimerSpec
	if timeout >= 0 {
		at.Value = unix.NsecToTimespec(max(1, timeout.Nanoseconds())) // zero would stop it
	}
	if err := unix.TimerfdSettime(p.timer, 0, &at, nil); err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	p.armed, p.until = timeout >= 0, until
	return nil
}

// empty reads the count of an eventfd or timerfd, so that it is not ready any more. It does not block.
func empty(fd int) {
	var b [8]byte
	_, _ = sys.Read(fd, b[:])
}

func (p *poller) wakeUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake >= 0 {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(p.wake, one[:]) // EAGAIN: it was woken already
	}
}

func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeAll()
}

func (p *poller) closeAll() {
	for _, fd := range []*int{&p.wake, &p.timer, &p.side, &p.unwatched} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
	_ = p.epoll.Close()
}
