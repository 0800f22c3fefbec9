package symbols

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"unspool/capture/symbols/debuginfod"
	"unspool/dwarfcfi"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/image/fileid"
	"unspool/vmas"
	"unspool/vmas/process"
)

// Options say where names are looked for; the zero value is the running system.
type Options struct {
	Root     string // put before the paths of files, as perf's --symfs; "" for none
	Cache    string // perf's build-ID cache; "" for ~/.debug
	Kallsyms string // "" for /proc/kallsyms
	Modules  string // "" for /proc/modules
	Shorten  bool   // Name leaves out the arguments of templates

	// Recorded, if set, is when the recording was finished. A file that no build ID identifies is not used if it
	// was written to after that.
	Recorded time.Time

	// Generated opens what names of generated code are in, by its path in the root of a process or, for PID 0,
	// our own. Nil for opening it with the rights of this process.
	Generated func(pid uint32, path string) (*process.OpenFile, error)
	// Opener opens all other files; nil for this process.
	Opener process.FileOpener
	// Kernel opens Kallsyms and Modules; nil for os.Open.
	Kernel func(path string) (*os.File, error)

	// Files, if there are any, are files of the recording that were open when it ended: they have names when
	// their paths are gone. They stay the caller's.
	Files []*os.File

	// Debuginfod fetches executables and debug files that are not on this machine. Nil for none, as always
	// while recording.
	Debuginfod *debuginfod.Client
}

// Symbolizer finds function names for one recording. It is not safe for concurrent use.
type Symbolizer struct {
	options  Options
	images   map[imageKey]*Image
	kernel   kernel
	problems []string
	kinds    map[string]string // of problems
	left     budget
	room     room
	kept     keptFiles // nil until they are looked at
	keptMap  KeptMap   // nil for a recording without any

	demangle func(name string) string // Demangle
}

type imageKey struct {
	path, buildID string
	major, minor  uint32
	inode         uint64
}

// New returns a Symbolizer that has read nothing yet.
func New(o Options) *Symbolizer {
	if o.Cache == "" {
		o.Cache = debugfile.Cache()
	} else if folder, err := filepath.Abs(o.Cache); err == nil {
		o.Cache = folder // it is looked into from the root
	}
	if o.Kallsyms == "" {
		o.Kallsyms = "/proc/kallsyms"
	}
	if o.Modules == "" {
		o.Modules = "/proc/modules"
	}
	if o.Kernel == nil {
		o.Kernel = os.Open
	}
	if o.Opener == nil {
		o.Opener = process.Here{}
	}
	return &Symbolizer{options: o, images: make(map[imageKey]*Image), kinds: make(map[string]string),
		left: budget{all: maxOfAll}, room: newRoom(), demangle: Demangle}
}

// Problems returns, in words, why names are missing, each reason once, in the order of discovery.
func (s *Symbolizer) Problems() []string { return s.problems }

// Kinds returns the kind of each problem. Problems of a kind differ in the file, or in the error, only.
func (s *Symbolizer) Kinds() map[string]string { return s.kinds }

// problem adds a problem; its format is its kind.
func (s *Symbolizer) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if _, known := s.kinds[text]; !known {
		s.kinds[text] = format
		s.problems = append(s.problems, text)
	}
}

// Image is the content of a mapping: an ELF file, the vDSO, or memory without a file.
type Image struct {
	Path    string // as recorded
	BuildID []byte // as recorded; nil if the recording does not have it

	inode vmas.FileID // device, inode and generation, as recorded
	s     *Symbolizer
	read  bool
	table *Table // nil when there is none

	exports map[string][]Export // nil before they are asked for

	cfiRead  bool            // unwindTable was called
	fileRead bool            // the image's file was found, and was the recorded one
	cfi      *dwarfcfi.Table // says where functions without a symbol begin; nil if there is none
}

// Image returns the image that a recording names: the same pointer for the same image. buildID is nil if the
// recording has none; then id, as far as it is known, decides whether a file is the one that was mapped.
// Nothing is read yet.
func (s *Symbolizer) Image(path string, buildID []byte, id vmas.FileID) *Image {
	key := imageKey{path: path, buildID: string(buildID)}
	if len(buildID) > 0 {
		return s.image(key, vmas.FileID{})
	}
	// The generation is left out, as /proc/PID/maps does not have it.
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

// Lookup returns the function at an offset in the image's file. Its Addr is a virtual address of the image. A
// function without a symbol, whose extent is known from the unwind table, has no name, except for the code
// that signal handlers return to, which the unwind table marks.
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

// Vaddr turns an offset in the image's file into a virtual address of the image. For an image without a table
// it returns the offset, and false.
func (im *Image) Vaddr(off uint64) (uint64, bool) {
	if t := im.Table(); t != nil {
		if vaddr, ok := t.Vaddr(off); ok {
			return vaddr, true
		}
	}
	return off, false
}

// SignalReturn is the name of the code that signal handlers return to, if it has no symbol.
const SignalReturn = "__restore_rt"

// unnamed finds a function by its FDE.
func (im *Image) unnamed(vaddr uint64) (Func, bool) {
	cfi := im.CFI()
	if cfi == nil {
		return Func{}, false
	}
	var d dwarfcfi.FDE
	err := errors.ErrUnsupported
	im.s.Contain(im.Path, "functions without a symbol", func() { d, err = cfi.FDE(vaddr) })
	if err != nil {
		return Func{}, false
	}
	f := Func{Addr: d.Start, Size: d.End - d.Start, Entry: d.Start}
	if d.CIE.Signal {
		f.Name = SignalReturn
	}
	return f, true
}

// CFI returns the image's unwind table, which the first call reads; nil if there is none.
func (im *Image) CFI() *dwarfcfi.Table {
	if !im.cfiRead {
		im.cfiRead = true
		im.s.Contain(im.Path, "functions without a symbol", func() { im.cfi = im.unwindTable() })
	}
	return im.cfi
}

// LacksCFI reports whether the image's file has no unwind table. It is false if the file was not found.
func (im *Image) LacksCFI() bool { return im.CFI() == nil && im.fileRead }

// unwindTable reads the image's unwind table. Problems with the file were added when its symbols were read.
func (im *Image) unwindTable() *dwarfcfi.Table {
	if !im.isFile() {
		return nil
	}
	file, f, err := im.open()
	if err != nil {
		return nil
	}
	defer file.Close()
	im.fileRead = true
	cfi, err := readUnwindTable(file, f.Size, im.s.budget())
	if err != nil {
		if errors.Is(err, errOver) {
			im.s.problem("%s: functions without a symbol are not told apart: %v", im.Path, err)
		}
		return nil
	}
	if cfi.IsEmpty() {
		return nil
	}
	return cfi
}

// Table returns the image's functions, which the first call reads; nil if there are none.
func (im *Image) Table() *Table {
	if !im.read {
		im.read = true
		im.s.Contain(im.Path, "names", func() { im.table = im.load() })
	}
	return im.table
}

// Name is the image's file name without folders: "libc.so.6", "[vdso]".
func (im *Image) Name() string { return baseName(im.Path) }

// Label is used for all functions of the image whose names are unknown: "[libfoo.so]".
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

// IsFile reports whether a mapping's name can be the path of a file with code in it: names such as "[heap]",
// "//anon" and "/memfd:…" cannot, and devices neither.
func IsFile(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return false
	}
	for _, p := range []string{"/dev/shm/", "/dev/hugepages/"} { // file systems
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	for _, p := range []string{"/memfd:", "/dev/", "/SYSV", "/anon_hugepage", "/[aio]"} {
		if strings.HasPrefix(path, p) {
			return false
		}
	}
	return true
}

// isFile reports whether the image can be read from a file: also from another one with the build ID of the file
// in memory from which it was mapped. Generated code has no build ID.
func (im *Image) isFile() bool {
	return IsFile(im.Path) || im.IsInMemory()
}

// IsInMemory reports whether the image is an ELF file that was made in memory, by memfd_create(2).
func (im *Image) IsInMemory() bool {
	return len(im.BuildID) > 0 && strings.HasPrefix(im.Path, "/memfd:")
}

// elsewhere is what to do about a file that is not there, or is another one.
const elsewhere = "if it is of another root (chroot, container), name that by --symfs, as /proc/PID/root while it runs"

func (im *Image) load() *Table {
	if im.Path == "[vdso]" {
		return im.s.loadVDSO(im)
	}
	if !im.isFile() {
		return nil
	}
	t, err := im.readTable()
	var other *BuildIDError
	switch {
	case err == nil:
	case errors.Is(err, errOver):
		im.s.problem("%s: most names are missing: %v", im.Path, err)
	case errors.Is(err, ErrNoSymbols):
		if im.s.options.Debuginfod != nil {
			im.s.problem("%s: stripped, it names no function, and its debug file is neither installed nor to be "+
				"had from debuginfod", im.Path)
		} else {
			im.s.problem("%s: stripped, it names no function, and its debug file is not installed", im.Path)
		}
	case errors.As(err, &other):
		im.s.problem("%s: not used, as it is not the file that was recorded: %v; "+elsewhere, other.Path, err)
	case errors.Is(err, fs.ErrNotExist):
		im.s.problem("%s: no names, the file is not there; "+elsewhere, strings.TrimSuffix(im.Path, deleted))
	default:
		var path *fs.PathError
		if errors.As(err, &path) { // it would repeat the path
			err = path.Err
		}
		im.s.problem("%s: no names: %v", im.Path, err)
	}
	return t
}

// readTable reads the names of the image's file and of the files that belong to it.
func (im *Image) readTable() (*Table, error) {
	file, f, err := im.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return f.table(im)
}

// readChecked reads a table from an ELF file if its build ID is the recorded one, or if none was recorded.
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
