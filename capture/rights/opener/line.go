package opener

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A line carries one request at a time, and its answer back.
type line struct {
	Conn
	buf []byte // of one message
}

// send sends a request.
func (l *line) send(r *request, fd int) error {
	l.buf = r.append(l.buf[:0])
	return l.Send(l.buf, fd)
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
		n, fd, err := l.next(in, limit)
		if err != nil {
			return answer{fd: -1}, err
		}
		a, err := parseAnswer(l.buf[:n])
		a.fd = fd
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
func (l *line) next(in *incoming, limit time.Duration) (n, fd int, err error) {
	n, fd, in.waited, err = l.Receive(l.buf, in.waited, limit)
	if err == nil && n == 0 {
		err = ErrEnded
	}
	return n, fd, err
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// lines are those for requests of one kind. One is made when it is needed, as all others are in use. The last one that
// was given back is the next one to be taken: its thread is the one that ran last.
type lines struct {
	connect func(limit time.Duration) (Conn, error) // makes one, in so much time

	mu    sync.Mutex
	most  int // that may still be made
	all   []*line
	free  []*line
	ended bool
}

// take takes a line that is free. It must be given back. waited is how long it was waited for, limit at most.
func (ls *lines) take(limit time.Duration) (l *line, waited time.Duration, err error) {
	if l, err = ls.takeFree(); l != nil || err != nil {
		return l, 0, err
	}
	began := time.Now()
	c, err := ls.connect(limit)
	waited = min(time.Since(began), limit) // what exceeds that went by without a CPU
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case err != nil:
		ls.most++
		return nil, waited, err
	case ls.ended:
		c.Close()
		return nil, waited, ErrEnded
	}
	l = &line{Conn: c}
	ls.all = append(ls.all, l)
	return l, waited, nil
}

// takeFree takes a line that is free, if there is one. Otherwise the caller may make one, unless there is an error.
func (ls *lines) takeFree() (*line, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	n := len(ls.free)
	switch {
	case ls.ended:
		return nil, ErrEnded
	case n > 0:
		l := ls.free[n-1]
		ls.free = ls.free[:n-1]
		return l, nil
	case ls.most == 0:
		return nil, unix.EAGAIN
	}
	ls.most--
	return nil, nil
}

// send sends a request over a line that is free, as take returns it.
func (ls *lines) send(r *request, fd int, limit time.Duration) (l *line, waited time.Duration, err error) {
	if l, waited, err = ls.take(limit); err != nil {
		return nil, waited, err
	}
	if err := l.send(r, fd); err != nil {
		defer ls.giveBack(l)
		return nil, waited, ls.fail(err)
	}
	return l, waited, nil
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

// A maker asks an opener for lines of one kind, over a line that is for nothing else.
type maker struct {
	*line
	bounded bool // of the lines that it makes
	ended   atomic.Bool

	turn chan struct{} // has room for whoever makes a line
	owed bool          // one was asked for, and has not come yet
}

// errLate means that a line has not come yet. It is the next one.
var errLate = errors.New("it was not asked in time")

// connect makes a line.
func (m *maker) connect(limit time.Duration) (Conn, error) {
	began, timer := time.Now(), time.NewTimer(limit)
	defer timer.Stop()
	select {
	case m.turn <- struct{}{}:
	case <-timer.C:
		return nil, errLate
	}
	defer func() { <-m.turn }()
	if m.ended.Load() {
		return nil, ErrEnded
	}
	if !m.owed {
		if err := m.send(&request{op: openLine}, -1); err != nil {
			return nil, endedBy(err)
		}
		m.owed = true
	}
	a, err := m.receive(&incoming{file: true, waited: time.Since(began)}, limit)
	switch {
	case err == errWaiting:
		return nil, errLate
	case err != nil:
		m.End() // what comes over it later is not known any more
		return nil, endedBy(err)
	}
	m.owed = false
	if a.fd < 0 {
		return nil, cmp.Or(a.err(), errMessage)
	}
	return newSocket(a.fd, m.bounded)
}

// end makes waits for lines fail. It may be called again: its descriptor can be another file's by then.
func (m *maker) end() {
	if m.ended.Swap(true) {
		return
	}
	m.End()
	m.turn <- struct{}{}
	m.Close()
	<-m.turn
}
