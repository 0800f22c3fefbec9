package buildidcache

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"unspool/vmas"
)

// A sampled is an open file in which frames were, as the recording handed it on.
type sampled struct {
	*os.File
	at   unix.Stat_t
	name string // as the kernel gave it when it was mapped
	link string // as the kernel gives it now, from our root
	id   []byte // its build ID, nil for none
	uid  uint32 // of the process that was the first to map it
}

// gone ends the name of a file that was removed, or of one in memory.
const gone = " (deleted)"

// look looks at an open file; ok is false if it is no regular one.
func look(file *os.File, name string, id []byte, uid uint32) (s sampled, ok bool) {
	s = sampled{File: file, name: name, id: id, uid: uid}
	if err := unix.Fstat(int(file.Fd()), &s.at); err != nil || s.at.Mode&unix.S_IFMT != unix.S_IFREG {
		return s, false
	}
	s.link, _ = os.Readlink(s.own())
	return s, true
}

// own is a path of the open file.
func (s *sampled) own() string { return "/proc/self/fd/" + strconv.Itoa(int(s.Fd())) }

// isAt reports whether a path leads to the file, and whether it leads to any.
func (s *sampled) isAt(path string) (same bool, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return false, err
	}
	return st.Dev == s.at.Dev && st.Ino == s.at.Ino, nil
}

// isHere reports whether the file is at its recorded path in our root.
func (s *sampled) isHere() bool {
	for _, path := range vmas.Paths(s.name) {
		same, err := s.isAt(path)
		// Where this user may not look, the kernel is believed: who may, finds it there.
		if same || err == unix.EACCES && s.link == path {
			return true
		}
	}
	return false
}

// mayRead reports whether this process's user may read the file without the rights by which it was opened, and could
// get at it.
func (s *sampled) mayRead() bool {
	if unix.Access(s.own(), unix.R_OK) != nil {
		return false
	}
	if same, _ := s.isAt(s.link); same {
		return true
	}
	if s.at.Nlink > 0 {
		return false // it is in a directory where this user may not look, or in another mount namespace
	}
	return int(s.uid) == os.Getuid() || s.wasReachable()
}

// wasReachable reports whether this user could get at a file that was removed: if all directories above are there, and
// nobody but root and the file's owner can have put them there.
func (s *sampled) wasReachable() bool {
	path, removed := strings.CutSuffix(s.link, gone)
	if !removed || !strings.HasPrefix(path, "/") {
		return false
	}
	dir, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { unix.Close(dir) }()
	names := strings.Split(filepath.Dir(path)[1:], "/")
	for i := 0; ; i++ {
		var st unix.Stat_t
		if unix.Fstat(dir, &st) != nil || st.Uid != 0 && st.Uid != s.at.Uid || st.Mode&0o022 != 0 {
			return false
		}
		if i == len(names) || names[i] == "" { // or it was in the root
			break
		}
		next, err := unix.Openat(dir, names[i], unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		unix.Close(dir)
		dir = next
	}
	// The path may be one of another mount namespace.
	of, above := mountOf(int(s.Fd())), mountOf(dir)
	return of != 0 && of == above && unix.Faccessat(dir, ".", unix.X_OK, 0) == nil
}

// mountOf is the number of the mount that an open file is on, 0 if that is not known (before Linux 5.8).
func mountOf(fd int) uint64 {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return 0
	}
	return st.Mnt_id
}
