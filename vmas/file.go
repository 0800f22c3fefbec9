package vmas

import (
	"bytes"
	"encoding/hex"
	"strings"
	"unsafe"

	"unspool/vmas/process"
)

// Kind is what a mapping's name stands for, as far as the name tells.
type Kind uint8

const (
	// Regular is a file with a path. The path may not lead to it any more: the file can be deleted,
	// replaced, or lie in another mount namespace. Whoever opens it has to find out.
	Regular Kind = iota
	// VDSO is the kernel's virtual shared object: an ELF image that is in memory only.
	VDSO
	// Vsyscall is the fixed page of the old system calls: no ELF image behind it.
	Vsyscall
	// Anonymous is memory without a file: //anon in records, no name or [anon:…] in maps. Code
	// in it was generated at run time.
	Anonymous
	// Heap is the brk area.
	Heap
	// Stack is the initial thread's stack.
	Stack
	// Memfd is a file made by memfd_create or a huge-page segment: it has an inode and contents
	// but no path. map_files leads to it.
	Memfd
	// Shared is shared anonymous memory: a System V segment or a mapping of /dev/zero.
	Shared
	// Device is a device node, an anon_inode or a file of the kernel's. It must not be opened, as that can have
	// effects.
	Device
	// Nameless is a file whose path the kernel could not give (//toolong, //enomem).
	Nameless
)

var kindNames = [...]string{
	Regular: "regular", VDSO: "vdso", Vsyscall: "vsyscall", Anonymous: "anonymous", Heap: "heap",
	Stack: "stack", Memfd: "memfd", Shared: "shared", Device: "device", Nameless: "nameless",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// HasImage reports whether an ELF image can be behind a mapping of this kind.
func (k Kind) HasImage() bool {
	return k == Regular || k == VDSO || k == Memfd || k == Nameless
}

// MaxBuildID is the longest build ID that the kernel reports (BUILD_ID_SIZE_MAX).
const MaxBuildID = 20

// BuildID is an ELF build ID as a comparable value. The zero value means: none known.
type BuildID struct {
	len  uint8
	data [MaxBuildID]byte
}

// NewBuildID copies b, of which it takes at most MaxBuildID bytes.
func NewBuildID(b []byte) BuildID {
	var id BuildID
	id.len = uint8(copy(id.data[:], b))
	return id
}

// IsZero reports whether no build ID is known.
func (b BuildID) IsZero() bool { return b.len == 0 }

// Bytes returns a copy of the build ID, nil when there is none.
func (b BuildID) Bytes() []byte {
	if b.len == 0 {
		return nil
	}
	return bytes.Clone(b.data[:b.len])
}

// String returns the build ID in hexadecimal digits.
func (b BuildID) String() string { return hex.EncodeToString(b.data[:b.len]) }

// FileID is what the kernel says about a file besides its path: either a build ID or the other fields,
// never both (PERF_RECORD_MISC_MMAP_BUILD_ID). /proc/PID/maps has no generation.
type FileID struct {
	Major, Minor      uint32
	Inode, Generation uint64
	BuildID           BuildID
}

// File is how the kernel named what backs a mapping. A Table keeps one File for each distinct
// name and identity, so that forty processes that map libc share one *File. A file that was seen in
// /proc (device, inode) and in a record (build ID) has two Files: only opening it can show that they
// are the same.
//
// Everything but Image is immutable.
type File struct {
	// Path is the name as the kernel gave it, in the mount namespace of the process, without the
	// " (deleted)" that the kernel appends to the name of an unlinked file. To find the file, see [Paths].
	Path string
	FileID
	Kind Kind
	// Deleted reports that the name ended in " (deleted)". It is a hint: that may be the file's own name.
	Deleted bool

	// Image is for the unwinder to use: nil at first. This package does not read it.
	Image any

	key    fileKey
	refs   int  // mappings of all layouts that point here
	queued bool // is in files.idle
}

// Name is the file's name exactly as the kernel gave it.
func (f *File) Name() string { return f.key.name }

// fileKey is the identity by which files are shared. A vDSO has no device, inode or build ID, and differs
// between 32-bit and 64-bit processes: its size and its half of the address space identify it.
type fileKey struct {
	name string
	id   FileID
	vdso uint64
}

// maxIdle is how many files that no mapping refers to any more are kept for the next process that
// maps them: a configure script runs the same forty binaries all the time, and a build those of a hundred
// packages. How many of these are open is bounded elsewhere.
const maxIdle = 1024

// files holds every File of a table. Reference counts, not the garbage collector, decide when a file
// is dropped, so that the descriptors of its Image are closed in time.
type files struct {
	byKey  map[fileKey]*File
	idle   [maxIdle]*File // a queue of files whose count reached 0
	head   int            // next slot of idle to use, which holds the oldest
	weight int            // about the bytes of all files and mappings
	forget func(*File)
}

const (
	mappingWeight = int(unsafe.Sizeof(Mapping{})) + 8 // with its end in a chunk
	fileWeight    = int(unsafe.Sizeof(File{})) + 128  // with its entry in files.byKey
)

// intern returns the File of this name and identity. The caller retains it.
func (fs *files) intern(name []byte, id FileID, start, size uint64) *File {
	var vdso uint64
	if string(name) == "[vdso]" {
		vdso = size << 1
		if start>>32 == 0 {
			vdso |= 1
		}
	}
	// The compiler allocates no string for a lookup.
	if f := fs.byKey[fileKey{string(name), id, vdso}]; f != nil {
		return f
	}
	f := &File{FileID: id, key: fileKey{string(name), id, vdso}}
	f.Path, f.Kind, f.Deleted = classify(f.key.name)
	fs.byKey[f.key] = f
	fs.weight += fileWeight + len(name)
	return f
}

// retain counts the files that a mapping refers to.
func (fs *files) retain(m *Mapping) {
	fs.weight += mappingWeight
	m.File.refs++
	if m.Copied != nil {
		m.Copied.File.refs++
	}
}

func (fs *files) release(m *Mapping) {
	fs.weight -= mappingWeight
	fs.drop(m.File)
	if m.Copied != nil {
		fs.drop(m.Copied.File)
	}
}

func (fs *files) drop(f *File) {
	f.refs--
	if f.refs > 0 || f.queued {
		return
	}
	oldest := fs.idle[fs.head]
	fs.idle[fs.head] = f
	f.queued = true
	fs.head = (fs.head + 1) % maxIdle
	if oldest == nil {
		return
	}
	oldest.queued = false
	if oldest.refs == 0 {
		delete(fs.byKey, oldest.key)
		fs.weight -= fileWeight + len(oldest.key.name)
		if fs.forget != nil {
			fs.forget(oldest)
		}
	}
}

// close forgets all files.
func (fs *files) close() {
	for _, f := range fs.byKey {
		if fs.forget != nil {
			fs.forget(f)
		}
	}
	*fs = files{byKey: make(map[fileKey]*File), forget: fs.forget}
}

const deletedSuffix = " (deleted)"

// Paths returns the paths to look for a file at that the kernel named so. The name itself comes first: its
// " (deleted)" may be the file's own. The path without it may lead to another file by now.
func Paths(name string) []string {
	if path, deleted := strings.CutSuffix(name, deletedSuffix); deleted {
		return []string{name, path}
	}
	return []string{name}
}

// classify sorts a name as it stands in an MMAP2 record or, unescaped, in /proc/PID/maps.
func classify(name string) (path string, kind Kind, deleted bool) {
	switch name {
	case "", "//anon":
		return name, Anonymous, false
	case "[vdso]":
		return name, VDSO, false
	case "[vsyscall]":
		return name, Vsyscall, false
	case "[heap]":
		return name, Heap, false
	case "[stack]":
		return name, Stack, false
	case "//toolong", "//enomem":
		return name, Nameless, false
	}
	path, deleted = strings.CutSuffix(name, deletedSuffix)
	switch {
	case strings.HasPrefix(path, "/memfd:"), strings.HasPrefix(path, "/anon_hugepage"):
		return path, Memfd, deleted
	case deleted && strings.HasPrefix(path, "/SYSV"), path == "/dev/zero":
		return path, Shared, deleted
	case process.IsDevice(path):
		return path, Device, deleted
	case !strings.HasPrefix(path, "/"):
		// [vvar], [uprobes], [anon:name], [stack:tid], and whatever the kernel invents next. A
		// path that leads out of the process's root begins with "(unreachable)".
		if strings.HasPrefix(path, "(unreachable)") {
			return path, Regular, deleted
		}
		return path, Anonymous, deleted
	}
	return path, Regular, deleted
}
