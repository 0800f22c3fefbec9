package opener

import (
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A line carries one request at a time, and its answer back.
type line struct {
	Conn
	buf     []byte // of one message
	control [64]byte
}

// send sends a request.
func (l *line) send(r *request, fd int) error {
	l.buf = r.append(l.buf[:0])
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	return l.Send(l.buf, rights)
}

// errWaiting means that an answer has not come yet.
const errWaiting = unix.EAGAIN

// An incoming is what has come of an answer.
type incoming struct {
	all    []byte
	drop   bool          // nobody wants it
	piece  bool          // one piece is wanted
	file   bool          // so is a descriptor
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
		if err == nil && a.fd >= 0 && (!in.file || a.more != 0 || a.errno != 0) {
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
	n, controls, in.waited, err = l.Receive(l.buf, l.control[:], in.waited, limit)
	if err == nil && n == 0 {
		err = ErrEnded
	}
	return n, controls, err
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

// makeLines makes lines over connections.
func makeLines(n int, bounded bool, connect func(bounded bool) (Conn, error)) (*lines, error) {
	ls := &lines{}
	for range n {
		c, err := connect(bounded)
		if err != nil {
			ls.end()
			return nil, err
		}
		l := &line{Conn: c}
		ls.all = append(ls.all, l)
		ls.free = slices.Insert(ls.free, 0, l) // the first one is the first to be taken
	}
	return ls, nil
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
		l.Close()
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
		l.End()
	}
	for _, l := range ls.free {
		l.Close()
	}
	ls.free = nil
}
