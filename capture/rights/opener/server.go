package opener

import (
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/passing"
	"unspool/vmas/process"
)

// serverName is argv[0] of the opener.
const serverName = "unspool (opener)"

// What an opener is started with. Its arguments are the numbers of these descriptors.
const (
	grantLine     = iota // for what is granted
	makeFiles            // makes lines for files
	makeReads            // makes lines for texts and memory
	life                 // the end of a pipe that stays open as long as the opener is there
	commandSocket        // for a child that waits to become a command; not if there is none
)

// Any program that imports this package can be the opener, the binaries of tests, too.
func init() {
	if len(os.Args) > 1+life && os.Args[0] == serverName {
		process.Rename("unspool-opener")
		catchSignals()
		var given []int
		for _, arg := range os.Args[1:] {
			fd, err := strconv.Atoi(arg)
			if err != nil {
				os.Exit(125) // no client has started it
			}
			unix.CloseOnExec(fd)
			given = append(given, fd)
		}
		s := newServer()
		if len(given) > commandSocket {
			s.command = startCommand(given[commandSocket])
		}
		given = given[:commandSocket]
		letGo(given...)
		debug.SetMemoryLimit(memoryLimit)
		s.serve(given)
		os.Exit(0)
	}
}

const memoryLimit = 256 << 20

// A server answers one process.
type server struct {
	processes process.Direct
	grants    grants
	files     shares // of the users in what is under way for files
	reads     shares // likewise, for texts and memory
	handedOut files  // of servers, with names of generated code
	closer    closer
	command   int // PID of the child that becomes a command, or has; 0 for none
	ended     chan struct{}
	granted   chan struct{} // closed when nothing more is asked for of what is granted
}

func newServer() *server {
	s := &server{processes: "/proc", ended: make(chan struct{}), granted: make(chan struct{})}
	s.files = shares{most: mostFilesOfOne, owner: s.processes.Owner}
	s.reads = shares{most: mostReadsOfOne, owner: s.processes.Owner}
	return s
}

// serve answers requests that come over the given descriptors, until whoever asks has ended.
func (s *server) serve(given []int) {
	go s.grant(given[grantLine])
	go s.makeLines(given[makeFiles], mostFiles)
	go s.makeLines(given[makeReads], mostReads)
	<-s.ended
	select {
	case <-s.granted:
	case <-time.After(time.Second): // it hangs
	}
}

// A listener answers the requests that come over one socket, one after the other.
type listener struct {
	*server
	socket  int
	message []byte // an answer
	piece   []byte // what is read for it
}

// grant answers requests to grant something, and for what was granted.
func (s *server) grant(socket int) {
	defer func() { s.ended <- struct{}{} }()
	defer close(s.granted)
	defer s.grants.removeFolders()
	s.listen(socket, func(l *listener, r *request, fd int) {
		if !r.op.grantsFile() {
			closeFD(fd)
			fd = -1
		}
		if r.op == reapCommand {
			status, err := s.reapCommand()
			l.value(uint64(status), err)
			return
		}
		l.answer(l.grants.do(r, fd))
	})
}

// makeLines makes lines for whoever asks for them over a socket, so many at most.
func (s *server) makeLines(socket, most int) {
	defer func() { s.ended <- struct{}{} }()
	room := make(chan struct{}, most) // has one for each line that is there
	s.listen(socket, func(l *listener, r *request, fd int) {
		closeFD(fd)
		a := answer{errno: unix.EACCES, fd: -1}
		if r.op == openLine {
			select {
			case room <- struct{}{}:
				a = s.makeLine(func() { <-room })
			default:
			}
		}
		l.answer(a)
	})
}

// makeLine makes a line, and answers its requests. over is called at its end. That does not end the opener: whoever
// asks may have had no descriptor to spare for the line.
func (s *server) makeLine(over func()) (a answer) {
	ours, theirs, err := passing.Sockets()
	if err != nil {
		over()
		a.fail(err)
		a.fd = -1
		return a
	}
	go func() {
		if !s.listen(ours, (*listener).take) {
			s.ended <- struct{}{}
		}
		unix.Close(ours)
		over()
	}()
	a.fd = theirs
	return a
}

// listen answers requests that come over a socket, one after the other, until its end, or something comes that is none:
// clean is false then.
func (s *server) listen(socket int, take func(l *listener, r *request, fd int)) (clean bool) {
	come, err := arrivals(socket)
	if err != nil {
		return true
	}
	defer come.Close()
	tells, err := come.SyscallConn()
	if err != nil {
		return true
	}
	l := &listener{server: s, socket: socket, piece: make([]byte, pieceSize)}
	buf := make([]byte, requestHead+mostText+1)
	for {
		n, fd, err := receivePolled(socket, tells, buf)
		if err != nil || n == 0 {
			return true
		}
		r, err := parseRequest(buf[:n])
		if err != nil {
			closeFD(fd)
			return false
		}
		take(l, &r, fd)
	}
}

// arrivals is an epoll instance by which messages of a socket are waited for in the runtime's poller. That
// would watch the socket itself for room, too, and be woken each time that the other end has received one.
func arrivals(socket int) (*os.File, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, socket, &unix.EpollEvent{Events: unix.EPOLLIN})
	if err == nil {
		err = unix.SetNonblock(epoll, true) // os uses the runtime's poller then
	}
	if err != nil {
		unix.Close(epoll)
		return nil, err
	}
	return os.NewFile(uintptr(epoll), "arrivals"), nil
}

// take answers a request about other processes and files.
func (l *listener) take(r *request, fd int) {
	under := &l.reads
	switch r.op {
	case awaitCommand:
		closeFD(fd)
		l.value(0, l.awaitCommand())
		return
	case openPath, openWithin, openMapped, openPerfMap, statPath, readFile:
		under = &l.files
	}
	if l.grants.use() != forFiles && !under.begin(r.pid) { // there, all is for one user
		closeFD(fd)
		l.answer(answer{errno: unix.EAGAIN, fd: -1})
		return
	}
	if r.op == readFile {
		l.contents(r, fd)
	} else {
		closeFD(fd)
		l.look(r)
	}
	under.end(r.pid)
}

// answer sends an answer and closes the descriptor in it.
func (l *listener) answer(a answer) {
	l.message = a.append(l.message[:0])
	if err := passing.Send(l.socket, l.message, a.fd); err != nil && a.fd >= 0 {
		// Too many descriptors are on their way: whoever asks may do so again.
		failed := answer{errno: unix.EMFILE, fd: -1}
		_ = passing.Send(l.socket, failed.append(nil), -1)
	}
	closeFD(a.fd)
}

// look answers a request about another process.
func (l *listener) look(r *request) {
	switch l.grants.use() {
	case forNames:
		l.lookForNames(r)
		return
	case forFiles:
		l.lookForFile(r)
		return
	}
	switch r.op {
	case readText:
		l.text(r)
	case listNumbers:
		all, err := l.processes.Numbers(r.pid)
		l.bytes(appendNumbers(nil, all), err)
	case readMemory:
		l.memory(r)
	case openPath, openWithin, openMapped:
		l.answer(l.file(r))
	case openPerfMap:
		l.answer(l.perfMap(r))
	case statPath:
		l.answer(l.stat(r))
	case askOwner:
		uid, err := l.processes.Owner(r.pid)
		l.value(uint64(uid), err)
	case askCPU:
		var u unix.Rusage
		err := unix.Getrusage(unix.RUSAGE_SELF, &u)
		l.value(uint64(u.Utime.Nano()+u.Stime.Nano()), err)
	default:
		l.value(0, unix.ENOSYS)
	}
}

// lookForNames answers a request about a file with names of generated code.
func (l *listener) lookForNames(r *request) {
	a := answer{fd: -1}
	switch r.op {
	case openWithin:
		a = l.file(r)
	case openPerfMap:
		a = l.perfMap(r)
	default:
		a.fail(unix.ENOSYS)
	}
	l.answer(a)
}

// perfMap opens the perf map of a process.
func (l *listener) perfMap(r *request) answer {
	fd, err := l.processes.PerfMapDescriptor(r.pid, uint32(r.start))
	return l.handle(fd, "", err)
}

// lookForFile answers a request about a file of this machine.
func (l *listener) lookForFile(r *request) {
	fd, err := -1, error(unix.ENOSYS)
	switch r.op {
	case openPath:
		fd, err = l.processes.PathDescriptor(0, string(r.text))
	case openWithin:
		root, path, _ := strings.Cut(string(r.text), "\x00")
		fd, err = process.DescriptorWithin(root, path)
	}
	l.answer(l.handle(fd, "", err))
}

// value sends a number.
func (l *listener) value(n uint64, err error) {
	a := answer{value: n, fd: -1}
	if err != nil {
		a.fail(err)
	}
	l.answer(a)
}

// text sends a text. The small ones are what one read returns.
func (l *listener) text(r *request) {
	name := process.Text(r.start)
	if !name.IsText() {
		l.bytes(nil, unix.EINVAL)
		return
	}
	text, err := l.processes.Text(r.pid, r.tid, name, 0)
	if err != nil {
		l.bytes(nil, err)
		return
	}
	defer text.Close()
	most, piece := uint64(mostAnswered), l.piece
	if r.end > 0 {
		most = min(r.end, most)
		if !name.IsLong() {
			piece = piece[:min(most, uint64(len(piece)))]
		}
	}
	for total := uint64(0); ; {
		n, err := text.Read(piece)
		for name.IsLong() && err == nil && n > 0 && n < len(l.piece) { // the kernel returns a page at a time
			var more int
			if more, err = text.Read(l.piece[n:]); more == 0 {
				break
			}
			n += more
		}
		if err != nil && err != io.EOF {
			l.bytes(nil, err)
			return
		}
		total += uint64(n)
		a := answer{bytes: l.piece[:n], fd: -1}
		if name.IsLong() && n == len(l.piece) && total < most {
			a.more = anotherPiece
		}
		l.answer(a)
		if a.more == 0 {
			return
		}
	}
}

// memory sends memory, as far as it goes.
func (l *listener) memory(r *request) {
	if r.end-r.start > mostMemory {
		l.bytes(nil, unix.EINVAL)
		return
	}
	for at := r.start; ; {
		piece := l.piece[:min(uint64(len(l.piece)), r.end-at)]
		n := l.processes.ReadMemory(r.pid, piece, at)
		at += uint64(n)
		a := answer{bytes: piece[:n], fd: -1}
		if n == len(piece) && at < r.end {
			a.more = anotherPiece
		}
		l.answer(a)
		if a.more == 0 {
			return
		}
	}
}

// mostMemory is how much memory is read for one request.
const mostMemory = 1 << 20

// bytes sends bytes in pieces.
func (l *listener) bytes(all []byte, err error) {
	a := answer{fd: -1}
	if err != nil {
		a.fail(err)
		l.answer(a)
		return
	}
	for {
		n := min(len(all), pieceSize)
		a.bytes, all = all[:n], all[n:]
		if a.more = 0; len(all) > 0 {
			a.more = anotherPiece
		}
		l.answer(a)
		if a.more == 0 {
			return
		}
	}
}

// file opens a file that may be handed out.
func (l *listener) file(r *request) answer {
	fd, target, err := l.open(r)
	if err == nil {
		refused := l.handsOut(fd)
		if refused != nil && !(r.end > r.start && l.processes.MapsAsCode(r.pid, r.start, r.end, fd)) {
			l.closer.close(fd)
			err = refused
		}
	}
	return l.handle(fd, target, err)
}

// handle is the answer with a descriptor of a file that was opened, or with the error.
func (l *listener) handle(fd int, target string, err error) answer {
	if err == nil && isServed(fd) {
		fd, err = l.unreadable(fd)
	}
	a := answer{fd: -1}
	if err != nil {
		a.fail(err)
		return a
	}
	a.fd, a.bytes = fd, []byte(target)
	return a
}

// open opens a regular file.
func (l *listener) open(r *request) (fd int, target string, err error) {
	switch path := string(r.text); {
	case r.op == openMapped:
		return l.processes.MappedDescriptor(r.pid, r.start, r.end)
	case len(path) == 0 || path[0] != '/':
		return -1, "", unix.EINVAL
	case r.op == openPath:
		fd, err = l.processes.PathDescriptor(r.pid, path)
		return fd, "", err
	default:
		fd, err = l.processes.WithinDescriptor(r.pid, path)
		return fd, "", err
	}
}

// handsOut returns nil for a file that begins as jitdumps do, or as ELF files if those are asked for. Other
// files are not handed out by a path: ENODATA stands for one that has no beginning, such as a program that is
// being written, and ENOEXEC for one with another.
func (s *server) handsOut(fd int) error {
	var magic [4]byte
	if n, _ := unix.Pread(fd, magic[:], 0); n < len(magic) {
		return unix.ENODATA
	}
	switch string(magic[:]) {
	case "JiTD", "DTiJ": // of either order of bytes
		return nil
	case "\x7fELF":
		if s.grants.use() != forNames {
			return nil
		}
	}
	return unix.ENOEXEC
}

// stat looks at a file.
func (l *listener) stat(r *request) (a answer) {
	a.fd = -1
	path := string(r.text)
	if len(path) == 0 || path[0] != '/' {
		a.fail(unix.EINVAL)
		return a
	}
	st, err := l.processes.Stat(r.pid, path)
	if err != nil {
		a.fail(err)
		return a
	}
	a.bytes = appendStat(nil, &st)
	return a
}
