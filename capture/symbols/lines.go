package symbols

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"unspool/capture/symbols/debuginfod"
	"unspool/capture/symbols/srcline"
	"unspool/unwind/image/debugfile"
	"unspool/vmas/process"
)

// Lines looks up the sorted virtual addresses of the image in its debugging information, in one pass. It
// calls yield, in no particular order, with the index of each address that the debugging information covers,
// and the functions there, innermost first. Their names are mangled; yield must not keep the slice. Without
// debugging information, Go's function table is used; without that, yield is not called. Errors are problems.
func (im *Image) Lines(addrs []uint64, yield func(i int, frames []srcline.Frame)) {
	im.LinesUntil(nil, addrs, yield)
}

// LinesUntil is Lines, which leaves out the rest as soon as stop, if that is set, says so.
func (im *Image) LinesUntil(stop func() bool, addrs []uint64, yield func(i int, frames []srcline.Frame)) {
	if !im.isFile() || len(addrs) == 0 {
		return
	}
	im.s.Contain(im.Path, "lines or inlined functions", func() { im.lines(stop, addrs, yield) })
}

// lines is LinesUntil for the file of an image.
func (im *Image) lines(stop func() bool, addrs []uint64, yield func(i int, frames []srcline.Frame)) {
	file, f, err := im.open()
	if err != nil {
		return // the problem was added when its symbols were read
	}
	defer file.Close()
	with := file
	if !f.hasDebugInfo() {
		debug, _ := im.debugFile(f)
		if debug == nil {
			im.noLines(f.goLines(stop, addrs, yield))
			return
		}
		defer debug.Close()
		with = debug
	}
	o := srcline.Options{
		Stop: stop,
		Alt: func(name string, buildID []byte) (srcline.File, error) {
			return im.alternate(with.Name(), name, buildID)
		},
		DWO: im.splitUnit,
		DWP: func() (srcline.File, error) { return im.s.openAny(with.Name()+".dwp", file.Name()+".dwp") },
	}
	d, err := srcline.Open(asFile(with), o)
	if err == nil {
		err = d.Frames(addrs, yield)
		d.Close()
	}
	if !errors.Is(err, srcline.ErrNoDWARF) {
		im.noLines(err)
	}
}

// noLines adds an error to the problems.
func (im *Image) noLines(err error) {
	if err != nil {
		im.s.problem("%s: lines or inlined functions are missing: %v", im.Path, firstOf(err))
	}
}

// firstOf is the first of joined errors, with the number of the others: a damaged file may have thousands.
func firstOf(err error) error {
	all := parts(err)
	if len(all) == 1 {
		return all[0]
	}
	return fmt.Errorf("%w (and %d more)", all[0], len(all)-1)
}

// parts are the errors that were joined.
func parts(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func asFile(f *process.OpenFile) srcline.File {
	st, err := process.Fstat(f.File)
	if err != nil {
		return srcline.File{ReaderAt: f, Name: f.Name()}
	}
	const block = 512 // of st_blocks, whatever the file system's own are
	return srcline.File{ReaderAt: f, Size: st.Size, Name: f.Name(), Stored: st.Blocks * block}
}

// alternate opens the file that dwz moved shared debugging information to.
func (im *Image) alternate(from, name string, buildID []byte) (srcline.File, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(from), name)
	}
	o := &im.s.options
	var refused error
	for _, root := range []string{o.Root, "/"} {
		if root == "" {
			continue
		}
		path := name
		if root != "/" {
			path = strings.TrimPrefix(name, filepath.Clean(root)) // the file named from is below the root
		}
		if file, _, err := im.s.openELF(root, path, buildID); err == nil {
			return asFile(file), nil
		} else if !missing(err) && refused == nil {
			refused = err
		}
		if file, err := debugfile.Find([]debugfile.Root{debugfile.In(o.Opener, root)}, "", buildID,
			debugfile.Link{}); err == nil {
			return asFile(file), nil
		}
	}
	if file := im.s.fetch(buildID, debuginfod.Debuginfo); file != nil {
		return asFile(file), nil
	}
	if refused == nil {
		refused = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return srcline.File{}, refused
}

// splitUnit opens a .dwo file; srcline checks its id.
func (im *Image) splitUnit(dir, name string, _ uint64) (srcline.File, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	f, err := im.s.openAny(name)
	if err == nil && f.ReaderAt == nil {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f, err
}

// openAny opens the first of the files that exists, below the root or at its path. It is not an error if none
// exists.
func (s *Symbolizer) openAny(names ...string) (srcline.File, error) {
	for _, name := range names {
		for _, root := range []string{s.options.Root, "/"} {
			if root == "" {
				continue
			}
			file, err := s.options.Opener.OpenWithin(root, name)
			if err == nil {
				return asFile(file), nil
			}
			if !missing(err) {
				return srcline.File{}, err
			}
		}
	}
	return srcline.File{}, nil
}
