package opener

import (
	"io"
	"os"
	"slices"
	"strconv"

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

// isServed says whether a file is on such a file system: others always say which one they are.
func isServed(fd int) bool {
	var on unix.Statfs_t
	return unix.Fstatfs(fd, &on) != nil || slices.Contains(servers, on.Type)
}

// unreadable closes a descriptor of a file, and returns one that stands for the file. The contents of a file
// that does not look like code are not handed out, as who asks for them proves nothing.
func (s *server) unreadable(fd int) (path int, err error) {
	defer unix.Close(fd)
	if err := s.handsOut(fd); err != nil {
		return -1, err
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
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
	if err = l.handsOut(file); err == nil {
		all = make([]byte, r.end-r.start)
		all, err = readUpTo(file, all, int64(r.start))
	}
	unix.Close(file) // before the answer: who has that may ask over this line again
	l.bytes(all, err)
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
	for n < len(p) {
		part := p[n:min(len(p), n+mostMemory)]
		start := uint64(off) + uint64(n)
		r := request{op: readFile, pid: pid, start: start, end: start + uint64(len(part))}
		a, err := exchange(c.files, &r, int(file.Fd()))
		closeFD(a.fd)
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
