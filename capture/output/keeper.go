package output

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Keeper creates the files of a place, and gives them their names, for a process that cannot any more. It
// is another process, in which [Resume] has made the same place.
type Keeper interface {
	// Create creates a file under a temporary name.
	Create() (file *os.File, temporary string, err error)
	// Keep gives the file with that name the name of the place.
	Keep(temporary string) error
	// KeepOld does the same, and keeps what has the name now as File.KeepOld does.
	KeepOld(temporary string) error
	// KeepDated gives it a name of its own, as File.KeepDated does, and returns what that has behind the name of the
	// place.
	KeepDated(temporary string, most int) (suffix string, err error)
	// Discard removes it.
	Discard(temporary string) error
	// Remove removes the file that was kept in the place.
	Remove() error
}

// HandOver leaves the files of the place to a keeper, which grant returns: in its process it passes the
// arguments for Resume. A stream is not handed over.
func (p *Place) HandOver(grant func(dir int, path, name string, kept bool, dated []string) (Keeper, error)) error {
	if p == nil || p.flows {
		return nil
	}
	keeper, err := grant(p.dir, p.path, p.name, p.kept, p.dated)
	if err != nil {
		return err
	}
	p.keeper = keeper
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
// its name in the directory, whether a file was kept in it, and the names of those that have one of their own.
func Resume(dir int, path, name string, kept bool, dated []string) (*Place, error) {
	if dir < 0 || strings.Contains(name, "/") {
		return nil, unix.EINVAL
	}
	_, _ = time.Now().Zone() // reads the local zone, which a confined process could not do later
	p := &Place{asked: path, path: path, user: current(), dir: dir, name: name, kept: kept, dated: dated}
	if !p.hasName() {
		return nil, unix.EINVAL
	}
	for _, file := range dated {
		if _, ok := ParseDated(name, file); !ok {
			return nil, unix.EINVAL
		}
	}
	return p, nil
}

// CreateApart creates a file in the place of another process.
func (p *Place) CreateApart() (file *os.File, temporary string, err error) { return p.create() }

// KeepApart gives such a file its name.
func (p *Place) KeepApart(temporary string) error { return p.keep(temporary) }

// KeepOldApart gives such a file its name, as File.KeepOld does.
func (p *Place) KeepOldApart(temporary string) error { return p.keepOld(temporary) }

// KeepDatedApart gives such a file a name of its own, as File.KeepDated does, and returns what that has behind the name
// of the place.
func (p *Place) KeepDatedApart(temporary string, most int) (suffix string, err error) {
	return p.keepDated(temporary, most)
}

// DiscardApart removes such a file.
func (p *Place) DiscardApart(temporary string) error { return p.discard(temporary) }
