package explore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// owner is the user who owns an image. Debugging information can name any file as its source; only files that
// the owner may read are shown.
type owner struct {
	uid   uint32
	known bool // if not, only files that everybody may read are shown
	image string
}

// refused means that a file is not shown, as it is an image that its owner may not read, or is named by an
// image whose owner may not read it.
type refused struct{ by owner }

func (e refused) Error() string {
	if !e.by.known {
		return fmt.Sprintf("not everybody may read it, and the owner of %s is not known", e.by.image)
	}
	return fmt.Sprintf("uid %d, which owns %s, may not read it", e.by.uid, e.by.image)
}

// inode has the properties that decide who may read a file, or search a directory.
type inode struct{ uid, gid, mode uint32 }

const (
	mayRead   = 4
	maySearch = 1
)

// allows reports whether the mode grants a right to an owner, by the one class of users that the owner is in
// (path_resolution(7), "Permissions").
func (n inode) allows(o owner, right uint32) bool {
	switch {
	case !o.known:
	case o.uid == 0:
		return true
	case o.uid == n.uid:
		return n.mode>>6&right != 0
	case member(o.uid, n.gid):
		return n.mode>>3&right != 0
	}
	return n.mode&right != 0
}

// groups has the groups of users that were looked up, by uid.
var groups sync.Map

// member reports whether a user is known to be in a group.
func member(uid, gid uint32) bool {
	known, ok := groups.Load(uid)
	if !ok {
		known, _ = groups.LoadOrStore(uid, groupsOf(uid))
	}
	return slices.Contains(known.([]string), strconv.FormatUint(uint64(gid), 10))
}

// groupsOf returns the numbers of a user's groups; none when there is no such account.
func groupsOf(uid uint32) []string {
	account, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nil
	}
	all, _ := account.GroupIds()
	return append(all, account.Gid)
}

// route has the directories that lead to an open file, from the root on, and at its end the file itself.
type route []inode

// readable reports whether an owner could have opened the file.
func (r route) readable(o owner) bool {
	last := len(r) - 1
	for _, directory := range r[:last] {
		if !directory.allows(o, maySearch) {
			return false
		}
	}
	return r[last].allows(o, mayRead)
}

// refuses returns an owner who may not read the file.
func (r route) refuses(by []owner) (owner, bool) {
	for _, o := range by {
		if r != nil && !r.readable(o) {
			return o, true
		}
	}
	return owner{}, false
}

var errMoved = errors.New("it was moved or replaced while it was examined")

// routeTo finds the directories of an open file. It goes from one to the next by their descriptors, without
// following links, and must arrive at the open file. So these are the directories of that file, whatever is
// renamed meanwhile.
func routeTo(f *os.File) (route, error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(path, "/") {
		return nil, errMoved // not below our root
	}
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { unix.Close(at) }()
	var r route
	st, err := r.add(at)
	for _, name := range strings.Split(path[1:], "/") {
		if err != nil {
			return nil, err
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		unix.Close(at)
		at = next
		if st, err = r.add(at); err != nil {
			return nil, err
		}
	}
	var open unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &open); err != nil {
		return nil, err
	}
	if st.Dev != open.Dev || st.Ino != open.Ino {
		return nil, errMoved
	}
	return r, nil
}

// add appends the file or directory of a descriptor.
func (r *route) add(fd int) (st unix.Stat_t, err error) {
	if err = unix.Fstat(fd, &st); err == nil {
		*r = append(*r, inode{st.Uid, st.Gid, st.Mode})
	}
	return st, err
}

// ownerAt returns the owner of the file at a recorded path, which must not contain links. The error is an
// fs.ErrNotExist if there is no file.
func ownerAt(path string) (uid uint32, err error) {
	var st unix.Stat_t
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		err = unix.Lstat(path, &st)
		return st.Uid, err
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	err = unix.Fstat(fd, &st)
	return st.Uid, err
}
