package opener

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"unspool/vmas/process"
)

// A process that waits for a file system's server cannot end, not even when it is killed, and closing a file
// can mean to wait, too (request_wait_answer in fs/fuse/dev.c). So the client gets files of such file systems
// as descriptors that stand for the file and no more (O_PATH, open(2)), and asks for their contents.

// servers are the file systems that ask a server (statfs(2)).
var servers = []int64{
	unix.FUSE_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
	unix.CIFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC,
	unix.CODA_SUPER_MAGIC, unix.OCFS2_SUPER_MAGIC,
}

// servedTypes are their names in /proc/PID/mountinfo; FUSE's have a subtype behind a dot.
var servedTypes = []string{
	"fuse", "fuseblk", "virtiofs", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "coda", "ocfs2",
}

// servedMounts are the places where such file systems are mounted, in a text of mounts
// (proc_pid_mountinfo(5)).
func servedMounts(text string) (places []string) {
	for line := range strings.Lines(text) {
		mount, device, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		kind, _, _ := strings.Cut(device, " ")
		kind, _, _ = strings.Cut(kind, ".")
		if len(fields) > 4 && slices.Contains(servedTypes, kind) {
			places = append(places, escapes.Replace(fields[4]))
		}
	}
	return places
}

// escapes are those of characters in such a text (mangle in fs/proc_namespace.c).
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

// file is the file in an answer, which is read by if its descriptor only stands for it.
func (a *answer) file(path string, by process.ReadBy) (*process.OpenFile, error) {
	if a.fd < 0 {
		return nil, errMessage
	}
	flags, err := unix.FcntlInt(uintptr(a.fd), unix.F_GETFL, 0)
	if err != nil {
		closeFD(a.fd)
		return nil, err
	}
	file := &process.OpenFile{File: os.NewFile(uintptr(a.fd), path)}
	if flags&unix.O_PATH != 0 {
		file.By = by
	}
	return file, nil
}

// isServed reports whether a file is on such a file system: others always say which one they are.
func isServed(fd int) bool {
	var on unix.Statfs_t
	return unix.Fstatfs(fd, &on) != nil || slices.Contains(servers, on.Type)
}

// unreadable closes a descriptor of a file, and returns one that stands for the file.
func (s *server) unreadable(fd int) (path int, err error) {
	defer s.closer.close(fd)
	if err := s.handOut(fd); err != nil {
		return -1, err
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
}

// handOut returns nil if the contents of a file of a server may be asked for later. Who asks for them proves
// nothing, so what does not look like code is not handed out then; the names of generated code do not, so
// which files they are in is noted.
func (s *server) handOut(fd int) error {
	switch s.grants.use() {
	case forFiles:
		return nil
	case forNames:
		return s.handedOut.note(fd)
	}
	return s.handsOut(fd)
}

// contentsOf returns nil if the contents of a file may be sent.
func (s *server) contentsOf(fd int) error {
	switch s.grants.use() {
	case forFiles:
		return nil // who asks may read it as well
	case forNames:
		return s.handedOut.has(fd)
	}
	return s.handsOut(fd)
}

// A files has which files they are, by device and inode.
type files struct {
	mu    sync.Mutex
	known map[[2]uint64]bool
}

// mostHandedOut is how many files have names of generated code at most.
const mostHandedOut = 1 << 16

func (f *files) note(fd int) error {
	id, err := identityOf(fd)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) >= mostHandedOut {
		return unix.EMFILE
	}
	if f.known == nil {
		f.known = make(map[[2]uint64]bool)
	}
	f.known[id] = true
	return nil
}

func (f *files) has(fd int) error {
	id, err := identityOf(fd)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known[id] {
		return unix.EACCES
	}
	return nil
}

func identityOf(fd int) (id [2]uint64, err error) {
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return [2]uint64{st.Dev, st.Ino}, err
}

// contents sends a part of a file, which it closes.
func (l *listener) contents(r *request, fd int) {
	defer closeFD(fd)
	if fd < 0 || r.end < r.start || r.end-r.start > mostMemory {
		l.bytes(nil, unix.EINVAL)
		return
	}
	file, err := process.Reopen(fd)
	if err != nil {
		l.bytes(nil, err)
		return
	}
	var all []byte
	if err = l.contentsOf(file); err == nil {
		all = make([]byte, r.end-r.start)
		all, err = readUpTo(file, all, int64(r.start))
	}
	l.closer.close(file)
	l.bytes(all, err)
}

// A closer closes files of servers on a goroutine of its own, one after the other, as that can mean to wait for a
// server: the file was opened and read all the same, and its answer does not wait.
type closer struct {
	begin sync.Once
	queue chan int
}

// mostClosing is how many files wait to be closed. Whoever has one more waits itself: so few descriptors are taken.
const mostClosing = 32

func (c *closer) close(fd int) {
	c.begin.Do(func() {
		c.queue = make(chan int, mostClosing)
		go func() {
			for fd := range c.queue {
				unix.Close(fd)
			}
		}()
	})
	select {
	case c.queue <- fd:
	default:
		unix.Close(fd)
	}
}

// readUpTo reads from an offset of a file until its end, or until buf is full.
func readUpTo(fd int, buf []byte, off int64) ([]byte, error) {
	for read := 0; ; {
		n, err := unix.Pread(fd, buf[read:], off+int64(read))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n == 0:
			return buf[:read], nil
		default:
			read += n
		}
	}
}

var _ process.FileReader = (*Client)(nil)

// ReadFile is for [process.FileReader]. It waits as long as it takes, or until the client is closed.
func (c *Client) ReadFile(pid uint32, file *os.File, p []byte, off int64) (n int, err error) {
	return readParts(p, off, func(r request) (answer, error) {
		r.pid = pid
		return exchange(c.files, &r, int(file.Fd()))
	})
}

// readParts is [io.ReaderAt] by requests for parts of a file.
func readParts(p []byte, off int64, ask func(request) (answer, error)) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+mostMemory)]
		start := uint64(off) + uint64(n)
		a, err := ask(request{op: readFile, start: start, end: start + uint64(len(part))})
		if err != nil {
			return n, err
		}
		got := copy(part, a.bytes)
		if n += got; got < len(part) {
			return n, io.EOF
		}
	}
	return n, nil
}
