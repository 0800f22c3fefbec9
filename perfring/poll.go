package perfring

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller sleeps until a ring has something to read. Every task and CPU has one descriptor in one
// epoll instance. When the task of an event and all tasks that inherited it have exited, the kernel
// reports EPOLLHUP for it, again and again: such a descriptor is removed from the poller at once.
//
// It is woken fifty times a second or more, and then Go's scheduler must not cost more than the work
// itself. During a system call that may block, the runtime's monitor thread checks every 20 µs whether
// it does block. So the poller sleeps in the runtime's own poller, for which the epoll instance is a
// descriptor like any other. The timeout is a timerfd in the epoll instance. System calls that cannot
// block are made without the runtime knowing (RawSyscall).
type poller struct {
	fd     int // of the epoll instance
	epoll  *os.File
	conn   syscall.RawConn // of epoll
	fds    []int           // by index, which is what epoll reports
	alive  int
	events [64]unix.EpollEvent
	n      int // number of events that poll found
	errno  syscall.Errno
	poll   func(fd uintptr) bool // bound once
	asked  bool                  // poll was called in this wait
	news   func() bool           // says whether a ring has records that were not looked at

	timer int    // timerfd
	armed bool   // it is set
	until uint64 // to when, in nanoseconds of CLOCK_MONOTONIC

	mu   sync.Mutex // wakeUp may be called by any goroutine, also while close runs
	wake int        // eventfd; -1 once closed
}

// Indices of the descriptors that are not events.
const (
	wakeIndex  = -1
	timerIndex = -2
)

func newPoller(news func() bool) (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	p := &poller{fd: epoll, wake: -1, timer: -1, news: news}
	_ = unix.SetNonblock(epoll, true) // this makes os use the runtime's poller
	p.epoll = os.NewFile(uintptr(epoll), "epoll")
	if err := p.open(); err != nil {
		p.closeAll()
		return nil, err
	}
	return p, nil
}

// open makes the descriptors that wake the poller besides the rings: the timer and the eventfd.
func (p *poller) open() (err error) {
	if p.conn, err = p.epoll.SyscallConn(); err != nil {
		return err
	}
	p.poll = func(fd uintptr) bool {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&p.events[0])),
			uintptr(len(p.events)), 0, 0, 0)
		p.n, p.errno = int(n), errno
		// The kernel reports a ring once (perf_poll in kernel/events/core.c), and the runtime's poller may have
		// received that report. So a second call of this function during a wait means that there are new
		// records. Records that were reported before the wait began are seen in the rings themselves.
		again := p.asked
		p.asked = true
		return n != 0 || again || p.news() // n is -1 with an error
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("timerfd_create: %w", err)
	}
	if err := p.control(p.wake, wakeIndex); err != nil {
		return err
	}
	return p.control(p.timer, timerIndex)
}

func (p *poller) control(fd, index int) error {
	// x/sys calls half of the user data EpollEvent.Fd; the kernel does not interpret it.
	err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)})
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
// the timeout has passed; a negative timeout never passes.
func (p *poller) wait(timeout time.Duration) error {
	if err := p.arm(timeout); err != nil {
		return err
	}
	for {
		p.asked = false
		if err := p.conn.Read(p.poll); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		if p.errno != 0 && p.errno != unix.EINTR {
			return fmt.Errorf("epoll_wait: %w", p.errno)
		}
		ready, gone := p.n == 0, p.alive > 0
		for _, e := range p.events[:max(p.n, 0)] {
			switch {
			case e.Fd == wakeIndex:
				empty(p.wake)
				ready = true
			case e.Fd == timerIndex:
				empty(p.timer)
				p.armed = false
				ready = true
			case e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
				_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, p.fds[e.Fd], nil)
				p.alive--
			default:
				ready = true
			}
		}
		if ready || gone && p.alive == 0 {
			return nil
		}
	}
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
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(p.timer), 0, uintptr(unsafe.Pointer(&at)),
		0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("timerfd_settime: %w", errno)
	}
	p.armed, p.until = timeout >= 0, until
	return nil
}

// empty reads the count of an eventfd or timerfd, so that it is not ready any more. It does not block.
func empty(fd int) {
	var b [8]byte
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b)), uintptr(len(b)))
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
	for _, fd := range []*int{&p.wake, &p.timer} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
	_ = p.epoll.Close()
}
