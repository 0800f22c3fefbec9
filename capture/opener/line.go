package opener

import (
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A line is a socket that one request at a time goes over, and its answer back. Whoever asks blocks in the
// kernel until that comes, and so does the thread of the opener at the other end, unless it was not asked for
// a while. So each side is woken once, which takes 20 us, and a tenth of what goroutines take that share a
// socket.
type line struct {
	socket  int
	bounded bool   // it is not waited for longer than roundTime at a time
	buf     []byte // of one message
	control [64]byte
}

// roundTime is how long a bounded line waits before the time is looked at again. It is less than what most
// answers are waited for, so that these take no other system call to bound that.
const roundTime = patienceForOne * 3 / 4

// newLine returns a line whose other end is theirs.
func newLine(bounded bool) (l *line, theirs int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	if bounded {
		most := unix.NsecToTimeval(int64(roundTime))
		if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &most); err != nil {
			unix.Close(pair[0])
			unix.Close(pair[1])
			return nil, -1, err
		}
	}
	return &line{socket: pair[0], bounded: bounded}, pair[1], nil
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
		err := unix.Sendmsg(socket, message, rights, nil, unix.MSG_NOSIGNAL)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN: // the pieces of an answer before this one have not been received yet
			_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(socket), Events: unix.POLLOUT}}, nil, nil)
		default:
			return err
		}
	}
}

// errWaiting says that an answer has not come yet.
const errWaiting = unix.EAGAIN

// An incoming is what has come of an answer.
type incoming struct {
	all    []byte
	drop   bool          // nobody wants it
	waited time.Duration // for it
}

// forever is longer than any answer takes.
const forever = math.MaxInt64

// receive waits for an answer, for limit at most: then the rest can be received later.
func (l *line) receive(in *incoming, limit time.Duration) (answer, error) {
	l.buf = slices.Grow(l.buf[:0], answerHead+pieceSize)[:answerHead+pieceSize]
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
		if a.more == 0 {
			a.bytes = in.all
			return a, nil
		}
	}
}

// next receives a message.
func (l *line) next(in *incoming, limit time.Duration) (n, controls int, err error) {
	for in.waited < limit {
		left, began := limit-in.waited, time.Now()
		if err = unix.EAGAIN; left >= roundTime || l.comes(left) {
			n, controls, _, _, err = unix.Recvmsg(l.socket, l.buf, l.control[:], unix.MSG_CMSG_CLOEXEC)
		}
		// What exceeds that went by without a CPU, for which the opener may have had to wait, too.
		in.waited += min(time.Since(began), left, roundTime)
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

// comes waits for a message where less time is left than receiving one may take.
func (l *line) comes(within time.Duration) bool {
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

// giveBack says that nothing is under way on a line any more.
func (ls *lines) giveBack(l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ended {
		unix.Close(l.socket)
		return
	}
	ls.free = append(ls.free, l)
}

// end has all that is waited for fail.
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
		unix.Close(l.socket)
	}
	ls.free = nil
}
