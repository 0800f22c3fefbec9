package output

import (
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// File is an output that is being written. Its name, in errors, is the path of its place.
type File struct {
	*os.File
	place     *Place
	temporary string // its name until it is kept; "" for a stream
}

// Create begins the output: a new file with a temporary name, or the stream itself. A place gives its
// stream only once.
func (p *Place) Create() (*File, error) {
	if p.flows {
		f := &File{File: p.stream, place: p}
		if p.stream = nil; f.File == nil {
			return nil, p.failed("create", os.ErrClosed)
		}
		return f, nil
	}
	file, temporary, err := p.create()
	if err != nil {
		return nil, err
	}
	return &File{file, p, temporary}, nil
}

// create creates a file under a temporary name.
func (p *Place) create() (file *os.File, temporary string, err error) {
	if p.keeper != nil {
		file, temporary, err = p.keeper.Create()
		return file, temporary, p.told("create", err)
	}
	for range 100 {
		temporary = temporaryName()
		fd, err := open(p.dir, temporary, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
		if err == unix.EEXIST {
			continue
		}
		if err != nil {
			return nil, "", p.failed("create", err)
		}
		file = os.NewFile(uintptr(fd), p.path)
		if err := p.user.give(fd); err != nil {
			file.Close()
			_ = p.discard(temporary)
			return nil, "", p.failed("chown", err)
		}
		return file, temporary, nil
	}
	return nil, "", p.failed("create", unix.EEXIST)
}

// temporaryName is short, as the output's own name may be as long as names can be. It need not be secret, as the file
// is new: no random numbers of the kernel's, which early in a boot there are none of yet.
var temporaryName = func() string { return fmt.Sprintf(".unspool-%010x", rand.Uint64()>>24) }

// give makes the user of sudo the owner of a file that root has made.
func (u user) give(fd int) error {
	if !u.sudo {
		return nil
	}
	err := unix.Fchown(fd, int(u.uid), u.gid)
	if err == unix.EPERM || err == unix.EINVAL || err == unix.EOPNOTSUPP {
		return nil // the file system keeps no owners, or does not let root choose them: FAT, NFS
	}
	return err
}

// Keep completes the output: the file is closed and takes its name, whatever regular file has that now.
func (f *File) Keep() error {
	err := f.Close()
	if err == nil && f.temporary != "" {
		err = f.rename()
	}
	if err != nil {
		f.Discard()
	}
	return err
}

// KeepOld gives the file its name while it is being written. A file that has that name now is kept as ".old",
// unless it is empty.
func (f *File) KeepOld() error {
	if f.temporary == "" {
		return nil
	}
	return f.named(f.place.keepOld(f.temporary))
}

// rename gives the file its name. It checks again what has that name, as that may have changed.
func (f *File) rename() error { return f.named(f.place.keep(f.temporary)) }

// named notes that the file has its name, unless there is an error.
func (f *File) named(err error) error {
	if err == nil {
		f.temporary = ""
	}
	return err
}

func (p *Place) keep(temporary string) error {
	if p.keeper != nil {
		return p.noteKept(p.told("rename", p.keeper.Keep(temporary)))
	}
	if err := p.check(); err != nil {
		return err
	}
	return p.take(temporary)
}

func (p *Place) keepOld(temporary string) error {
	if p.keeper != nil {
		return p.noteKept(p.told("rename", p.keeper.KeepOld(temporary)))
	}
	if err := p.CheckOld(""); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	if st, there, _ := p.stat(p.name); there && st.Size > 0 {
		if err := p.rename(p.name, p.name+old); err != nil {
			return err
		}
	}
	return p.take(temporary)
}

// take gives a file the name of the place.
func (p *Place) take(temporary string) error {
	return p.noteKept(p.rename(temporary, p.name))
}

// noteKept notes that a file was kept, unless there is an error.
func (p *Place) noteKept(err error) error {
	p.kept = p.kept || err == nil
	return err
}

func (p *Place) rename(from, to string) error {
	if err := unix.Renameat(p.dir, from, p.dir, to); err != nil {
		return p.failed("rename", err)
	}
	return nil
}

// Discard closes the file and, unless it was kept, removes it.
func (f *File) Discard() {
	f.Close()
	if f.temporary != "" {
		_ = f.place.discard(f.temporary)
		f.temporary = ""
	}
}

func (p *Place) discard(temporary string) error {
	if p.keeper != nil {
		return p.keeper.Discard(temporary)
	}
	return unix.Unlinkat(p.dir, temporary, 0)
}

// Close closes the file. Standard output stays open.
func (f *File) Close() error {
	if f.File == os.Stdout {
		return nil
	}
	return f.File.Close()
}
