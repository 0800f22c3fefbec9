package opener

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas/credit"
)

// An inTime asks for files for a process that looks names up. Each answer is waited for only for a while, and
// what owes one is not asked for anything else.
type inTime struct {
	client *Client

	mu     sync.Mutex
	stop   <-chan struct{} // ends all waiting
	hung   map[string]bool // by path, places that owe an answer
	credit credit.Credit   // of time for which servers are waited for
}

// A place is where files are that hang together.
type place struct {
	path   string
	served bool // by a server
}

const (
	// mostForAnswer is how long one answer of a server is waited for: to open a file, or to read mostMemory
	// bytes of it.
	mostForAnswer = 2 * time.Second
	// mostForAnswers is the same for all together, without those that come at once, and serverShare of the time.
	mostForAnswers = 2 * time.Minute
	serverShare    = 8
	atOnce         = 20 * time.Millisecond
	// mostForDisk is for all other answers: a disk that stands still takes some seconds.
	mostForDisk = 15 * time.Second
)

var (
	errUnanswered  = errors.New("its file system does not answer")
	errSlow        = fmt.Errorf("its file system is slow, and was waited for for %v", mostForAnswers)
	errInterrupted = errors.New("interrupted")
)

func newInTime(c *Client) inTime {
	return inTime{client: c, hung: make(map[string]bool), credit: credit.New(serverShare, mostForAnswers)}
}

// Until ends all waiting when stop is closed.
func (t *inTime) Until(stop <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop = stop
}

// ask asks about something at a place. fd, which stays the caller's, goes with the request where it is not negative.
func (t *inTime) ask(at place, r *request, fd int) (answer, error) {
	limit, stop, err := t.begin(at)
	if err != nil {
		return answer{fd: -1}, err
	}
	if fd >= 0 { // the caller may have closed it when the request is sent
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return answer{fd: -1}, err
		}
	}
	type result struct {
		answer
		error
	}
	came := make(chan result)
	late := make(chan struct{}) // closed when nobody waits any more
	go func() {
		a, err := exchange(t.client.files, r, fd)
		closeFD(fd)
		select {
		case came <- result{a, err}:
		case <-late:
			closeFD(a.fd)
			t.answered(at)
		}
	}()
	began := time.Now()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-came:
		t.waited(at, time.Since(began))
		return r.answer, r.error
	case <-timer.C:
		err = errUnanswered
	case <-stop:
		err = errInterrupted
	}
	t.waited(at, time.Since(began))
	t.hangs(at)
	close(late)
	return answer{fd: -1}, err
}

// begin returns how long an answer is waited for, and what ends that.
func (t *inTime) begin(at place) (limit time.Duration, stop <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.stop:
		return 0, nil, errInterrupted
	default:
	}
	switch {
	case t.hung[at.path]:
		return 0, nil, errUnanswered
	case !at.served:
		return mostForDisk, t.stop, nil
	}
	left := t.credit.Left(time.Now())
	if left <= 0 {
		return 0, nil, errSlow
	}
	return min(mostForAnswer, left), t.stop, nil
}

func (t *inTime) waited(at place, d time.Duration) {
	if at.served && d > atOnce {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.credit.Spend(d)
	}
}

func (t *inTime) hangs(at place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hung[at.path] = true
}

func (t *inTime) answered(at place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.hung, at.path)
}
