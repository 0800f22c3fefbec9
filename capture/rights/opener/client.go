package opener

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/passing"
	"unspool/capture/rights/sandbox"
	"unspool/vmas/process"
)

// A Client asks an opener. Its methods may be called by several goroutines.
type Client struct {
	process *os.Process // see Close
	command *Child      // nil for none
	reap    sync.Once

	one     sync.Mutex // for granted
	bound   bound      // of the same
	granted *lines     // one, for what is granted, and what was
	files   *lines     // for what may be waited for as long as it takes
	reads   *lines     // for what may not
	makers  []*maker   // of the last two

	owners owners

	gone   chan struct{} // closed when the opener has ended before it was told to
	living *os.File      // from which that is read

	mu   sync.Mutex
	hung map[uint32]int // by PID, requests whose answers are overdue
	wait answerWait     // of the goroutine that drains the rings, while records wait
	idle answerWait     // of the same goroutine between two drains
	rest answerWait     // of others
	all  answerWait     // of who lists all processes, without which nothing is recorded
}

// How many requests for files, and for texts and memory can be under way, those that hang included; and of these for
// the processes of one user, where the ones that do not hang have room beside those that do.
const (
	mostFiles      = 24
	mostFilesOfOne = 8
	mostReads      = 12
	mostReadsOfOne = 6
)

// ErrEnded means that the opener is not there any more.
var ErrEnded = errors.New("the process that opens files has ended")

// ErrLate means that a process could not be read in time.
var ErrLate = errors.New("not read in time")

// Start starts an opener with the rights of this process.
func Start() (*Client, error) { return start(nil) }

// StartWithCommand is Start for an opener with a child that becomes a command: see [Client.Command]. Its output goes to
// stdout.
func StartWithCommand(stdout *os.File) (*Client, error) { return start(stdout) }

// start starts an opener, with a child if stdout is not nil.
func start(stdout *os.File) (*Client, error) {
	var others []*os.File // the other ends, in the order that the opener expects
	defer func() {
		for _, file := range others {
			file.Close()
		}
	}()
	c, err := newClient(func() (fd int, err error) {
		fd, theirs, err := passing.Sockets()
		if err == nil {
			others = append(others, os.NewFile(uintptr(theirs), "opener"))
		}
		return fd, err
	})
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	living, life, err := os.Pipe()
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("pipe: %w", err)
	}
	others = append(others, life)
	if stdout != nil {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			living.Close()
			c.Close()
			return nil, fmt.Errorf("socketpair: %w", err)
		}
		others = append(others, os.NewFile(uintptr(pair[1]), "child"))
		c.command = &Child{client: c, socket: os.NewFile(uintptr(pair[0]), "command")}
	} else {
		stdout = os.Stdout
	}
	if c.process, err = startProcess(stdout, others); err != nil {
		living.Close()
		c.Close()
		return nil, fmt.Errorf("start a process that opens files: %w", err)
	}
	c.gone, c.living = make(chan struct{}), living
	go func() {
		if _, err := living.Read(make([]byte, 1)); err == io.EOF {
			close(c.gone)
		}
	}()
	return c, nil
}

// startProcess starts the process of an opener, with descriptors beside those that it inherits.
func startProcess(stdout *os.File, others []*os.File) (*os.Process, error) {
	var fds []int
	for _, file := range others {
		fds = append(fds, int(file.Fd()))
	}
	files, numbers := process.Beside([3]int{0, int(stdout.Fd()), 2}, fds...)
	argv := []string{serverName}
	for _, n := range numbers {
		argv = append(argv, strconv.Itoa(n))
	}
	pid, _, err := syscall.StartProcess("/proc/self/exe", argv, &syscall.ProcAttr{
		Env: environment(), Files: files, Sys: &syscall.SysProcAttr{AmbientCaps: sandbox.ForChildren()},
	})
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}

// Command is the child that becomes a command, nil for none.
func (c *Client) Command() *Child { return c.command }

// Gone is closed when the opener has ended though it was not told to: it was killed.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// PID is that of the process that opens files.
func (c *Client) PID() int { return c.process.Pid }

// newClient returns a client whose sockets connect makes: for what is granted, and for making lines.
func newClient(connect func() (fd int, err error)) (c *Client, err error) {
	fd, err := connect()
	if err != nil {
		return nil, err
	}
	granted, err := newSocket(fd, false)
	if err != nil {
		return nil, err
	}
	c = Over(granted, nil)
	for _, kind := range []struct {
		lines   *lines
		bounded bool
	}{{c.files, false}, {c.reads, true}} {
		fd, err := connect()
		if err != nil {
			c.Close()
			return nil, err
		}
		m := &maker{line: &line{Conn: &socket{fd: fd}}, bounded: kind.bounded, turn: make(chan struct{}, 1)}
		c.makers, kind.lines.connect = append(c.makers, m), m.connect
	}
	return c, nil
}

// Over returns a client of an opener that is reached over a connection, for what is granted, and others, which connect
// makes.
func Over(granted Conn, connect func(limit time.Duration) (Conn, error)) *Client {
	l := &line{Conn: granted}
	c := &Client{hung: make(map[uint32]int), wait: newAnswerWait(), rest: newAnswerWait(), idle: newAnswerWait(),
		all: newAnswerWait(), granted: &lines{all: []*line{l}, free: []*line{l}},
		files: &lines{connect: connect, most: mostFiles}, reads: &lines{connect: connect, most: mostReads}}
	c.all.one = firstCredit
	return c
}

// processors is how many threads of an opener run at once without the runtime's scheduler, which can take
// milliseconds, finding out that others of them hang; beside one for each CPU that reads the stacks of its samples.
const processors = 8

// environment is that of the opener: how many threads of it may run at once, who called sudo, for the owner of outputs,
// and the local time zone, for their names.
func environment() []string {
	env := []string{fmt.Sprintf("GOMAXPROCS=%d", processors+runtime.NumCPU())}
	for _, name := range []string{"SUDO_UID", "SUDO_GID", "TZ"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Close ends the opener. If it had a command, Close waits for that, so that what the command has used counts as used by
// children of this process (wait4(2)), for time(1) and limits; but not for long, as a thread of the opener may hang.
func (c *Client) Close() error {
	c.end()
	if c.command != nil && c.process != nil {
		c.reap.Do(c.awaitEnd)
	}
	return nil
}

// end tells the opener to end.
func (c *Client) end() {
	if c.command != nil {
		c.command.Cancel()
	}
	if c.living != nil {
		c.living.Close()
	}
	for _, ls := range []*lines{c.granted, c.files, c.reads} {
		ls.end()
	}
	for _, m := range c.makers {
		m.end()
	}
}

// mostToEnd is how long the end of an opener is waited for.
const mostToEnd = time.Second

// awaitEnd waits for the end of the opener.
func (c *Client) awaitEnd() {
	over := make(chan struct{})
	go func() {
		_, _ = c.process.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(mostToEnd):
	}
}

// askGranted asks for what is granted, or was. fd goes with the request where it is not negative.
func (c *Client) askGranted(r request, fd int) (answer, error) {
	c.one.Lock()
	defer c.one.Unlock()
	defer c.bound.begin()()
	return exchange(c.granted, &r, fd)
}

// Bound bounds how long each answer about what was granted is waited for, from now on: if one has not come by then, the
// client is closed, and late is called. A limit of 0 is none.
func (c *Client) Bound(limit time.Duration, late func()) {
	c.bound.set(limit, func() {
		c.end()
		late()
	})
}

// A bound bounds how long each answer is waited for, once it is set.
type bound struct {
	mu    sync.Mutex
	limit time.Duration // 0 for none
	late  func()
	timer *time.Timer // of the answer that is waited for, if there is a limit
	waits bool
}

// begin notes that an answer is waited for, until end is called.
func (b *bound) begin() (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = true
	b.start()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.waits = false; b.timer != nil {
			b.timer.Stop()
			b.timer = nil
		}
	}
}

func (b *bound) start() {
	if b.waits && b.limit > 0 && b.timer == nil {
		b.timer = time.AfterFunc(b.limit, b.late)
	}
}

func (b *bound) set(limit time.Duration, late func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit, b.late = limit, late
	b.start()
}

// askFile asks for a file, and waits for it as long as it takes, or until the client is closed.
func (c *Client) askFile(r request) (answer, error) { return exchange(c.files, &r, -1) }

// exchange sends a request over a line that is free, and waits for the answer.
func exchange(ls *lines, r *request, fd int) (answer, error) {
	l, _, err := ls.send(r, fd, forever)
	if err != nil {
		return answer{fd: -1}, err
	}
	defer ls.giveBack(l)
	a, err := l.receive(&incoming{file: r.op.opens()}, forever)
	if err != nil {
		return a, ls.fail(err)
	}
	return a, a.err()
}

// fail ends lines of which one has failed: what comes over it would be taken for the answer to another
// request.
func (ls *lines) fail(err error) error {
	ls.end()
	return endedBy(err)
}

// endedBy is [ErrEnded], with an error that shows it.
func endedBy(err error) error {
	if errors.Is(err, ErrEnded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrEnded, err)
}

// askSoon asks for what is waited for only as long as its credit lasts. The process that it is about is not
// asked again until the answer has come.
func (c *Client) askSoon(r request) (answer, error) { return c.askWith(&c.wait, r, nil) }

// askWith is askSoon with another credit. The bytes of the answer are in into if there is room.
func (c *Client) askWith(p *answerWait, r request, into []byte) (answer, error) {
	limit, err := c.begin(p, r.pid)
	if err != nil {
		return answer{fd: -1}, err
	}
	l, limit, err := c.sendRead(p, &r, limit)
	if err != nil {
		return answer{fd: -1}, err
	}
	a, err := c.receive(p, r.pid, l, &incoming{all: into[:0:len(into)]}, limit, false)
	if err != nil {
		return a, err
	}
	return a, a.err()
}

// sendRead sends a request over a line that is free. left is how long its answer is waited for then.
func (c *Client) sendRead(p *answerWait, r *request, limit time.Duration) (l *line, left time.Duration, err error) {
	l, waited, err := c.reads.send(r, -1, limit)
	if waited > 0 {
		c.waited(p, waited)
	}
	if err == errLate {
		err = fmt.Errorf("process %d: %w", r.pid, ErrLate)
	}
	return l, max(leastWait, limit-waited), err
}

// receive waits for an answer, or for a piece of it, and gives the line back unless more pieces follow.
func (c *Client) receive(p *answerWait, pid uint32, l *line, in *incoming, limit time.Duration, piece bool) (answer,
	error) {
	in.piece = piece
	a, err := l.receive(in, limit)
	c.waited(p, in.waited)
	switch {
	case err == nil && a.more != 0:
		return a, nil
	case err == nil:
		c.reads.giveBack(l)
		return a, nil
	case err == errWaiting:
		c.giveUp(pid, l, in)
		return a, fmt.Errorf("process %d: %w", pid, ErrLate)
	}
	defer c.reads.giveBack(l)
	return a, c.reads.fail(err)
}

// begin returns how long the answer to a request about a process is waited for.
func (c *Client) begin(p *answerWait, pid uint32) (limit time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pid != 0 && c.hung[pid] > 0 {
		return 0, fmt.Errorf("process %d: %w", pid, ErrLate)
	}
	return p.limit(time.Now()), nil
}

// waited takes the time that was waited from the credit.
func (c *Client) waited(p *answerWait, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.take(d)
}

// giveUp waits no longer for an answer, but for its end in the background.
func (c *Client) giveUp(pid uint32, l *line, in *incoming) {
	c.mu.Lock()
	c.hung[pid]++
	c.mu.Unlock()
	go func() {
		c.drop(l, in)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.hung[pid]--; c.hung[pid] <= 0 {
			delete(c.hung, pid)
		}
	}()
}

// drop receives the rest of an answer that nobody wants.
func (c *Client) drop(l *line, in *incoming) {
	in.all, in.drop, in.piece = nil, true, false
	a, err := l.receive(in, forever)
	if err != nil {
		_ = c.reads.fail(err)
	}
	closeFD(a.fd)
	c.reads.giveBack(l)
}
