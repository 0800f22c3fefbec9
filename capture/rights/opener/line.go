package opener

import (
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A line is a socket that one request at a time goes over, and its answer back. Messages are sent and
// received by system calls that do not block, of which Go's scheduler need not know, and what has not come
// yet is waited for in the runtime's poller: while a thread is in a system call that may block, the runtime's
// monitor looks at it every 20 us, which took half of the CPU time of files that are asked for one by one.
// Whoever waits only for a bounded time blocks in the kernel all the same, as each timer wakes the monitor,
// too, but for the first moments, see soon.
type line struct {
	socket  int
	file    *os.File        // of the socket, where answers are waited for in the runtime's poller; else nil
	poll    syscall.RawConn // of file
	buf     []byte          // of one message
	control [64]byte
}

// roundTime is how long a bounded line waits before the time is looked at again. It is less than what most
// answers are waited for, so that these take no other system call to bound that.
const roundTime = mostForOne * 3 / 4

// soon is how long whoever waits for a bounded time does so without Go's monitor thread, which an ordinary
// system call wakes: most answers come by then.
const soon = 500 * time.Microsecond

// newLine returns a line whose other end is theirs.
func newLine(bounded bool) (l *line, theirs int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	l = &line{socket: pair[0]}
	if bounded {
		most := unix.NsecToTimeval(int64(roundTime))
		err = unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &most)
	} else if err = unix.SetNonblock(pair[0], true); err == nil { // os uses the runtime's poller then
		l.file = os.NewFile(uintptr(pair[0]), "line")
		l.poll, err = l.file.SyscallConn()
	}
	if err != nil {
		l.close()
		unix.Close(pair[1])
		return nil, -1, err
	}
	return l, pair[1], nil
}

func (l *line) close() {
	if l.file != nil {
		_ = l.file.Close()
		return
	}
	unix.Close(l.socket)
}

// send sends a request.
func (l *line) send(r *request, fd int) error {
	l.buf = r.append(l.buf[:0])
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	return sendMessage(l.socket, l.buf, rights)
}

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

// errWaiting means that an answer has not come yet.
const errWaiting = unix.EAGAIN

// An incoming is what has come of an answer.
type incoming struct {
	all    []byte
	drop   bool          // nobody wants it
	piece  bool          // one piece is wanted
	waited time.Duration // for it
}

// forever is longer than any answer takes.
const forever = math.MaxInt64

// makeRoom makes room for a message of an answer.
func (l *line) makeRoom() {
	l.buf = slices.Grow(l.buf[:0], answerHead+pieceSize)[:answerHead+pieceSize]
}

// receive waits for an answer, for limit at most: then the rest can be received later.
func (l *line) receive(in *incoming, limit time.Duration) (answer, error) {
	l.makeRoom()
	for {
		n, controls, err := l.next(in, limit)
		if err != nil {
			return answer{fd: -1}, err
		}
		a, err := parseAnswer(l.buf[:n])
		a.fd = receiveRights(l.control[:controls])
		if err == nil && a.more != 0 && a.fd >= 0 {
			err = errMessage
		}
		if err != nil {
			closeFD(a.fd)
			return answer{fd: -1}, err
		}
		if !in.drop && len(in.all)+len(a.bytes) <= mostAnswered+pieceSize {
			in.all = append(in.all, a.bytes...)
		}
		if a.more == 0 || in.piece {
			a.bytes = in.all
			return a, nil
		}
	}
}

// next receives a message.
func (l *line) next(in *incoming, limit time.Duration) (n, controls int, err error) {
	if l.file != nil {
		waited := l.poll.Read(func(socket uintptr) bool {
			n, controls, err = receiveNow(int(socket), l.buf, l.control[:])
			return err != unix.EAGAIN
		})
		if err = errors.Join(err, waited); err == nil && n == 0 {
			err = ErrEnded
		}
		return n, controls, err
	}
	for in.waited < limit {
		left, round, began := limit-in.waited, roundTime, time.Now()
		switch err = unix.EAGAIN; {
		case in.waited < soon:
			if round = min(left, soon); l.pollWithoutScheduler(round) {
				n, controls, err = receiveNow(l.socket, l.buf, l.control[:])
			}
		case left >= roundTime || l.waitReadable(left):
			n, controls, _, _, err = unix.Recvmsg(l.socket, l.buf, l.control[:], unix.MSG_CMSG_CLOEXEC)
		}
		// What exceeds that went by without a CPU, for which the opener may have had to wait, too.
		in.waited += min(time.Since(began), left, round)
		switch {
		case err == nil && n == 0:
			return 0, 0, ErrEnded
		case err == unix.EINTR, err == unix.EAGAIN: // see roundTime
			continue
		}
		return n, controls, err
	}
	return 0, 0, errWaiting
}

// pollWithoutScheduler waits for a message without Go's scheduler, whose other goroutines wait that long.
func (l *line) pollWithoutScheduler(within time.Duration) bool {
	most := unix.NsecToTimespec(int64(within))
	fd := unix.PollFd{Fd: int32(l.socket), Events: unix.POLLIN}
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fd)), 1, uintptr(unsafe.Pointer(&most)),
		0, 0, 0)
	return int(n) == 1
}

// waitReadable polls for at most within. It is for the end of a wait, when SO_RCVTIMEO is too long.
func (l *line) waitReadable(within time.Duration) bool {
	most := unix.NsecToTimespec(int64(within))
	n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(l.socket), Events: unix.POLLIN}}, &most, nil)
	return err != nil || n > 0 // EINTR: receiving one waits no longer than roundTime
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// lines are those for requests of one kind. The last one that was given back is the next one to be taken: its
// thread is the one that ran last, and those that are never needed have none.
type lines struct {
	mu    sync.Mutex
	all   []*line
	free  []*line
	ended bool
}

// makeLines makes lines. theirs are their other ends, to which those of the new ones are added.
func makeLines(n int, bounded bool, theirs []int) (*lines, []int, error) {
	ls := &lines{}
	for range n {
		l, other, err := newLine(bounded)
		if err != nil {
			ls.end()
			return nil, theirs, err
		}
		ls.all, theirs = append(ls.all, l), append(theirs, other)
		ls.free = slices.Insert(ls.free, 0, l) // the first one is the first to be taken
	}
	return ls, theirs, nil
}

// take takes a line that is free. It must be given back.
func (ls *lines) take() (*line, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	n := len(ls.free)
	switch {
	case ls.ended:
		return nil, ErrEnded
	case n == 0:
		return nil, unix.EAGAIN
	}
	l := ls.free[n-1]
	ls.free = ls.free[:n-1]
	return l, nil
}

// giveBack notes that nothing is under way on a line any more.
func (ls *lines) giveBack(l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ended {
		l.close()
		return
	}
	ls.free = append(ls.free, l)
}

// end makes all waits fail.
func (ls *lines) end() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ended {
		return
	}
	ls.ended = true
	for _, l := range ls.all {
		_ = unix.Shutdown(l.socket, unix.SHUT_RDWR)
	}
	for _, l := range ls.free {
		l.close()
	}
	ls.free = nil
}
