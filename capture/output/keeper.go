package output

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A Keeper creates the files of a place, and gives them their names, for a process that cannot any more. It
// is another process, in which [Resume] has made the same place.
type Keeper interface {
	// Create creates a file under a temporary name.
	Create() (file *os.File, temporary string, err error)
	// Keep gives the file with that name the name of the place.
	Keep(temporary string) error
	// Discard removes it.
	Discard(temporary string) error
}

// HandOver leaves the files of the place to a keeper, in whose process grant passes the arguments for Resume.
// A stream is not handed over.
func (p *Place) HandOver(to Keeper, grant func(dir int, path, name string) error) error {
	if p == nil || p.flows {
		return nil
	}
	if err := grant(p.dir, p.path, p.name); err != nil {
		return err
	}
	p.keeper = to
	return nil
}

// told is an error of the keeper, with the operation and path if it is only an errno.
func (p *Place) told(op string, err error) error {
	if errno, ok := err.(unix.Errno); ok {
		return p.failed(op, errno)
	}
	return err
}

// Resume makes a place that another process has found, from its open directory, its path for error messages,
// and its name in the directory.
func Resume(dir int, path, name string) (*Place, error) {
	if dir < 0 || strings.Contains(name, "/") {
		return nil, unix.EINVAL
	}
	p := &Place{asked: path, path: path, user: current(), dir: dir, name: name}
	if !p.hasName() {
		return nil, unix.EINVAL
	}
	return p, nil
}

// CreateApart creates a file in the place of another process.
func (p *Place) CreateApart() (file *os.File, temporary string, err error) { return p.create() }

// KeepApart gives such a file its name.
func (p *Place) KeepApart(temporary string) error { return p.keep(temporary) }

// DiscardApart removes such a file.
func (p *Place) DiscardApart(temporary string) error { return p.discard(temporary) }
