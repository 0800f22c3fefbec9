package symbols

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"unspool/capture/symbols/debuginfod"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/image/fileid"
	"unspool/vmas"
	"unspool/vmas/process"
)

// Where files are found. The recorded path may lead to another build by now, or to nothing, and on another
// machine the files are elsewhere. The order is: the path below Options.Root; perf's build-ID cache; the path
// itself, if the build ID, or else the inode, shows that it is the recorded file (with a Root, only the build
// ID counts); the files that were open when the recording ended; for files in memory, a recorded file with
// that build ID; and last debuginfod.

// BuildIDError means that a file is not the recorded one.
type BuildIDError struct {
	Path            string // of the file
	Recorded, Found []byte
}

func (e *BuildIDError) Error() string {
	if len(e.Found) == 0 {
		return fmt.Sprintf("it has no build ID, the recorded one %x", e.Recorded)
	}
	return fmt.Sprintf("it has build ID %x, the recorded one %x", e.Found, e.Recorded)
}

// open opens the image's file: of those that are the recorded one, the first with debugging information, else
// the first with a symbol table, else the first. A copy in a cache may have been stripped. If none is the
// recorded one, the error is about the first file that was found. The caller closes the file, to which the
// elfFile refers.
func (im *Image) open() (*process.OpenFile, *elfFile, error) {
	o := &im.s.options
	paths := vmas.Paths(im.Path)
	if len(im.BuildID) == 0 {
		// Another file may be at a removed one's path by now: only the build ID could show that.
		paths = paths[:1]
	}
	var file *process.OpenFile // the best one so far
	var f *elfFile
	var has debugfile.Detail
	var refused error
	// take takes a file that is better, and reports whether none can be better still.
	take := func(found *process.OpenFile, e *elfFile, err error) bool {
		if err != nil {
			if !missing(err) {
				refused = cmp.Or(refused, err)
			}
			return false
		}
		detail := debugfile.DetailOf(e.File)
		if f != nil && detail <= has {
			found.Close()
			return false
		}
		if f != nil {
			file.Close()
		}
		file, f, has = found, e, detail
		return detail == debugfile.Debugging
	}
	if o.Root != "" {
		for _, path := range paths {
			// Without a build ID, only the user says that it is the recorded one.
			if take(im.s.openELF(o.Root, path, im.BuildID)) || f != nil && len(im.BuildID) == 0 {
				return file, f, nil
			}
		}
	}
	for _, name := range debugfile.Cached(o.Cache, im.BuildID, "elf") {
		if take(im.s.openELF("/", name, im.BuildID)) {
			return file, f, nil
		}
	}
	if (o.Root == "" || len(im.BuildID) > 0) && IsFile(im.Path) {
		for _, path := range paths {
			if take(im.openInPlace(path)) {
				return file, f, nil
			}
		}
	}
	if !errors.Is(refused, fs.ErrPermission) { // what the user may not read is not read another way
		if take(im.openKept()) {
			return file, f, nil
		}
	}
	for _, name := range im.copies() {
		if take(im.s.openELF(cmp.Or(o.Root, "/"), name, im.BuildID)) {
			return file, f, nil
		}
	}
	if f != nil {
		return file, f, nil
	}
	if file := im.s.fetch(im.BuildID, debuginfod.Executable); file != nil {
		f, err := parseFile(file)
		if err == nil {
			return file, f, nil
		}
		file.Close()
		refused = cmp.Or(refused, err)
	}
	return nil, nil, cmp.Or(refused, fs.ErrNotExist)
}

// copies are the paths of recorded files with the build ID of an image in memory: of the program, say, that
// has copied itself there.
func (im *Image) copies() (paths []string) {
	if !im.IsInMemory() {
		return nil
	}
	for _, other := range im.s.images {
		if other != im && IsFile(other.Path) && fileid.SameBuild(other.BuildID, im.BuildID) {
			paths = append(paths, vmas.Paths(other.Path)...)
		}
	}
	slices.Sort(paths)
	return paths
}

// openInPlace opens the file at a path of the image, unless it is not the one that was mapped, or has been
// written to since. A file of which the recording has only the path is used.
func (im *Image) openInPlace(path string) (*process.OpenFile, *elfFile, error) {
	file, f, err := im.s.openELF("/", path, im.BuildID)
	if err != nil || len(im.BuildID) > 0 {
		return file, f, err
	}
	if err = fileid.Check(file, &im.inode); err == nil || err == fileid.ErrUnproven {
		err = im.s.checkAge(file)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, f, nil
}

// errRewritten means that a file may have other code than the one that was mapped.
var errRewritten = errors.New("written to since it was recorded")

// checkAge returns an error if a file was written to after the recording.
func (s *Symbolizer) checkAge(file *process.OpenFile) error {
	st, err := process.Fstat(file.File)
	if err == nil && !s.options.Recorded.IsZero() && modified(&st).After(s.options.Recorded) {
		return errRewritten
	}
	return err
}

// openELF opens an ELF file below a root. It must have the build ID, unless that is nil.
func (s *Symbolizer) openELF(root, name string, buildID []byte) (*process.OpenFile, *elfFile, error) {
	file, err := s.options.Opener.OpenWithin(root, name)
	if err != nil {
		return nil, nil, err
	}
	f, err := parseFile(file)
	if err == nil && len(buildID) > 0 {
		if found := f.BuildID(); !fileid.SameBuild(found, buildID) {
			err = &BuildIDError{Path: file.Name(), Recorded: buildID, Found: found}
		}
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, f, nil
}

func parseFile(file *process.OpenFile) (*elfFile, error) {
	st, err := process.Fstat(file.File)
	if err != nil {
		return nil, err
	}
	return parseELF(file, st.Size)
}

// missing reports whether an error only means that there is no such file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// cached opens a file that perf's cache holds for a build besides the image itself.
func (s *Symbolizer) cached(buildID []byte, name string) (*process.OpenFile, error) {
	for _, path := range debugfile.Cached(s.options.Cache, buildID, name) {
		if file, err := s.options.Opener.OpenWithin("/", path); err == nil {
			return file, nil
		}
	}
	return nil, fs.ErrNotExist
}

// debugFile opens the file with the symbols that were stripped from the image f; nil if there is none. If one
// is found that does not belong to f, this is a problem.
func (im *Image) debugFile(f *elfFile) (*process.OpenFile, *elfFile) {
	o := &im.s.options
	id, path := f.BuildID(), strings.TrimSuffix(im.Path, deleted)
	try := func(root string, link debugfile.Link) (*process.OpenFile, *elfFile) {
		file, err := debugfile.Find([]debugfile.Root{debugfile.In(o.Opener, root)}, path, id, link)
		if err != nil {
			if !missing(err) {
				im.s.problem("%s: debug file not used: %v", im.Path, err)
			}
			return nil, nil
		}
		return im.fitting(file, f)
	}
	link := f.debugLink()
	if o.Root != "" {
		if file, d := try(o.Root, link); d != nil {
			return file, d
		}
		link = debugfile.Link{} // files beside the image's path on this machine need not belong to it
	}
	if file, d := try("/", link); d != nil {
		return file, d
	}
	for _, name := range debugfile.Cached(o.Cache, id, "debug") {
		if file, d, err := im.s.openELF("/", name, id); err == nil {
			return file, d
		}
	}
	if file := im.s.fetch(id, debuginfod.Debuginfo); file != nil {
		return im.fitting(file, f)
	}
	return nil, nil
}

// fitting returns a debug file if it can be used for the image f; else it closes it and adds a problem.
func (im *Image) fitting(file *process.OpenFile, f *elfFile) (*process.OpenFile, *elfFile) {
	d, err := parseFile(file)
	if err == nil && len(f.loads) > 0 && len(d.loads) > 0 && f.loads[0].Vaddr != d.loads[0].Vaddr {
		// Prelinking has changed the addresses of the image and not those of its debug file.
		err = fmt.Errorf("its segments are at %#x, the image's at %#x", d.loads[0].Vaddr, f.loads[0].Vaddr)
	}
	if err != nil {
		im.s.problem("%s: debug file %s not used: %v", im.Path, file.Name(), err)
		file.Close()
		return nil, nil
	}
	return file, d
}

// fetch asks debuginfod for a file of a build, if the user wants that; nil if there is none. Failures are
// problems, except that no server has the file.
func (s *Symbolizer) fetch(buildID []byte, kind debuginfod.Kind) *process.OpenFile {
	if s.options.Debuginfod == nil {
		return nil
	}
	file, err := s.options.Debuginfod.Find(fileid.Unpadded(buildID), kind)
	if err == nil {
		return &process.OpenFile{File: file}
	}
	for _, err := range parts(err) {
		switch {
		case errors.Is(err, debuginfod.ErrNotFound):
		case errors.Is(err, context.Canceled):
			s.problem("debuginfod: interrupted, so names and lines are missing")
		default:
			s.problem("%v", err)
		}
	}
	return nil
}

// debugLink reads .gnu_debuglink.
func (f *elfFile) debugLink() debugfile.Link {
	s, ok := f.section(".gnu_debuglink")
	if !ok || s.Size > debugfile.MaxLink {
		return debugfile.Link{}
	}
	b, err := f.Read(s.Offset, s.Size)
	if err != nil {
		return debugfile.Link{}
	}
	link, _ := debugfile.ParseLink(b)
	return link
}
