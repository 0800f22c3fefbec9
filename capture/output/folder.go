package output

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Folder is an open directory in which files and folders are made. The rules are those for the directory of a
// [Place], for each folder on the way.
type Folder struct {
	user user
	dir  int // O_PATH
	path string
}

// MakeFolder opens the directory at a path. If it is missing, it is made, with mode 0700, but not what it is in.
func MakeFolder(path string) (*Folder, error) {
	u := current()
	folder, err := openFolder(u, path)
	if !errors.Is(err, unix.ENOENT) {
		return folder, err
	}
	parent, name := filepath.Split(filepath.Clean(path))
	within, err := openFolder(u, parent)
	if err != nil {
		return nil, err
	}
	defer within.Close()
	return within.Folder(name)
}

// openFolder opens a directory that is there.
func openFolder(u user, path string) (*Folder, error) {
	dir, err := (&walk{user: u, path: path}).directory(unix.AT_FDCWD, path)
	if err != nil {
		return nil, err
	}
	return checked(u, dir, path)
}

// checked is an open directory, unless root should not write there.
func checked(u user, dir int, path string) (*Folder, error) {
	if err := u.checkDirectory(dir, path); err != nil {
		unix.Close(dir)
		return nil, err
	}
	return &Folder{u, dir, path}, nil
}

// Folder opens a folder in this one, and makes it if it is missing. A link is not followed.
func (f *Folder) Folder(name string) (*Folder, error) {
	path := filepath.Join(f.path, name)
	err := unix.Mkdirat(f.dir, name, 0o700)
	if err != nil && err != unix.EEXIST {
		return nil, f.failed("mkdir", name, err)
	}
	dir, err := open(f.dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY)
	if err != nil {
		return nil, f.failed("open", name, err)
	}
	return checked(f.user, dir, path)
}

// Place is the place of a file in the folder.
func (f *Folder) Place(name string) (*Place, error) {
	fd, err := unix.FcntlInt(uintptr(f.dir), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, f.failed("open", name, err)
	}
	w := &walk{user: f.user, path: filepath.Join(f.path, name)}
	p := w.newPlace(fd, w.path, name)
	if err := p.check(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Link makes a link in the folder. It takes the place of a file or link of that name.
func (f *Folder) Link(name, target string) error {
	temporary := temporaryName()
	err := unix.Symlinkat(target, f.dir, temporary)
	if err == nil {
		if err = unix.Renameat(f.dir, temporary, f.dir, name); err != nil {
			_ = unix.Unlinkat(f.dir, temporary, 0)
		}
	}
	if err != nil {
		return f.failed("symlink", name, err)
	}
	return nil
}

// Close closes the directory.
func (f *Folder) Close() { unix.Close(f.dir) }

func (f *Folder) failed(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: filepath.Join(f.path, name), Err: err}
}
