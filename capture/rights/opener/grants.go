package opener

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/capture/output"
	"unspool/capture/rights/priority"
	"unspool/capture/rights/rest"
	"unspool/capture/rights/sandbox"
)

// grants are what the opener does besides reading processes: only what was granted before the client was
// confined.
type grants struct {
	sealed  bool
	events  [][]byte // attributes of events that may be opened
	outputs []*granted
	folders []folder

	// sealedFor is what is asked for beside what was granted: forNames, forFiles, or 0 for processes.
	sealedFor atomic.Uint64

	precedence *priority.Raised
}

// granted is the place of an output.
type granted struct {
	*output.Place
	dir   int             // its directory
	names map[string]bool // temporary names of files that were created there and are not finished
}

// A folder is removed when it is not needed any more. What is in it has to be removed before.
type folder struct {
	parent int // descriptor
	name   string
}

// mostUnfinished bounds how many files of an output are unfinished at a time.
const mostUnfinished = 16

// mostDated bounds how many files of an output that are dated can be asked for.
const mostDated = 1 << 16

// do answers a request to grant something, or for something that was granted.
func (g *grants) do(r *request, fd int) (a answer) {
	a.fd = -1
	var err error
	switch r.op {
	case grantEvent, grantOutput, grantFolder, raisePriority, seal:
		a.value, a.bytes, err = g.grant(r, fd)
	case grantRing:
		a.value, a.fd, err = g.readRing(r, fd)
	case openEvent:
		a.fd, err = g.openEvent(r)
	case createOutput:
		a.fd, a.bytes, err = g.create(r)
	case keepOutput, keepOldOutput, discardOutput:
		err = g.finish(r)
	case keepDatedOutput:
		a.bytes, err = g.finishDated(r)
	case removeOutput:
		var o *granted
		if o, err = g.output(r); err == nil {
			err = o.Remove()
		}
	case removeFolders:
		g.removeFolders()
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

// grant permits later requests, until the grants are sealed. number is that of an output.
func (g *grants) grant(r *request, fd int) (number uint64, text []byte, err error) {
	if g.sealed {
		if fd >= 0 {
			unix.Close(fd)
		}
		return 0, nil, errSealed
	}
	switch r.op {
	case grantEvent:
		g.events = append(g.events, bytes.Clone(r.text))
	case grantOutput:
		names := append(strings.Split(string(r.text), "\x00"), "") // path, name, and those of dated files
		place, err := output.Resume(fd, names[0], names[1], r.end == keptBefore, names[2:max(2, len(names)-1)])
		if err != nil {
			return 0, nil, err
		}
		number = uint64(len(g.outputs))
		g.outputs = append(g.outputs, &granted{place, fd, make(map[string]bool)})
	case grantFolder:
		g.folders = append(g.folders, folder{fd, string(r.text)})
	case raisePriority:
		limitRealTime()
		g.precedence = priority.Raise(os.Getpid(), os.Getppid())
		text = []byte(g.precedence.String())
	case seal:
		g.sealed = true
		g.sealedFor.Store(r.start)
		if r.start == 0 && r.end != confinedToo {
			return 0, nil, nil // whoever asks has all of these rights, too
		}
		o := g.opening()
		if o.Confined = r.start == forFiles && r.end == confinedToo; o.Confined {
			if err := sandbox.BecomeUser(); err != nil {
				return 0, nil, err
			}
		}
		if err = sandbox.ConfineOpener(o); o.Files {
			err = nil // the process that reads lacks the same, and says so
		}
	}
	return number, text, err
}

// mostRealTime is how long a thread of the opener may run with real-time priority without ever waiting, in µs.
const mostRealTime = 3_000_000

// limitRealTime makes the kernel end the opener when one of its threads spins with real-time priority: nothing else
// would get that CPU from it. The recording is told that its opener is gone, and ends.
func limitRealTime() {
	_ = unix.Setrlimit(unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: mostRealTime, Max: mostRealTime})
}

// use is what is asked for beside what was granted.
func (g *grants) use() uint64 { return g.sealedFor.Load() }

// opening is what has to be left for the grants.
func (g *grants) opening() sandbox.Opening {
	o := sandbox.Opening{Names: g.use() == forNames, Files: g.use() == forFiles}
	for _, output := range g.outputs {
		o.Dirs = append(o.Dirs, output.dir)
	}
	for _, f := range g.folders {
		o.Parents = append(o.Parents, f.parent)
	}
	return o
}

// removeFolders removes the folders that are empty.
func (g *grants) removeFolders() {
	for _, f := range g.folders {
		_ = unix.Unlinkat(f.parent, f.name, unix.AT_REMOVEDIR)
	}
	g.folders = nil
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

// output is the output that a request is about.
func (g *grants) output(r *request) (*granted, error) {
	if r.start >= uint64(len(g.outputs)) {
		return nil, unix.EACCES
	}
	return g.outputs[r.start], nil
}

// create creates a file in the place of an output.
func (g *grants) create(r *request) (fd int, name []byte, err error) {
	o, err := g.output(r)
	if err != nil || len(o.names) >= mostUnfinished {
		return -1, nil, unix.EACCES
	}
	file, temporary, err := o.CreateApart()
	if err != nil {
		return -1, nil, err
	}
	defer file.Close()
	o.names[temporary] = true
	fd, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return fd, []byte(temporary), err
}

// unfinished is the file, made by create, that a request is about.
func (g *grants) unfinished(r *request) (o *granted, name string, err error) {
	name = string(r.text)
	if o, err = g.output(r); err != nil || !o.names[name] {
		return nil, "", unix.EACCES
	}
	return o, name, nil
}

// finishDated gives a file made by create a name of its own.
func (g *grants) finishDated(r *request) (suffix []byte, err error) {
	o, name, err := g.unfinished(r)
	if err != nil {
		return nil, err
	}
	text, err := o.KeepDatedApart(name, int(min(r.end, mostDated)))
	if text != "" {
		delete(o.names, name)
	}
	return []byte(text), err
}

// finish gives a file made by create its name, or removes it.
func (g *grants) finish(r *request) error {
	o, name, err := g.unfinished(r)
	if err != nil {
		return err
	}
	switch r.op {
	case keepOutput:
		err = o.KeepApart(name)
	case keepOldOutput:
		err = o.KeepOldApart(name)
	default:
		err = o.DiscardApart(name)
	}
	if err == nil {
		delete(o.names, name)
	}
	return err
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
		rest.GoFirst()
		changed = 1
	}
	return changed, []byte(g.precedence.String()), nil
}

var errSealed = errors.New("nothing is granted any more")
