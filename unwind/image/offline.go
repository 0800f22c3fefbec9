package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/image/fileid"
	"unspool/unwind/vdso"
	"unspool/vmas"
	"unspool/vmas/process"
)

// Offline is where to look for the files of a recording. The processes that mapped them are gone, and other
// processes may have their PIDs by now, so /proc is not used. A path may lead to another build than it did
// then: a file is used only if it is known to be the one that was mapped.
type Offline struct {
	// Symfs, if set, is a directory that the recorded paths are looked up in
	// first.
	Symfs string
	// Cache is perf's build-ID cache, usually ~/.debug; empty for none.
	Cache string
	// BuildID gives the build ID that the recording notes for a file by its name, zero where it notes none. It is
	// called for mappings without a build ID of their own, by several goroutines at a time.
	BuildID func(name string) vmas.BuildID
	// Recorded, if set, is when the recording was finished. A file that only its inode identifies is refused
	// if it was written to after that.
	Recorded time.Time
	// Opener opens the files, and reads them if it is a [process.FileReader]; nil for this process.
	Opener process.FileOpener
	// SameKernel means that the recording was made on the kernel that runs here.
	SameKernel bool
}

var (
	errNotFound  = errors.New("not found")
	errRewritten = errors.New("written to since it was recorded")
	errUnproven  = errors.New("the recording has neither its build ID nor its inode: only --symfs can name it")
)

// buildID is the build ID of a file as far as the recording tells.
func (o *Offline) buildID(f *vmas.File) vmas.BuildID {
	if f.BuildID.IsZero() && o.BuildID != nil {
		return o.BuildID(f.Name())
	}
	return f.BuildID
}

// file opens a recorded file: the first one with debugging information, which may have the only CFI, else the
// first with a symbol table, else the first.
func (o *Offline) file(f *vmas.File) (*os.File, error) {
	id := o.buildID(f)
	var best *os.File
	var has debugfile.Detail
	refused := errNotFound
	// take takes a file that is better, and reports whether none can be better still.
	take := func(open *process.OpenFile, err error, fits func(*process.OpenFile) error) bool {
		if err == nil {
			if err = fits(open); err != nil {
				open.Close()
			}
		}
		if err != nil {
			if refused == errNotFound && !missing(err) {
				refused = err
			}
			return false
		}
		detail := detailOf(open)
		if best != nil && detail <= has {
			open.Close()
			return false
		}
		if best != nil {
			best.Close()
		}
		best, has = open.File, detail
		return detail == debugfile.Debugging
	}
	// The user vouches for what is below Symfs, unless the build ID is another one.
	named := func(file *process.OpenFile) error {
		if id.IsZero() {
			return nil
		}
		return fileid.Check(file, &vmas.FileID{BuildID: id})
	}
	mapped := func(file *process.OpenFile) error {
		want := f.FileID
		want.BuildID = id
		err := fileid.Check(file, &want)
		switch {
		case err == fileid.ErrUnproven:
			return errUnproven
		case err == nil && id.IsZero() && o.outdates(file):
			return errRewritten
		}
		return err
	}
	var paths []string
	if path.IsAbs(f.Path) {
		paths = vmas.Paths(f.Name())
	}
	if o.Symfs != "" {
		for _, path := range paths {
			file, err := o.opener().OpenWithin(o.Symfs, path)
			if take(file, err, named) || best != nil && id.IsZero() {
				return best, nil
			}
		}
	}
	for _, name := range debugfile.Cached(o.Cache, id.Bytes(), "elf") {
		file, err := o.opener().OpenRegular(name)
		if take(file, err, mapped) {
			return best, nil
		}
	}
	if f.Kind == vmas.Regular {
		for _, path := range paths {
			file, err := o.opener().OpenRegular(path)
			if take(file, err, mapped) {
				return best, nil
			}
		}
	}
	if best != nil {
		return best, nil
	}
	if !id.IsZero() {
		return nil, fmt.Errorf("%s: %w (build ID %v)", f.Path, refused, id)
	}
	return nil, fmt.Errorf("%s: %w", f.Path, refused)
}

// detailOf returns how much of what strip removes a file has.
func detailOf(file *process.OpenFile) debugfile.Detail {
	st, err := process.Fstat(file.File)
	if err != nil {
		return debugfile.Stripped
	}
	f, err := elf.NewFile(file, st.Size)
	if err != nil {
		return debugfile.Stripped
	}
	return debugfile.DetailOf(f)
}

// opener opens the files.
func (o *Offline) opener() process.FileOpener {
	if o.Opener == nil {
		return process.Here{}
	}
	return o.Opener
}

// outdates reports whether a file was written to after the recording.
func (o *Offline) outdates(file *process.OpenFile) bool {
	st, err := process.Fstat(file.File)
	return err == nil && !o.Recorded.IsZero() && time.Unix(st.Mtim.Unix()).After(o.Recorded)
}

// missing reports whether an error is only that there is no such file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// debugFile finds the separate debug file of an image: below Symfs, else by its
// build ID where the system keeps them.
func (o *Offline) debugFile(w *debugWanted) (*process.OpenFile, error) {
	if o.Symfs != "" {
		f, err := debugfile.Find([]debugfile.Root{debugfile.In(o.opener(), o.Symfs)}, w.path, w.buildID, w.link)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return debugfile.Find([]debugfile.Root{debugfile.In(o.opener(), "/")}, w.path, w.buildID, debugfile.Link{})
}

// vdso returns the vDSO of a recording: the cached one, or that of the kernel that runs here if it is
// the same.
func (o *Offline) vdso(m *vmas.Mapping) ([]byte, error) {
	id, size := o.buildID(m.File), m.End-m.Start
	for _, name := range debugfile.Cached(o.Cache, id.Bytes(), "vdso") {
		file, err := o.opener().OpenRegular(name)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.NewSectionReader(file, 0, int64(size)))
		file.Close()
		if err == nil && fileid.SameBuild(imageBuildID(data), id.Bytes()) {
			return data, nil
		}
	}
	if id.IsZero() && !o.SameKernel {
		return nil, fmt.Errorf("%s: of another kernel", m.File.Path)
	}
	data, err := vdsoFor(m)
	if err != nil || uint64(len(data)) != size {
		return nil, fmt.Errorf("%s: %w", m.File.Path, errNotFound)
	}
	if !id.IsZero() && !fileid.SameBuild(imageBuildID(data), id.Bytes()) {
		return nil, fmt.Errorf("%s: of another kernel", m.File.Path)
	}
	return data, nil
}

// vdsoFor returns the vDSO that this kernel has for processes that have one where m is.
func vdsoFor(m *vmas.Mapping) ([]byte, error) {
	if m.Start>>32 != 0 {
		return vdso.Own()
	}
	data, err := vdso.Own32()
	return data[:min(m.End-m.Start, uint64(len(data)))], err // data goes on beyond the mapping
}

// imageBuildID is the build ID of an ELF file in memory, nil where it has none.
func imageBuildID(data []byte) []byte {
	id, err := elf.ReadBuildID(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	return id
}
