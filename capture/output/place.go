package output

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Place is where an output goes: a name in an open directory, or a stream. Files that were created in it need
// it until they are kept or discarded.
type Place struct {
	asked  string // the path that Find was called with
	path   string // the same or, if that is a link, its target
	user   user
	dir    int      // O_PATH; -1 for a stream
	name   string   // without a slash
	stream *os.File // until Create hands it out
	flows  bool     // it is a stream
	linked bool     // a link was followed to it
	kept   bool     // a file was renamed into this place
	keeper Keeper   // who creates the files in it; nil for this process
	dated  []string // names of files that have one of their own, the oldest first
}

// Find finds the place at a path, "-" for standard output. It creates nothing.
func Find(path string) (*Place, error) { return current().find(path) }

func (u user) find(path string) (*Place, error) {
	stream, err := openStream(path)
	if err != nil {
		return nil, err
	}
	if stream != nil {
		return &Place{asked: path, path: path, user: u, dir: -1, stream: stream, flows: true}, nil
	}
	w := &walk{user: u, path: path}
	p, err := w.place(unix.AT_FDCWD, path)
	if err != nil {
		return nil, err
	}
	return w.settle(p)
}

// Beside is the place in the same open directory whose name has the suffix.
func (p *Place) Beside(suffix string) (*Place, error) {
	fd, err := unix.FcntlInt(uintptr(p.dir), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, p.failed("open", err)
	}
	w := &walk{user: p.user, path: p.path + suffix}
	return w.settle(w.newPlace(fd, w.path, p.name+suffix))
}

// place opens the directory of a path, which is relative to the directory at.
func (w *walk) place(at int, path string) (*Place, error) {
	folder, name := filepath.Split(path)
	dir, err := w.directory(at, folder)
	if err != nil {
		return nil, err
	}
	return w.newPlace(dir, path, name), nil
}

func (w *walk) newPlace(dir int, path, name string) *Place {
	return &Place{asked: w.path, path: path, user: w.user, dir: dir, name: name}
}

// settle follows a link in a place, if there is one, and checks where it leads.
func (w *walk) settle(p *Place) (*Place, error) {
	target, err := p.target()
	if err == nil && target != "" {
		link := p
		p, err = w.place(link.dir, target)
		link.Close()
		if err != nil {
			return nil, err
		}
		p.linked = true
		if p.path = target; !filepath.IsAbs(target) {
			p.path = filepath.Join(filepath.Dir(link.path), target)
		}
	}
	if err == nil {
		err = p.check()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// target is the target of the link in the place, "" if there is no link. Links of other users are refused.
func (p *Place) target() (string, error) {
	if !p.hasName() {
		return "", nil
	}
	link, st, err := openLink(p.dir, p.name)
	switch {
	case err == unix.ENOENT:
		return "", nil
	case err != nil:
		return "", p.failed("open", err)
	case link < 0:
		return "", nil
	}
	defer unix.Close(link)
	if !p.user.owns(st.Uid) {
		return "", p.refuseLink(&st)
	}
	var folder unix.Stat_t
	if err := unix.Fstat(p.dir, &folder); err != nil {
		return "", p.failed("stat", err)
	}
	if !p.user.owns(folder.Uid) {
		return "", refuse("%s is a link in a directory that belongs to uid %d: not followed; %s",
			p.path, folder.Uid, anotherName)
	}
	if by := p.user.others(p.dir, &folder); by != "" {
		return "", refuse("%s is a link in a directory that %s may write: not followed; %s",
			p.path, by, anotherName)
	}
	target, err := readLink(link)
	if err != nil {
		return "", p.failed("open", err)
	}
	return target, nil
}

// anotherName is what to do about a link.
const anotherName = "name its target or another file"

func (p *Place) refuseLink(st *unix.Stat_t) error {
	return refuse("%s is a link that belongs to uid %d: not followed; %s", p.path, st.Uid, anotherName)
}

// hasName reports whether the path ends with a name in the directory; "folder/" and ".." do not.
func (p *Place) hasName() bool { return p.name != "" && p.name != "." && p.name != ".." }

// check returns an error if the place can't be written to.
func (p *Place) check() error {
	if p.path == "" {
		return p.failed("create", unix.ENOENT)
	}
	if !p.hasName() {
		return p.failed("create", unix.EISDIR)
	}
	if err := p.user.checkDirectory(p.dir, p.path); err != nil {
		return err
	}
	st, there, err := p.stat(p.name)
	if err != nil {
		return p.failed("create", err)
	}
	if !there {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if !p.user.owns(st.Uid) {
			return p.refuseLink(&st)
		}
		if p.linked {
			return refuse("%s is a link that a link leads to: not followed; %s", p.path, anotherName)
		}
		return refuse("%s has become a link: not replaced; %s", p.path, anotherName)
	}
	return p.checkFile(p.path, &st)
}

// checkDirectory returns an error if root should not write to an open directory.
func (u user) checkDirectory(dir int, path string) error {
	if !u.root {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if !u.trusts(st.Uid) {
		return refuse("%s: the directory belongs to uid %d: root does not write there; "+
			"name another directory, or run unspool as that user", path, st.Uid)
	}
	if st.Mode&unix.S_ISVTX != 0 {
		return nil // only its owner, who is trusted, can rename or remove files of others
	}
	if by := u.others(dir, &st); by != "" {
		return refuse("%s: %s may write the directory: root does not write there; "+
			"name another directory, or make it sticky (chmod +t)", path, by)
	}
	return nil
}

// checkFile returns an error if the file at path can't be replaced.
func (p *Place) checkFile(path string, st *unix.Stat_t) error {
	const open = "name a file, or /dev/fd/N for what the shell has opened"
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return &fs.PathError{Op: "create", Path: path, Err: unix.EISDIR}
	case unix.S_IFIFO:
		return refuse("%s is a FIFO, not a regular file: not written to; %s", path, open)
	case unix.S_IFSOCK:
		return refuse("%s is a socket, not a regular file: not written to; %s", path, open)
	default:
		return refuse("%s is a device, not a regular file: not written to; %s", path, open)
	}
	if !p.user.trusts(st.Uid) {
		return refuse("%s belongs to uid %d: not replaced; name another file", path, st.Uid)
	}
	return nil
}

// stat returns the status of a name in the directory; if it is a link, of the link.
func (p *Place) stat(name string) (st unix.Stat_t, there bool, err error) {
	err = unix.Fstatat(p.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return st, false, nil
	}
	return st, err == nil, err
}

// CheckInput returns an error if the output would replace the input, or be in it. It says nothing about a place
// that was handed over.
func (p *Place) CheckInput(input string) error {
	switch {
	case p.keeper != nil:
	case p.is(p.name, input):
		return refuse("%s: input and output are the same file", p.path)
	case p.isIn(input):
		return refuse("%s: the output would be in the directory of the input; name another file", p.path)
	}
	return nil
}

// isIn reports whether the directory of the place is the one at a path.
func (p *Place) isIn(path string) bool {
	in, err := os.Stat(path)
	if p.flows || path == "-" || err != nil || !in.IsDir() {
		return false
	}
	var st unix.Stat_t
	have := in.Sys().(*syscall.Stat_t)
	return unix.Fstat(p.dir, &st) == nil && st.Dev == have.Dev && st.Ino == have.Ino
}

// is reports whether a name in the directory, or the stream, is the regular file at a path.
func (p *Place) is(name, path string) bool {
	in, err := os.Stat(path)
	if path == "-" || err != nil || !in.Mode().IsRegular() {
		return false
	}
	if p.flows {
		out, err := p.stream.Stat()
		return err == nil && p.stream != os.Stdout && os.SameFile(in, out)
	}
	st, there, _ := p.stat(name)
	have := in.Sys().(*syscall.Stat_t)
	return there && st.Dev == have.Dev && st.Ino == have.Ino
}

// old is the suffix of a recording that a new one replaces.
const old = ".old"

// CheckOld returns an error if the file in the place can't be kept as ".old". At that name there must be
// nothing, a file that can be replaced, or a link that the user owns, and it must not be the input, which
// is "" if there is none. It says nothing about a place that was handed over.
func (p *Place) CheckOld(input string) error {
	if p.flows || p.keeper != nil {
		return nil
	}
	st, there, err := p.stat(p.name)
	if err != nil {
		return p.failed("create", err)
	}
	if !there || st.Size == 0 {
		return nil
	}
	path := p.path + old
	st, there, err = p.stat(p.name + old)
	switch {
	case err != nil:
		return &fs.PathError{Op: "create", Path: path, Err: err}
	case !there:
		return nil
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		if !p.user.owns(st.Uid) {
			return refuse("%s is a link that belongs to uid %d: not replaced; name another output",
				path, st.Uid)
		}
		return nil
	case p.is(p.name+old, input):
		return refuse("%s exists, and would take the place of the input as %s", p.path, path)
	}
	return p.checkFile(path, &st)
}

// Path is the path that Find was called with.
func (p *Place) Path() string { return p.asked }

// Input is a path by which the file in the place can be read while the place is open, even if its directory
// was renamed.
func (p *Place) Input() string {
	if p.flows {
		return p.path
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", p.dir, p.name)
}

// Stream reports whether the place is a stream, which has no files.
func (p *Place) Stream() bool { return p.flows }

// NoteKept notes that another process has kept a file in the place.
func (p *Place) NoteKept() { p.kept = true }

// Remove removes the file that was kept in the place. What else is there stays.
func (p *Place) Remove() error {
	if !p.kept {
		return nil
	}
	p.kept = false
	if p.keeper != nil {
		return p.told("remove", p.keeper.Remove())
	}
	if err := unix.Unlinkat(p.dir, p.name, 0); err != nil {
		return p.failed("remove", err)
	}
	return nil
}

// Close closes the directory, if the place has one. The files in it stay.
func (p *Place) Close() {
	if p == nil {
		return
	}
	if p.dir >= 0 {
		unix.Close(p.dir)
		p.dir = -1
	}
	if p.stream != nil && p.stream != os.Stdout {
		p.stream.Close()
	}
}

func (p *Place) failed(op string, err error) error {
	return &fs.PathError{Op: op, Path: p.path, Err: err}
}
