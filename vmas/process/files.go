package process

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotRegular means that a path leads to something else than a regular file.
var ErrNotRegular = errors.New("not a regular file")

// ErrNotCode means that a file holds no code of a known kind, and that an Access does not hand it out for
// that.
var ErrNotCode = errors.New("not a file with code")

// ErrEmpty says the same of a file with no contents, or hardly any, which cannot be what was mapped: it is
// being written to.
var ErrEmpty = errors.New("empty")

// root is the root of a process, "" for our own.
func (d Direct) root(pid uint32) string {
	if pid == 0 {
		return ""
	}
	return d.folder(pid) + "/root"
}

// OpenPath is for [FileAccess].
func (d Direct) OpenPath(pid uint32, path string, _, _ uint64) (*os.File, error) {
	return OpenRegular(d.root(pid) + path)
}

// PathDescriptor is OpenPath for who passes a descriptor on.
func (d Direct) PathDescriptor(pid uint32, path string) (fd int, err error) {
	return openRegular(d.root(pid) + path)
}

// OpenMapped is for [FileAccess].
func (d Direct) OpenMapped(pid uint32, start, end uint64) (file *os.File, target string, err error) {
	fd, target, err := d.MappedDescriptor(pid, start, end)
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), d.link(pid, start, end)), target, nil
}

// MappedDescriptor is OpenMapped for who passes a descriptor on.
func (d Direct) MappedDescriptor(pid uint32, start, end uint64) (fd int, target string, err error) {
	link := d.link(pid, start, end)
	if fd, err = openRegular(link); err != nil {
		return -1, "", err
	}
	target, _ = os.Readlink(link)
	return fd, target, nil
}

// link is the kernel's link to the file of a mapping.
func (d Direct) link(pid uint32, start, end uint64) string {
	return d.folder(pid) + "/map_files/" + strconv.FormatUint(start, 16) + "-" + strconv.FormatUint(end, 16)
}

// MapsAsCode reports whether a file is that of an executable mapping from start to end.
func (d Direct) MapsAsCode(pid uint32, start, end uint64, fd int) bool {
	var file, mapped unix.Stat_t
	return unix.Fstat(fd, &file) == nil && unix.Stat(d.link(pid, start, end), &mapped) == nil &&
		file.Dev == mapped.Dev && file.Ino == mapped.Ino && d.IsExecutable(pid, start, end)
}

// OpenWithin is for [FileAccess].
func (d Direct) OpenWithin(pid uint32, path string) (*os.File, error) {
	return OpenWithin(d.root(pid)+"/", path)
}

// Stat is for [FileAccess].
func (d Direct) Stat(pid uint32, path string) (st unix.Stat_t, err error) {
	err = unix.Stat(d.root(pid)+path, &st)
	return st, err
}

// Owner is for [FileAccess].
func (d Direct) Owner(pid uint32) (uid uint32, err error) {
	var st unix.Stat_t
	err = unix.Stat(d.folder(pid), &st)
	return st.Uid, err
}

// Fstat is fstat with what this machine knows of the file: a server is not asked, as it may not answer. Times
// of access and numbers of links are left out.
func Fstat(file *os.File) (st unix.Stat_t, err error) {
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_DONT_SYNC
	var is unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", flags, unix.STATX_BASIC_STATS, &is); err != nil {
		return st, err
	}
	st.Dev, st.Ino, st.Mode = unix.Mkdev(is.Dev_major, is.Dev_minor), is.Ino, uint32(is.Mode)
	st.Uid, st.Gid, st.Size, st.Blocks = is.Uid, is.Gid, int64(is.Size), int64(is.Blocks)
	st.Mtim = unix.Timespec{Sec: is.Mtime.Sec, Nsec: int64(is.Mtime.Nsec)}
	st.Ctim = unix.Timespec{Sec: is.Ctime.Sec, Nsec: int64(is.Ctime.Nsec)}
	return st, nil
}

// OpenRegular opens a file if it is a regular one. What is there is looked at before it is opened: opening a
// device can have effects.
func OpenRegular(path string) (*os.File, error) {
	fd, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openRegular(path string) (fd int, err error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return Reopen(at)
}

// Reopen opens for reading what an O_PATH descriptor stands for, if it is a regular file.
func Reopen(fd int) (readable int, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, ErrNotRegular
	}
	self := "/proc/self/fd/" + strconv.Itoa(fd)
	return unix.Open(self, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// WithinDescriptor is OpenWithin for who passes a descriptor on.
func (d Direct) WithinDescriptor(pid uint32, path string) (fd int, err error) {
	return DescriptorWithin(d.root(pid)+"/", path)
}

// OpenWithin opens the regular file at a path within a root, whose symbolic links lead nowhere else: it may
// be that of a process in a container.
func OpenWithin(root, path string) (*os.File, error) {
	fd, err := DescriptorWithin(root, path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), strings.TrimRight(root, "/")+"/"+strings.TrimLeft(path, "/")), nil
}

// DescriptorWithin is OpenWithin for who passes a descriptor on.
func DescriptorWithin(root, path string) (readable int, err error) {
	fd, err := findWithin(root, path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return Reopen(fd)
}

// OpenPerfMap is for [FileAccess].
func (d Direct) OpenPerfMap(pid, number uint32) (*os.File, error) {
	fd, err := d.PerfMapDescriptor(pid, number)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "perf-"+strconv.FormatUint(uint64(number), 10)+".map"), nil
}

// PerfMapDescriptor opens the perf map /tmp/perf-NUMBER.map in the root of a process. It follows no link of
// that name, which could lead to any file. Capabilities of an ordinary user are for recording, and give no right to
// read what is in a file of another user: it has to be readable for its owner or for everybody.
func (d Direct) PerfMapDescriptor(pid, number uint32) (fd int, err error) {
	folder, err := findWithin(d.root(pid)+"/", "/tmp")
	if err != nil {
		return -1, err
	}
	defer unix.Close(folder)
	name := "perf-" + strconv.FormatUint(uint64(number), 10) + ".map"
	at, err := unix.Openat(folder, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	if user := os.Geteuid(); user != 0 && st.Mode&unix.S_IROTH == 0 &&
		(st.Uid != uint32(user) || st.Mode&unix.S_IRUSR == 0) {
		return -1, unix.EACCES
	}
	return Reopen(at)
}

// findWithin is an O_PATH descriptor of what is at a path within a root.
func findWithin(root, path string) (fd int, err error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err = unix.Openat2(dir, path, &how)
	if err == unix.ENOSYS { // before Linux 5.6, and where a filter cannot see what is asked for
		fd, err = walkWithin(dir, path)
	}
	return fd, err
}

// mostSteps bounds the names and links on the way to a file, as a link can lead to many others.
const mostSteps = 256

// walkWithin goes along a path from a directory, name by name, and follows links from there.
func walkWithin(root int, path string) (fd int, err error) {
	var way []int // the directories that it went through, without the root
	leave := func(n int) {
		for _, fd := range way[n:] {
			unix.Close(fd)
		}
		way = way[:n]
	}
	defer func() { leave(0) }()
	rest := path
	for range mostSteps {
		var name string
		name, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		at := root
		switch {
		case len(way) > 0:
			at = way[len(way)-1]
		case name == "":
			return -1, unix.EISDIR
		}
		switch name {
		case "":
			way = way[:len(way)-1]
			return at, nil
		case ".":
			continue
		case "..":
			leave(max(0, len(way)-1))
			continue
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		target, err := linkAt(next)
		if err == nil && target == "" {
			way = append(way, next)
			continue
		}
		unix.Close(next)
		if err != nil {
			return -1, err
		}
		if target[0] == '/' {
			leave(0)
		}
		rest = target + "/" + rest
	}
	return -1, unix.ELOOP
}

// linkAt is what the link of an O_PATH descriptor leads to, "" where it is none. Links of a proc file system
// lead where no name does.
func linkAt(fd int) (target string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", err
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(fd, &on); err != nil || on.Type == unix.PROC_SUPER_MAGIC {
		return "", unix.ELOOP
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil || n == 0 || n == len(buf) {
		return "", unix.ELOOP
	}
	return string(buf[:n]), nil
}
