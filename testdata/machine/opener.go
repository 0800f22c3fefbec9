package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/opener"
	"unspool/vmas/process"
)

// A server answers the requests of the product's [opener.Client], as they are on the wire, from what access says.
type server struct {
	access
	ended chan struct{} // closed when it has died
	die   func()
}

// newServer begins a server and its client, which the caller closes.
func newServer(m *Machine) *opener.Client {
	s := &server{access: access{m}, ended: make(chan struct{})}
	s.die = sync.OnceFunc(func() { close(s.ended) })
	client := opener.Over(s.connect(), func(time.Duration) (opener.Conn, error) { return s.connect(), nil })
	if m.plan.has("dead") {
		m.Reached["dead"]++
		time.AfterFunc(time.Millisecond+time.Duration(m.plan.draw("dead").Int64N(int64(m.plan.Time))), s.die)
	}
	return client
}

func (s *server) connect() *conn {
	c := &conn{server: s, answers: make(chan message), ended: make(chan struct{})}
	c.end = sync.OnceFunc(func() { close(c.ended) })
	return c
}

// What requests ask for, as they are numbered on the wire.
const (
	readText = iota + 1
	listNumbers
	readMemory
	openPath
	openMapped
	openWithin
	openPerfMap
	statPath
	readFile
	askOwner
)

// A request is what the client asks for.
type request struct {
	op, pid, tid uint32
	start, end   uint64
	text         string
	file         *os.File // that is to be read
}

// parseRequest parses a request and the descriptor that comes with it.
func parseRequest(b []byte, fd int) *request {
	const head = 3*4 + 2*8
	if len(b) < head {
		panic("a request that is too short")
	}
	r := &request{op: le.Uint32(b), pid: le.Uint32(b[4:]), tid: le.Uint32(b[8:]), start: le.Uint64(b[12:]),
		end: le.Uint64(b[20:]), text: string(b[head:])}
	if fd < 0 {
		return r
	}
	if r.op != readFile {
		panic("a request with a descriptor that it does not take")
	}
	var err error
	if r.file, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
		panic(err)
	}
	return r
}

// A message is a part of an answer.
type message struct {
	errno unix.Errno
	more  uint32
	value uint64
	bytes []byte
	file  *os.File // nil for none
	short bool     // it is none
}

// encode returns a message as it is on the wire.
func (a *message) encode() []byte {
	if a.short {
		return []byte{0, 0, 0}
	}
	b := le.AppendUint32(le.AppendUint32(nil, uint32(a.errno)), a.more)
	return append(le.AppendUint64(b, a.value), a.bytes...)
}

func (a *message) close() {
	if a.file != nil {
		a.file.Close()
	}
	a.file = nil
}

// take returns the descriptor of a message, which is the caller's then, -1 for none.
func (a *message) take() (fd int) {
	if a.file == nil {
		return -1
	}
	defer a.close()
	fd, err := unix.FcntlInt(a.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	return fd
}

// fail puts an error into a message, if there is one.
func (a *message) fail(r *rand.Rand, err error) {
	var errno unix.Errno
	switch {
	case err == nil:
	case errors.As(err, &errno):
		a.errno = errno
	case errors.Is(err, fs.ErrPermission):
		a.errno = unix.EACCES
	default: // /proc has either for a process that has ended
		a.errno = [2]unix.Errno{unix.ENOENT, unix.ESRCH}[r.IntN(2)]
	}
}

// A conn is one of the connections.
type conn struct {
	*server
	answers chan message
	ended   chan struct{} // closed by End
	end     func()
}

var _ opener.Conn = (*conn)(nil)

// Send is for [opener.Conn].
func (c *conn) Send(b []byte, fd int) error {
	select {
	case <-c.ended:
		return unix.EPIPE
	case <-c.server.ended:
		return unix.EPIPE
	default:
	}
	go c.answer(parseRequest(b, fd))
	return nil
}

// Receive is for [opener.Conn].
func (c *conn) Receive(b []byte, waited, limit time.Duration) (n, fd int, waits time.Duration, err error) {
	began := time.Now()
	var late <-chan time.Time
	if limit < math.MaxInt64 {
		timer := time.NewTimer(limit - waited)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case a := <-c.answers:
		return copy(b, a.encode()), a.take(), waited + time.Since(began), nil
	case <-c.ended:
	case <-c.server.ended:
	case <-late:
		return 0, -1, limit, unix.EAGAIN
	}
	return 0, -1, waited, nil
}

// End is for [opener.Conn].
func (c *conn) End() { c.end() }

// Close is for [opener.Conn].
func (c *conn) Close() { c.end() }

// answer answers a request, rightly or not.
func (c *conn) answer(q *request) {
	r := c.ask(fmt.Sprint("answer ", q.op, q.start, q.text), q.tid+q.pid)
	a := c.look(q, r)
	all := c.pieces(r, q, a)
	c.m.mu.Lock()
	isList := q.op == listNumbers && q.pid == 0 // without that, nothing is recorded
	unanswered, late, wrong := !isList && c.m.happens(r, "unanswered"), -1, c.m.happens(r, "wrong")
	if c.m.happensOften(r, "late") {
		late = r.IntN(len(all))
	}
	if wrong {
		all = c.spoil(r, q, all)
	}
	c.m.mu.Unlock()
	if unanswered {
		select {
		case <-c.ended:
		case <-c.server.ended:
		}
	}
	for i := range all {
		took := time.Duration(1 + r.Int64N(int64(answer)))
		if i == late {
			took += time.Duration(r.Int64N(int64(mostLate) >> r.IntN(5))) // mostly in the recording
		}
		time.Sleep(took)
		select {
		case c.answers <- all[i]:
			continue
		case <-c.ended:
		case <-c.server.ended:
		}
		all[i].close()
	}
}

// mostLate is longer than any answer is waited for while records wait.
const mostLate = 2 * time.Second

// look answers a request.
func (c *conn) look(q *request, r *rand.Rand) (a message) {
	var err error
	switch q.op {
	case readText:
		var text io.ReadCloser
		if text, err = c.Text(q.pid, q.tid, process.Text(q.start), int(q.end)); err == nil {
			a.bytes, err = io.ReadAll(text)
		}
	case listNumbers:
		var all []uint32
		all, err = c.Numbers(q.pid)
		for _, n := range all {
			a.bytes = le.AppendUint32(a.bytes, n)
		}
	case readMemory:
		a.bytes = make([]byte, q.end-q.start)
		a.bytes = a.bytes[:c.ReadMemory(q.pid, a.bytes, q.start)]
	case openPath, openMapped:
		a, err = c.openFile(q, r)
	case statPath:
		var st unix.Stat_t
		st, err = c.Stat(q.pid, q.text)
		for _, n := range []uint64{st.Dev, st.Ino, uint64(st.Size), uint64(st.Mtim.Sec), uint64(st.Mtim.Nsec),
			uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec)} {
			a.bytes = le.AppendUint64(a.bytes, n)
		}
	case readFile:
		a.bytes = make([]byte, q.end-q.start)
		var n int
		if n, err = q.file.ReadAt(a.bytes, int64(q.start)); err == io.EOF {
			err = nil
		}
		a.bytes = a.bytes[:n]
		q.file.Close()
	case askOwner:
		var uid uint32
		uid, err = c.Owner(q.pid)
		a.value = uint64(uid)
	default:
		err = fs.ErrNotExist
	}
	if err != nil {
		a = message{}
	}
	a.fail(r, err)
	return a
}

// openFile opens a file, or on a file system that has a server, what stands for it.
func (c *conn) openFile(q *request, r *rand.Rand) (a message, err error) {
	var file *os.File
	var target string
	if q.op == openPath {
		file, err = c.OpenPath(q.pid, q.text, q.start, q.end)
	} else {
		file, target, err = c.OpenMapped(q.pid, q.start, q.end)
	}
	if err != nil {
		return a, err
	}
	defer file.Close()
	c.m.mu.Lock()
	served := c.m.happens(r, "served")
	c.m.mu.Unlock()
	flags := unix.O_RDONLY
	if served {
		flags = unix.O_PATH
	}
	a.bytes = []byte(target)
	return a, a.open(file.Name(), flags)
}

func (a *message) open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		a.close()
		a.file = os.NewFile(uintptr(fd), path)
	}
	return err
}

// pieces are the messages of an answer. What one read returns is one.
func (c *conn) pieces(r *rand.Rand, q *request, a message) (all []message) {
	long := q.op == listNumbers || q.op == readText && process.Text(q.start).IsLong()
	for long && len(a.bytes) > 0 && r.IntN(4) == 0 {
		n := r.IntN(len(a.bytes))
		all = append(all, message{more: 1, bytes: a.bytes[:n]})
		a.bytes = a.bytes[n:]
	}
	return append(all, a)
}

// spoil returns something else than an answer. The caller holds mu.
func (c *conn) spoil(r *rand.Rand, q *request, all []message) []message {
	last := &all[len(all)-1]
	kinds := []string{"cut", "cut", "errno", "other"}
	switch {
	case last.file != nil:
		kinds = []string{"other file", "other file", "none", "none", "errno"}
	case q.op == listNumbers && q.pid == 0: // without that, nothing is recorded
		kinds = []string{"cut"}
	case q.op == readFile:
		kinds = []string{"cut", "errno"}
	case r.IntN(16) == 0:
		kinds = []string{"one", "short", "more"}
	}
	how := kinds[r.IntN(len(kinds))]
	c.m.Reached["wrong: "+how]++
	switch how {
	case "cut":
		last.bytes = last.bytes[:r.IntN(len(last.bytes)+1)]
	case "errno":
		last.errno = []unix.Errno{unix.EAGAIN, unix.EMFILE, unix.EIO, unix.ENOMEM, 0xffff}[r.IntN(5)]
	case "other":
		last.value, last.bytes = r.Uint64(), le.AppendUint64(nil, r.Uint64())
	case "other file": // as if it were mapped there by now
		last.close()
		if path := last.another(c.m, r); q.op == openMapped {
			last.bytes = []byte(path)
		}
	case "one":
		last.another(c.m, r)
	case "none":
		last.close()
	case "short":
		last.short = true
	case "more": // with a descriptor
		last.more = 1
		last.another(c.m, r)
	}
	return all
}

// another opens any file of the machine, and returns its path.
func (a *message) another(m *Machine, r *rand.Rand) (path string) {
	all := slices.Concat(m.program, m.library)
	f := all[r.IntN(len(all))]
	_ = a.open(f.real, unix.O_RDONLY)
	return f.name()
}

// openFiles counts the descriptors of this process that are of files in a folder.
func openFiles(folder string) (n int) {
	const links = "/proc/self/fd/"
	all, _ := os.ReadDir(links)
	for _, l := range all {
		if to, err := os.Readlink(links + l.Name()); err == nil && strings.HasPrefix(to, folder+"/") {
			n++
		}
	}
	return n
}
