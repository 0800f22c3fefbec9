package process

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// An Access reads processes. Its methods may be called by several goroutines.
type Access interface {
	Texts
	Memory
	FileAccess
}

// Texts reads a proc file system.
type Texts interface {
	// Text opens a text file of a thread, of which most bytes or a little more are going to be read; 0 for all. It
	// is read a piece at a time: what is not read may not be made either.
	Text(pid, tid uint32, name Text, most int) (io.ReadCloser, error)
	// Numbers lists the threads of a process, or all processes for PID 0. The error is about permissions where
	// the process is there and hidden.
	Numbers(pid uint32) ([]uint32, error)
	// Owner is the user of a process.
	Owner(pid uint32) (uid uint32, err error)
}

// Memory reads the memory of processes.
type Memory interface {
	// ReadMemory reads from an address on, and returns how much can be read.
	ReadMemory(pid uint32, buf []byte, addr uint64) int
}

// A Reader reads texts and memory.
type Reader interface {
	Texts
	Memory
}

// Aside is how goroutines that do not drain the rings read processes: where an Access waits no longer than the rings
// allow, they may wait longer.
func Aside(a Access) Reader {
	if p, ok := a.(interface{ Aside() Reader }); ok {
		return p.Aside()
	}
	return a
}

// FileAccess opens files as processes see them, if they are regular ones. See also [FileReader].
type FileAccess interface {
	// OpenPath opens what a path leads to in the root of a process, or here for PID 0. start and end are those
	// of the mapping for which it is opened, by which it may be opened though it does not look like code.
	OpenPath(pid uint32, path string, start, end uint64) (*os.File, error)
	// OpenMapped opens the file of a mapping by the kernel's link to it, which is there for deleted files,
	// too. target is where the link leads.
	OpenMapped(pid uint32, start, end uint64) (file *os.File, target string, err error)
	// OpenWithin is OpenPath with the root's symbolic links leading nowhere outside of it.
	OpenWithin(pid uint32, path string) (*os.File, error)
	// OpenPerfMap opens /tmp/perf-NUMBER.map in the root of a process, but no link of that name, and only what the
	// user may read without capabilities.
	OpenPerfMap(pid, number uint32) (*os.File, error)
	// Stat looks at what a path leads to in the root of a process.
	Stat(pid uint32, path string) (unix.Stat_t, error)
}

// A FileReader is an Access whose files may be descriptors that cannot be read (O_PATH, open(2)), as this
// process could not even end while a read hangs of a file whose server does not answer. It reads them.
type FileReader interface {
	// ReadFile is [io.ReaderAt] for a file that was opened for a process.
	ReadFile(pid uint32, file *os.File, p []byte, off int64) (n int, err error)
}

// A ReadBy is [io.ReaderAt] for files whose descriptors this process cannot read.
type ReadBy func(file *os.File, p []byte, off int64) (n int, err error)

// An OpenFile is an open file, and who reads it.
type OpenFile struct {
	*os.File
	By ReadBy // nil if this process does
}

// ReadAt is for [io.ReaderAt].
func (f *OpenFile) ReadAt(p []byte, off int64) (n int, err error) {
	if f.By != nil {
		return f.By(f.File, p, off)
	}
	return f.File.ReadAt(p, off)
}

// A FileOpener opens files by their paths here, if they are regular ones.
type FileOpener interface {
	// OpenRegular opens what a path leads to.
	OpenRegular(path string) (*OpenFile, error)
	// OpenWithin opens what a path leads to within a root, out of which no link leads.
	OpenWithin(root, path string) (*OpenFile, error)
}

// Here opens and reads files itself, which takes as long as it takes.
type Here struct{}

// OpenRegular is for [FileOpener].
func (Here) OpenRegular(path string) (*OpenFile, error) { return itself(OpenRegular(path)) }

// OpenWithin is for [FileOpener].
func (Here) OpenWithin(root, path string) (*OpenFile, error) { return itself(OpenWithin(root, path)) }

func itself(file *os.File, err error) (*OpenFile, error) {
	if err != nil {
		return nil, err
	}
	return &OpenFile{File: file}, nil
}

// A Text is a text file in the folder of a thread (proc(5)).
type Text uint8

const (
	Stat Text = iota
	Maps
	Syscall
	Mounts
	MountInfo
	Status
	Cmdline

	texts = iota
)

// IsText reports whether there is such a text.
func (t Text) IsText() bool { return t < texts }

// IsLong reports whether a text can be longer than what one read returns.
func (t Text) IsLong() bool { return t == Maps || t == Mounts || t == MountInfo }

func (t Text) String() string {
	switch t {
	case Stat:
		return "stat"
	case Maps:
		return "maps"
	case Syscall:
		return "syscall"
	case Mounts:
		return "mounts"
	case MountInfo:
		return "mountinfo"
	case Status:
		return "status"
	case Cmdline:
		return "cmdline"
	}
	return ""
}

// A Direct reads processes with the rights of this one, in the proc file system that is mounted at a path.
type Direct string

var _ Access = Direct("")

func (d Direct) folder(pid uint32) string {
	return string(d) + "/" + strconv.FormatUint(uint64(pid), 10)
}

// Text is for [Texts].
func (d Direct) Text(pid, tid uint32, name Text, _ int) (io.ReadCloser, error) {
	path := d.folder(pid) + "/task/" + strconv.FormatUint(uint64(tid), 10) + "/" + name.String()
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if err == nil {
			return &text{fd, path}, nil
		}
		if err != unix.EINTR {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// A text is an open file without the runtime's poller, which it would not need.
type text struct {
	fd   int
	path string
}

func (t *text) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(t.fd, b)
		switch {
		case err == nil && n == 0 && len(b) > 0:
			return 0, io.EOF
		case err == nil:
			return n, nil
		case err != unix.EINTR:
			return 0, &fs.PathError{Op: "read", Path: t.path, Err: err}
		}
	}
}

func (t *text) Close() error { return unix.Close(t.fd) }

// Numbers is for [Texts].
func (d Direct) Numbers(pid uint32) (numbers []uint32, err error) {
	path := string(d)
	if pid != 0 {
		path = d.folder(pid) + "/task"
	}
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && d.hides(pid) {
		err = &fs.PathError{Op: "open", Path: path, Err: unix.EACCES}
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if n, err := strconv.ParseUint(name, 10, 32); err == nil {
				numbers = append(numbers, uint32(n))
			}
		}
		if errors.Is(err, io.EOF) {
			return numbers, nil
		}
		if err != nil {
			return numbers, err
		}
	}
}

// hides reports whether a process that is not shown is there nevertheless, as it is another user's and /proc is
// mounted with hidepid (proc(5)). The kernel tells who asks whether it may be sent a signal.
func (d Direct) hides(pid uint32) bool {
	return d == "/proc" && pid != 0 && unix.Kill(int(pid), 0) != unix.ESRCH &&
		errors.Is(unix.Access(d.folder(pid), unix.F_OK), fs.ErrNotExist)
}

// ReadMemory is for [Memory].
func (d Direct) ReadMemory(pid uint32, buf []byte, addr uint64) (read int) {
	memory, err := d.OpenMemory(pid)
	if err != nil {
		return 0
	}
	defer memory.Close()
	return memory.Read(buf, addr)
}
