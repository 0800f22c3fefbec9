package opener

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/capture/output"
	"unspool/capture/priority"
	"unspool/capture/sandbox"
)

// grants are what the opener does besides reading processes: only what was granted before the client was
// confined.
type grants struct {
	sealed  bool
	events  [][]byte        // attributes of events that may be opened
	place   *output.Place   // of the output
	dir     int             // its directory, -1 for none
	names   map[string]bool // temporary names of files that were created there and are not finished
	command int             // pidfd, -1 for none

	precedence *priority.Raised
}

// mostOutputs bounds how many files are unfinished at a time.
const mostOutputs = 16

// do answers a request to grant something, or for something that was granted.
func (g *grants) do(r *request, fd int) (a answer) {
	a.fd = -1
	var err error
	switch r.op {
	case grantEvent, grantOutput, grantCommand, raisePriority, seal:
		a.bytes, err = g.grant(r, fd)
	case openEvent:
		a.fd, err = g.openEvent(r)
	case createOutput:
		a.fd, a.bytes, err = g.create()
	case keepOutput, discardOutput:
		err = g.finish(r)
	case signalCommand:
		err = g.signal(unix.Signal(r.start))
	case changePriority:
		a.value, a.bytes, err = g.changePriority(r.start == highest)
	default:
		err = unix.ENOSYS
	}
	if err != nil {
		a.fail(err)
	}
	return a
}

// grant permits later requests, until the grants are sealed.
func (g *grants) grant(r *request, fd int) (text []byte, err error) {
	if g.sealed {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, errSealed
	}
	switch r.op {
	case grantEvent:
		g.events = append(g.events, bytes.Clone(r.text))
	case grantOutput:
		path, name, _ := strings.Cut(string(r.text), "\x00")
		if g.place, err = output.Resume(fd, path, name); err == nil {
			g.dir, g.names = fd, make(map[string]bool)
		}
	case grantCommand:
		g.command, err = unix.PidfdOpen(int(r.pid), 0)
	case raisePriority:
		g.precedence = priority.Raise(os.Getpid(), os.Getppid())
		text = []byte(g.precedence.String())
	case seal:
		g.sealed = true
		err = sandbox.ConfineOpener(g.dir)
	}
	return text, err
}

// openEvent opens an event again on all tasks of a CPU.
func (g *grants) openEvent(r *request) (fd int, err error) {
	var attr unix.PerfEventAttr
	for _, granted := range g.events {
		if bytes.Equal(granted, r.text) && len(granted) == int(unsafe.Sizeof(attr)) {
			copy(attrBytes(&attr), granted)
			return unix.PerfEventOpen(&attr, -1, int(int32(r.pid)), -1, unix.PERF_FLAG_FD_CLOEXEC)
		}
	}
	return -1, unix.EACCES
}

func attrBytes(a *unix.PerfEventAttr) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(a)), unsafe.Sizeof(*a))
}

// create creates a file in the place of the output.
func (g *grants) create() (fd int, name []byte, err error) {
	if g.place == nil || len(g.names) >= mostOutputs {
		return -1, nil, unix.EACCES
	}
	file, temporary, err := g.place.CreateApart()
	if err != nil {
		return -1, nil, err
	}
	defer file.Close()
	g.names[temporary] = true
	fd, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return fd, []byte(temporary), err
}

// finish gives a file made by create its name, or removes it.
func (g *grants) finish(r *request) error {
	name := string(r.text)
	if g.place == nil || !g.names[name] {
		return unix.EACCES
	}
	delete(g.names, name)
	if r.op == keepOutput {
		return g.place.KeepApart(name)
	}
	return g.place.DiscardApart(name)
}

// signal sends the command a signal that ends it.
func (g *grants) signal(s unix.Signal) error {
	if g.command < 0 || s != unix.SIGTERM && s != unix.SIGKILL {
		return unix.EACCES
	}
	return unix.PidfdSendSignal(g.command, s, nil, 0)
}

// changePriority raises the priority above that of all real-time threads, or restores the ordinary one. text
// says what it is now.
func (g *grants) changePriority(raise bool) (changed uint64, text []byte, err error) {
	switch {
	case g.precedence == nil:
		return 0, nil, unix.EACCES
	case !raise:
		g.precedence.Restore()
	case g.precedence.Highest():
		changed = 1
	}
	return changed, []byte(g.precedence.String()), nil
}

var errSealed = errors.New("nothing is granted any more")
