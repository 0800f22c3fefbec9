package opener

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Conn carries messages to an opener and back: a socket, or what stands for one on a machine that is simulated.
type Conn interface {
	// Send sends a message and its control message, which may be empty.
	Send(message, rights []byte) error
	// Receive receives a message and its control message; none of 0 bytes is sent, so that is the end. waited is how
	// long the answer was waited for before, and waits how long after that. When that is limit, the error is
	// [unix.EAGAIN], and Receive may be called again.
	Receive(message, control []byte, waited, limit time.Duration) (n, controls int, waits time.Duration, err error)
	// End makes Receive fail, also for who waits already.
	End()
	Close()
}

// A socket is a Conn. System calls that do not block send and receive its messages: Go's scheduler need not know of
// them. What has not come yet is waited for in the runtime's poller. While a thread is in a system call that may block,
// the runtime's monitor looks at it every 20 us: that took half of the CPU time of files that are asked for one by one.
// Whoever waits only for a bounded time blocks in the kernel all the same, as each timer wakes the monitor, too; but
// not in the first moments: see soon.
type socket struct {
	fd   int
	file *os.File        // of the socket, where answers are waited for in the runtime's poller; else nil
	poll syscall.RawConn // of file
}

// roundTime is how long a bounded socket waits before the time is looked at again. It is less than what most
// answers are waited for, so that these take no other system call to bound that.
const roundTime = mostForOne * 3 / 4

// soon is how long whoever waits for a bounded time does so without Go's monitor thread, which an ordinary
// system call wakes: most answers come by then.
const soon = 500 * time.Microsecond

// newSocket returns a socket whose other end is theirs. If it is bounded, there are limits to receiving.
func newSocket(bounded bool) (s *socket, theirs int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	s = &socket{fd: pair[0]}
	if bounded {
		most := unix.NsecToTimeval(int64(roundTime))
		err = unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &most)
	} else if err = unix.SetNonblock(pair[0], true); err == nil { // os uses the runtime's poller then
		s.file = os.NewFile(uintptr(pair[0]), "line")
		s.poll, err = s.file.SyscallConn()
	}
	if err != nil {
		s.Close()
		unix.Close(pair[1])
		return nil, -1, err
	}
	return s, pair[1], nil
}

// Close is for [Conn].
func (s *socket) Close() {
	if s.file != nil {
		_ = s.file.Close()
		return
	}
	unix.Close(s.fd)
}

// End is for [Conn].
func (s *socket) End() { _ = unix.Shutdown(s.fd, unix.SHUT_RDWR) }

// Send is for [Conn].
func (s *socket) Send(message, rights []byte) error { return sendMessage(s.fd, message, rights) }

// sendMessage sends a message. Signals are for others.
func sendMessage(socket int, message, rights []byte) error {
	for {
		err := sendNow(socket, message, rights)
		switch err {
		case nil, unix.EINTR:
		case unix.EAGAIN: // the pieces of an answer before this one have not been received yet
			_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(socket), Events: unix.POLLOUT}}, nil, nil)
		}
		if err != unix.EINTR && err != unix.EAGAIN {
			return err
		}
	}
}

// sendNow sends a message if there is room for it at once, and does not block: so Go's monitor thread, which
// an ordinary system call wakes, is not to know of it.
func sendNow(socket int, message, rights []byte) error {
	head := header(message, rights)
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(socket), uintptr(unsafe.Pointer(&head)),
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	if errno != 0 {
		return errno
	}
	return nil
}

// receiveNow receives a message if there is one, and does not block.
func receiveNow(socket int, message, rights []byte) (n, controls int, err error) {
	head := header(message, rights)
	for {
		got, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(socket), uintptr(unsafe.Pointer(&head)),
			unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		switch errno {
		case 0:
			return int(got), int(head.Controllen), nil
		case unix.EINTR:
		default:
			return 0, 0, errno
		}
	}
}

// header is the head of a message with its bytes and its control message, which may be empty.
func header(message, rights []byte) (h unix.Msghdr) {
	h.Iov = &unix.Iovec{Base: unsafe.SliceData(message), Len: uint64(len(message))}
	h.Iovlen, h.Control, h.Controllen = 1, unsafe.SliceData(rights), uint64(len(rights))
	return h
}

// Receive is for [Conn].
func (s *socket) Receive(message, control []byte, waited, limit time.Duration) (n, controls int, waits time.Duration,
	err error) {
	if s.file != nil {
		stopped := s.poll.Read(func(fd uintptr) bool {
			n, controls, err = receiveNow(int(fd), message, control)
			return err != unix.EAGAIN
		})
		return n, controls, waited, errors.Join(err, stopped)
	}
	for waited < limit {
		left, round, began := limit-waited, roundTime, time.Now()
		switch err = unix.EAGAIN; {
		case waited < soon:
			if round = min(left, soon); s.pollWithoutScheduler(round) {
				n, controls, err = receiveNow(s.fd, message, control)
			}
		case left >= roundTime || s.waitReadable(left):
			n, controls, _, _, err = unix.Recvmsg(s.fd, message, control, unix.MSG_CMSG_CLOEXEC)
		}
		// What exceeds that went by without a CPU, for which the opener may have had to wait, too.
		waited += min(time.Since(began), left, round)
		if err != unix.EINTR && err != unix.EAGAIN { // see roundTime
			return n, controls, waited, err
		}
	}
	return 0, 0, waited, errWaiting
}

// pollWithoutScheduler waits for a message without Go's scheduler, whose other goroutines wait that long.
func (s *socket) pollWithoutScheduler(within time.Duration) bool {
	most := unix.NsecToTimespec(int64(within))
	fd := unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN}
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fd)), 1, uintptr(unsafe.Pointer(&most)),
		0, 0, 0)
	return int(n) == 1
}

// waitReadable polls for at most within. It is for the end of a wait, when SO_RCVTIMEO is too long.
func (s *socket) waitReadable(within time.Duration) bool {
	most := unix.NsecToTimespec(int64(within))
	n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, &most, nil)
	return err != nil || n > 0 // EINTR: receiving one waits no longer than roundTime
}
