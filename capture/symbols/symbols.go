package symbols

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"unspool/capture/symbols/debuginfod"
	"unspool/dwarfcfi"
	"unspool/unwind/image/fileid"
	"unspool/vmas"
)

// Options say where names are looked for; the zero value is the running system.
type Options struct {
	Root     string // goes before the paths of files, as perf's --symfs; "" for none
	Cache    string // perf's build-ID cache; "" for ~/.debug
	Kallsyms string // "" for /proc/kallsyms
	Modules  string // "" for /proc/modules
	Shorten  bool   // Name leaves out the arguments of templates

	// Debuginfod fetches executables and debug files that are not on this machine. Nil for none, as always while recording.
	Debuginfod *debuginfod.Client
}

// Symbolizer finds function names for one recording. It is not safe for concurrent use.
type Symbolizer struct {
	options  Options
	images   map[imageKey]*Image
	kernel   kernel
	problems []string
	named    map[string]bool
}

type imageKey struct {
	path, buildID string
	major, minor  uint32
	inode         uint64
}

// New returns a Symbolizer that has read nothing yet.
func New(o Options) *Symbolizer {
	if o.Cache == "" {
		o.Cache = cacheFolder()
	}
	if o.Kallsyms == "" {
		o.Kallsyms = "/proc/kallsyms"
	}
	if o.Modules == "" {
		o.Modules = "/proc/modules"
	}
	return &Symbolizer{options: o, images: make(map[imageKey]*Image), named: make(map[string]bool)}
}

// Problems returns, in words, why names are missing, each reason once, in the order of discovery.
func (s *Symbolizer) Problems() []string { return s.problems }

func (s *Symbolizer) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !s.named[text] {
		s.named[text] = true
		s.problems = append(s.problems, text)
	}
}

// Image is what a mapping maps: an ELF file, the vDSO, or memory without a file.
type Image struct {
	Path    string // as recorded
	BuildID []byte // as recorded; nil when the recording does not know it

	inode vmas.FileID // what else the recording knows of the file
	s     *Symbolizer
	read  bool
	table *Table // nil when there is none

	unwound bool            // cfi has been looked for
	cfi     *dwarfcfi.Table // knows where functions without a symbol begin; nil when there is none
}

// Image returns the image that the recording names by path and build ID (nil when unknown): the same pointer for the same
// image. Nothing is read yet.
func (s *Symbolizer) Image(path string, buildID []byte) *Image {
	return s.image(imageKey{path: path, buildID: string(buildID)}, vmas.FileID{})
}

// Mapped is Image for a mapped file, of which the recording may know device and inode instead of a build ID.
func (s *Symbolizer) Mapped(path string, buildID []byte, id vmas.FileID) *Image {
	key := imageKey{path: path, buildID: string(buildID)}
	if len(buildID) > 0 {
		return s.image(key, vmas.FileID{})
	}
	// Not by generation, too, which /proc/PID/maps lacks.
	key.major, key.minor, key.inode = id.Major, id.Minor, id.Inode
	return s.image(key, id)
}

func (s *Symbolizer) image(key imageKey, inode vmas.FileID) *Image {
	im := s.images[key]
	if im == nil {
		im = &Image{Path: key.path, inode: inode, s: s}
		if key.buildID != "" {
			im.BuildID = []byte(key.buildID)
		}
		s.images[key] = im
	}
	return im
}

// Lookup returns the function at an offset in the image's file. Its Addr is a virtual address of the image. A function that no
// symbol names, but an unwind table knows the extent of, has no name, except for the code that signal handlers return to, which
// the unwind table marks.
func (im *Image) Lookup(off uint64) (Func, bool) {
	t := im.Table()
	if t == nil {
		return Func{}, false
	}
	vaddr, ok := t.Vaddr(off)
	if !ok {
		return Func{}, false
	}
	if f, ok := t.Lookup(vaddr); ok {
		return f, true
	}
	return im.unnamed(vaddr)
}

// Vaddr turns an offset in the image's file into a virtual address of the image. Of an image without a table it returns the
// offset, and false.
func (im *Image) Vaddr(off uint64) (uint64, bool) {
	if t := im.Table(); t != nil {
		if vaddr, ok := t.Vaddr(off); ok {
			return vaddr, true
		}
	}
	return off, false
}

// SignalReturn is what the code is called that the kernel makes signal handlers return to, where no symbol says so.
const SignalReturn = "__restore_rt"

// unnamed finds a function by its FDE.
func (im *Image) unnamed(vaddr uint64) (Func, bool) {
	cfi := im.CFI()
	if cfi == nil {
		return Func{}, false
	}
	d, err := cfi.FDE(vaddr)
	if err != nil {
		return Func{}, false
	}
	f := Func{Addr: d.Start, Size: d.End - d.Start}
	if d.CIE.Signal {
		f.Name = SignalReturn
	}
	return f, true
}

// CFI returns the image's unwind table, reading it at the first call; nil when there is none to be had.
func (im *Image) CFI() *dwarfcfi.Table {
	if !im.unwound {
		im.unwound = true
		im.cfi = im.unwindTable()
	}
	return im.cfi
}

// unwindTable reads the image's unwind table; what is wrong with the file has been said when its symbols were read.
func (im *Image) unwindTable() *dwarfcfi.Table {
	if !IsFile(im.Path) {
		return nil
	}
	file, f, err := im.open()
	if err != nil {
		return nil
	}
	defer file.Close()
	sections, err := dwarfcfi.FindSections(file, int64(f.Size))
	if err != nil {
		return nil
	}
	cfi, err := dwarfcfi.New(sections)
	if err != nil {
		return nil
	}
	return cfi
}

// Table returns the image's functions, reading them at the first call; nil when there are none to be had.
func (im *Image) Table() *Table {
	if !im.read {
		im.read = true
		im.table = im.load()
	}
	return im.table
}

// Name is the image's file name without folders: "libc.so.6", "[vdso]".
func (im *Image) Name() string { return baseName(im.Path) }

// Label stands for all functions of the image whose names are unknown: "[libfoo.so]".
func (im *Image) Label() string {
	name := im.Name()
	if strings.HasPrefix(name, "[") {
		return name
	}
	return "[" + name + "]"
}

func baseName(path string) string {
	path = strings.TrimSuffix(path, deleted)
	switch {
	case path == "" || path == "//anon":
		return "[anon]"
	case !strings.HasPrefix(path, "/"):
		return path
	}
	return filepath.Base(path)
}

// deleted ends the name of a mapped file that has been removed.
const deleted = " (deleted)"

// IsFile says whether a mapping's name can be the path of a file with code in it: "[heap]", "//anon", "/memfd:…" and the like can not.
func IsFile(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return false
	}
	for _, p := range []string{"/memfd:", "/dev/", "/SYSV", "/anon_hugepage", "/[aio]"} {
		if strings.HasPrefix(path, p) {
			return false
		}
	}
	return true
}

func (im *Image) load() *Table {
	if im.Path == "[vdso]" {
		return im.s.loadVDSO(im)
	}
	if !IsFile(im.Path) {
		return nil
	}
	t, err := im.readTable()
	var other *BuildIDError
	switch {
	case err == nil:
	case errors.Is(err, ErrNoSymbols):
		if im.s.options.Debuginfod != nil {
			im.s.problem("%s: stripped, it names no function, and its debug file is neither installed nor to be had from debuginfod", im.Path)
		} else {
			im.s.problem("%s: stripped, it names no function, and its debug file is not installed", im.Path)
		}
	case errors.As(err, &other):
		im.s.problem("%s: not used, as it is not the file that was recorded: %v", other.Path, err)
	case errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(im.Path, deleted):
		im.s.problem("%s: no names, the file is gone", strings.TrimSuffix(im.Path, deleted))
	default:
		var path *fs.PathError
		if errors.As(err, &path) { // says the path again
			err = path.Err
		}
		im.s.problem("%s: no names: %v", im.Path, err)
	}
	return t
}

// readTable reads the names of the image's file and of what belongs to it.
func (im *Image) readTable() (*Table, error) {
	file, f, err := im.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return f.table(im)
}

// readChecked reads a table from an ELF file if its build ID is the recorded one; any will do when none was recorded.
func readChecked(r io.ReaderAt, size int64, recorded []byte) (*Table, error) {
	f, err := parseELF(r, size)
	if err != nil {
		return nil, err
	}
	if found := f.BuildID(); len(recorded) > 0 && !fileid.SameBuild(found, recorded) {
		return nil, &BuildIDError{Recorded: recorded, Found: found}
	}
	return f.table(nil)
}
