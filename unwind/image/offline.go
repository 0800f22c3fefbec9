package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/image/fileid"
	"unspool/unwind/vdso"
	"unspool/vmas"
)

// Offline says where to look for the files of a recording. The processes that
// mapped them are gone, and their PIDs may be others' by now, so /proc is not
// asked. A path may lead to another build than it did then: what it leads to is
// used only if it is known to be the file that was mapped.
type Offline struct {
	// Symfs, if set, is a directory that the recorded paths are looked up in
	// first.
	Symfs string
	// Cache is perf's build-ID cache, usually ~/.debug; empty for none.
	Cache string
	// BuildID gives the build ID that the recording notes for a path, zero
	// where it notes none. It is asked where a mapping has none itself.
	BuildID func(path string) vmas.BuildID
	// SameKernel says that the recording was made on the kernel that runs here.
	SameKernel bool
}

// NewOfflineStore returns an empty store that finds files as o says.
func NewOfflineStore(o Offline) *Store {
	s := NewStore("")
	s.offline = &o
	return s
}

var (
	errNotFound = errors.New("not found")
	errUnproven = errors.New("the recording has neither its build ID nor its inode: only --symfs can name it")
)

// buildID is the build ID of a file as far as the recording tells.
func (o *Offline) buildID(f *vmas.File) vmas.BuildID {
	if f.BuildID.IsZero() && o.BuildID != nil {
		return o.BuildID(f.Path)
	}
	return f.BuildID
}

// file opens a recorded file.
func (o *Offline) file(f *vmas.File) (*os.File, error) {
	id := o.buildID(f)
	refused := errNotFound
	try := func(file *os.File, err error, fits func(*os.File) error) *os.File {
		if err == nil {
			if err = fits(file); err == nil {
				return file
			}
			file.Close()
		}
		if refused == errNotFound && !missing(err) {
			refused = err
		}
		return nil
	}
	// The user vouches for what is below Symfs, unless the build ID is another one.
	named := func(file *os.File) error {
		if id.IsZero() {
			return nil
		}
		return fileid.Check(file, &vmas.FileID{BuildID: id})
	}
	mapped := func(file *os.File) error {
		want := f.FileID
		want.BuildID = id
		err := fileid.Check(file, &want)
		if err == fileid.ErrUnproven {
			return errUnproven
		}
		return err
	}
	if o.Symfs != "" && path.IsAbs(f.Path) {
		file, err := debugfile.Open(o.Symfs, f.Path)
		if file := try(file, err, named); file != nil {
			return file, nil
		}
	}
	for _, name := range debugfile.Cached(o.Cache, id.Bytes(), "elf") {
		file, err := openRegular(name)
		if file := try(file, err, mapped); file != nil {
			return file, nil
		}
	}
	if f.Kind == vmas.Regular && path.IsAbs(f.Path) {
		file, err := openRegular(f.Path)
		if file := try(file, err, mapped); file != nil {
			return file, nil
		}
	}
	if !id.IsZero() {
		return nil, fmt.Errorf("%s: %w (build ID %v)", f.Path, refused, id)
	}
	return nil, fmt.Errorf("%s: %w", f.Path, refused)
}

// missing says whether an error is only that there is no such file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// openRegular opens a file if it is a regular one. What is there is looked at before
// it is opened: opening a device can have effects.
func openRegular(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return reopen(fd)
}

// reopen opens for reading what an O_PATH descriptor stands for.
func reopen(fd int) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("not a regular file")
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	return f, nil
}

// debugFile finds the separate debug file of an image: below Symfs, else by its
// build ID where the system keeps them.
func (o *Offline) debugFile(im *Image) (*os.File, error) {
	if o.Symfs != "" {
		f, err := debugfile.Find([]string{o.Symfs}, im.Path, im.BuildID, im.debug.link)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return debugfile.Find([]string{"/"}, im.Path, im.BuildID, debugfile.Link{})
}

// vdso returns the vDSO of a recording: the cached one, or our own if it is the same.
func (o *Offline) vdso(m *vmas.Mapping) ([]byte, error) {
	id, size := o.buildID(m.File), m.End-m.Start
	for _, name := range debugfile.Cached(o.Cache, id.Bytes(), "vdso") {
		file, err := openRegular(name)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(file, int64(size)))
		file.Close()
		if err == nil && fileid.SameBuild(imageBuildID(data), id.Bytes()) {
			return data, nil
		}
	}
	data, err := vdso.Own()
	if err != nil || m.Start>>32 == 0 || uint64(len(data)) != size {
		return nil, fmt.Errorf("%s: %w", m.File.Path, errNotFound)
	}
	if id.IsZero() && !o.SameKernel || !id.IsZero() && !fileid.SameBuild(imageBuildID(data), id.Bytes()) {
		return nil, fmt.Errorf("%s: of another kernel", m.File.Path)
	}
	return data, nil
}

// imageBuildID is the build ID of an ELF file in memory, nil where it has none.
func imageBuildID(data []byte) []byte {
	id, err := elf.ReadBuildID(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	return id
}
