package output

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links the kernel follows in a path.
const maxLinks = 40

// walk opens the directories of a path one by one, so that each link can be checked before it is followed. It
// checks open descriptors, so that nobody can exchange a directory between the check and its use.
type walk struct {
	user  user
	path  string // that was asked for
	links int    // followed so far
}

// directory opens the directory at path, which is relative to the directory at.
func (w *walk) directory(at int, path string) (dir int, err error) {
	dir, err = openStart(at, path)
	for rest := components(path); err == nil && len(rest) > 0; {
		var next int
		var target string
		next, target, err = w.step(dir, rest[0])
		rest = append(components(target), rest[1:]...)
		if err == nil && strings.HasPrefix(target, "/") {
			next, err = openStart(dir, target)
		}
		if next >= 0 || err != nil {
			unix.Close(dir)
			dir = next
		}
	}
	var refused *refusal
	if err != nil && !errors.As(err, &refused) {
		err = &fs.PathError{Op: "open", Path: w.path, Err: err}
	}
	return dir, err
}

// step opens the directory name in dir or, when that is a link, returns its target.
func (w *walk) step(dir int, name string) (next int, target string, err error) {
	// O_DIRECTORY triggers automatic mounts.
	next, err = open(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY)
	if err != unix.ENOTDIR && err != unix.ELOOP {
		return next, "", err
	}
	link, st, err := openLink(dir, name)
	if err != nil {
		return -1, "", err
	}
	if link < 0 {
		return -1, "", unix.ENOTDIR
	}
	defer unix.Close(link)
	if w.links++; w.links > maxLinks {
		return -1, "", unix.ELOOP
	}
	if !w.user.trusts(st.Uid) {
		return -1, "", refuse("%s: %q is a link that belongs to uid %d: not followed; "+
			"name the directory that it leads to", w.path, name, st.Uid)
	}
	if inProcfs(link) {
		// These links are the kernel's, and those to a process's root and descriptors lead to where no path
		// leads.
		next, err = open(dir, name, unix.O_PATH|unix.O_DIRECTORY)
		return next, "", err
	}
	target, err = readLink(link)
	return -1, target, err
}

// openLink opens the link name in dir itself. The descriptor is -1 if there is no link of that name.
func openLink(dir int, name string) (link int, st unix.Stat_t, err error) {
	link, err = open(dir, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return -1, st, err
	}
	if err = unix.Fstat(link, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return link, st, nil
	}
	unix.Close(link)
	return -1, st, err
}

// readLink returns the target of an open link.
func readLink(link int) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", target)
	if err == nil && (n == 0 || n == len(target)) {
		err = unix.ENAMETOOLONG
	}
	if err != nil {
		return "", err
	}
	return string(target[:n]), nil
}

func inProcfs(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
}

// openStart opens the directory where a path begins.
func openStart(at int, path string) (int, error) {
	start := "."
	if strings.HasPrefix(path, "/") {
		start = "/"
	}
	return open(at, start, unix.O_PATH|unix.O_DIRECTORY)
}

// open is openat(2), repeated if a signal has interrupted it.
func open(dir int, name string, flags int) (fd int, err error) {
	for {
		if fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0o600); err != unix.EINTR {
			return fd, err
		}
	}
}

// components are the names in a path.
func components(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// refusal says, in one line, why a place is not written to and what to do about it.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }
