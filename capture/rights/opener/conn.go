package opener

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/passing"
	"unspool/vmas/sys"
)

// A Conn carries messages to an opener and back: a socket, or what stands for one on a machine that is simulated.
type Conn interface {
	// Send sends a message, and a descriptor with it unless that is negative.
	Send(message []byte, fd int) error
	// Receive receives a message and its descriptor, which is the caller's, -1 for none; no message of 0 bytes is sent,
	// so that is the end. waited is how long the answer was waited for before, and waits how long after that. When that is
	// limit, the error is [unix.EAGAIN], and Receive may be called again.
	Receive(message []byte, waited, limit time.Duration) (n, fd int, waits time.Duration, err error)
	// End makes Receive fail, also for who waits already.
	End()
	Close()
}

// A socket is a Conn. Whoever waits as long as it takes does so in the runtime's poller: a thread in a system call that
// may block wakes Go's monitor (see [passing.Send]). Whoever waits only for a bounded time blocks in the kernel all the
// same, as each timer wakes the monitor, too; but not in the first moments: see soon.
type socket struct {
	fd   int
	file *os.File        // of the socket, where answers are waited for in the runtime's poller; else nil
	poll syscall.RawConn // of file
}

// roundTime is how long a bounded socket waits before the time is looked at again: a pause of this process is charged
// as so much at most.
const roundTime = mostForOne * 3 / 4

// soon is how long whoever waits for a bounded time does so without Go's monitor thread, which an ordinary
// system call wakes: most answers come by then.
const soon = 500 * time.Microsecond

// newSocket returns a socket by its descriptor, which it takes over. If it is bounded, there are limits to receiving.
func newSocket(fd int, bounded bool) (s *socket, err error) {
	s = &socket{fd: fd}
	if bounded {
		return s, nil
	}
	if err = unix.SetNonblock(fd, true); err == nil { // os uses the runtime's poller then
		s.file = os.NewFile(uintptr(fd), "line")
		s.poll, err = s.file.SyscallConn()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
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

// Send is for [Conn]. There is room, as a line has one request at a time.
func (s *socket) Send(message []byte, fd int) error { return passing.Send(s.fd, message, fd) }

// Receive is for [Conn].
func (s *socket) Receive(message []byte, waited, limit time.Duration) (n, fd int, waits time.Duration, err error) {
	if s.file != nil {
		n, fd, err = receivePolled(s.fd, s.poll, message)
		return n, fd, waited, err
	}
	for waited < limit {
		round, wait, began := min(limit-waited, roundTime), s.pollWithScheduler, time.Now()
		if waited < soon {
			round, wait = min(round, soon), s.pollRaw
		}
		n, fd, err = 0, -1, unix.EAGAIN
		if wait(round) {
			n, fd, err = passing.ReceiveNow(s.fd, message)
		}
		// What exceeds that went by without a CPU, for which the opener may have had to wait, too.
		waited += min(time.Since(began), round)
		if err != unix.EAGAIN {
			return n, fd, waited, err
		}
	}
	return 0, -1, waited, errWaiting
}

// receivePolled waits for a message in the runtime's poller, by a connection that tells of what comes over a socket.
func receivePolled(socket int, tells syscall.RawConn, message []byte) (n, fd int, err error) {
	fd = -1
	stopped := tells.Read(func(uintptr) bool {
		n, fd, err = passing.ReceiveNow(socket, message)
		return err != unix.EAGAIN
	})
	return n, fd, errors.Join(err, stopped)
}

// pollRaw waits for a message without Go's scheduler, whose other goroutines wait that long.
func (s *socket) pollRaw(within time.Duration) bool { return sys.Poll(s.fd, within) }

// pollWithScheduler waits for a message while other goroutines run.
func (s *socket) pollWithScheduler(within time.Duration) bool {
	most := unix.NsecToTimespec(int64(within))
	n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, &most, nil)
	return err == nil && n == 1
}
