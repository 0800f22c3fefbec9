package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/image/fileid"
	"unspool/unwind/vdso"
	"unspool/vmas"
)

// A Store holds the images of all mapped files, each once. How a file was
// named does not settle which it is: the opened file does, by its build ID,
// else by inode and generation.
type Store struct {
	// Failed, if set, is called once for each file that cannot be used.
	Failed func(path string, err error)
	// Dropped, if set, is called for each sampled image that Forget drops and
	// whose build ID no record told of.
	Dropped func(path string, id []byte)
	// Copied, if set, is called for each mapping that turns out to hold the
	// code of m.Copied.File.
	Copied func(pid uint32, m *vmas.Mapping)

	proc    string // where /proc is
	offline *Offline
	byID    map[string]*Image
	byInode map[inode]*Image
	// settled says what each file was when its image was settled.
	settled map[*vmas.File]inode
}

// inode is the identity of an opened file without a build ID. All fields
// come from the open file, so its device is the same whenever it is asked;
// size and times of change tell a file that was rewritten in place.
type inode struct {
	dev, ino     uint64
	generation   uint32
	size         int64
	mtime, ctime unix.Timespec
}

// NewStore returns an empty store that opens files through procRoot,
// "/proc" on a running system.
func NewStore(procRoot string) *Store {
	return &Store{
		proc:    procRoot,
		byID:    make(map[string]*Image),
		byInode: make(map[inode]*Image),
		settled: make(map[*vmas.File]inode),
	}
}

// Report tells of a file that cannot be used.
func (s *Store) Report(path string, err error) {
	if s.Failed != nil {
		s.Failed(path, err)
	}
}

// Offline says whether the files are those of a recording.
func (s *Store) Offline() bool { return s.offline != nil }

// Asks says whether processes are asked for their files and memory.
func (s *Store) Asks() bool { return s.proc != "" }

// Lookup is the image behind a mapping, nil when no file can be behind it.
func (s *Store) Lookup(pid uint32, m *vmas.Mapping) *Image {
	if im, ok := m.File.Image.(*Image); ok {
		return im
	}
	if m.Copied != nil {
		return s.copied(pid, m)
	}
	return s.attach(pid, m)
}

// Open makes sure that the file behind a new mapping of a process is open,
// so that it can be read when the process is gone, and returns its build ID where that is
// known. A file that is known costs one look at its size and times, which tell whether it was rewritten in
// place since it was read: then it is another image. A file that could not be opened before is tried again.
func (s *Store) Open(pid uint32, m *vmas.Mapping) (buildID []byte) {
	im, ok := m.File.Image.(*Image)
	if ok && (s.offline != nil || im.opened && !s.rewritten(pid, m.File, im)) {
		im.debug.pid = pid
		return im.BuildID
	}
	if ok {
		again := s.reopen(m.File, im) // its path may lead to another file by now, or to none
		s.Forget(m.File)
		if again != nil {
			im = s.identify(m, again)
			s.use(pid, m.File, im)
			return im.BuildID
		}
	}
	if im = s.attach(pid, m); im == nil {
		return nil
	}
	return im.BuildID
}

// rewritten says whether a file is not any more what it was when im became its image.
func (s *Store) rewritten(pid uint32, f *vmas.File, im *Image) bool {
	was, ok := s.settled[f]
	if !ok {
		return false
	}
	if im.isFile(was) {
		return im.rewritten()
	}
	// Its image is that of another file with the same build ID.
	var st unix.Stat_t
	err := unix.Stat(fmt.Sprintf("%s/%d/root%s", s.proc, pid, f.Path), &st)
	return err == nil && st.Dev == was.dev && st.Ino == was.ino && !was.unchanged(&st)
}

// isFile says whether the image is read from the file of an inode.
func (im *Image) isFile(id inode) bool {
	return im.file != nil && im.inode.dev == id.dev && im.inode.ino == id.ino && im.inode.generation == id.generation
}

// rewritten says whether the image's file is not any more what it was when it was opened.
func (im *Image) rewritten() bool {
	var st unix.Stat_t
	return im.file != nil && unix.Fstat(int(im.file.Fd()), &st) == nil && !im.inode.unchanged(&st)
}

func (i *inode) unchanged(st *unix.Stat_t) bool {
	return st.Size == i.size && st.Mtim == i.mtime && st.Ctim == i.ctime
}

// reopen returns another descriptor of a file whose image is im, nil where im is read from another file.
func (s *Store) reopen(f *vmas.File, im *Image) *os.File {
	if was, ok := s.settled[f]; !ok || !im.isFile(was) {
		return nil
	}
	fd, err := unix.FcntlInt(im.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), im.file.Name())
}

// Forget is for [vmas.Table.Forget]: it drops the image of a file that no
// process maps any more, unless the image has another name.
func (s *Store) Forget(f *vmas.File) {
	im, ok := f.Image.(*Image)
	if !ok {
		return
	}
	f.Image = nil
	delete(s.settled, f)
	if im.refs--; im.refs > 0 {
		return
	}
	im.close()
	if im.hit && im.BuildID != nil && f.BuildID.IsZero() && s.Dropped != nil {
		s.Dropped(im.Path, im.BuildID)
	}
	if im.BuildID != nil && s.byID[string(im.BuildID)] == im {
		delete(s.byID, string(im.BuildID))
	}
	if s.byInode[im.inode] == im {
		delete(s.byInode, im.inode)
	}
}

// attach opens the file behind m and settles which image it is.
func (s *Store) attach(pid uint32, m *vmas.Mapping) *Image {
	f := m.File
	if !f.Kind.HasImage() {
		return nil
	}
	id := f.BuildID
	if s.offline != nil {
		id = s.offline.buildID(f)
	}
	im := s.byID[string(id.Bytes())]
	if im == nil {
		im = s.open(pid, m)
	}
	if im.err != nil {
		s.Report(f.Path, im.err)
	}
	if isPassing(im.err) {
		return im // which says nothing about the file: the next sample asks again
	}
	s.use(pid, f, im)
	return im
}

// use makes im the image of a file that a process maps.
func (s *Store) use(pid uint32, f *vmas.File, im *Image) {
	im.refs++
	im.debug.pid = pid
	f.Image = im
}

// isPassing says whether an error is about this process's or the machine's
// means at the moment.
func isPassing(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// open returns the image of a file that was not known by its build ID.
func (s *Store) open(pid uint32, m *vmas.Mapping) *Image {
	if m.File.Kind == vmas.VDSO {
		return s.vdso(pid, m)
	}
	file, err := s.file(pid, m)
	if err != nil {
		return s.unusable(m, err)
	}
	return s.identify(m, file)
}

// identify returns the image that an open file is, to which the file belongs from now on.
func (s *Store) identify(m *vmas.Mapping, file *os.File) *Image {
	im := &Image{store: s, Path: m.File.Path, opened: true, file: file}
	var err error
	im.size, im.inode, err = stat(file)
	if err != nil {
		file.Close()
		return s.unusable(m, err)
	}
	id, err := elf.ReadBuildID(file)
	if err == nil && len(id) > 0 {
		im.BuildID = id
	}
	s.settled[m.File] = im.inode
	if known := s.settle(im); known != im {
		file.Close()
		return known
	}
	return im
}

// unusable is the image of a file that could not be opened.
func (s *Store) unusable(m *vmas.Mapping, err error) *Image {
	return &Image{store: s, Path: m.File.Path, err: err, parsed: true}
}

// settle returns the image that im turns out to be: itself, now known to the
// store, or one that is there already.
func (s *Store) settle(im *Image) *Image {
	if im.BuildID != nil {
		if known := s.byID[string(im.BuildID)]; known != nil && !known.rewritten() {
			return known
		}
		s.byID[string(im.BuildID)] = im
		return im
	}
	if known := s.byInode[im.inode]; known != nil {
		return known
	}
	s.byInode[im.inode] = im
	return im
}

// vdso copies the vDSO: our own, or that of the process where this is another one.
func (s *Store) vdso(pid uint32, m *vmas.Mapping) *Image {
	const largest = 1 << 20
	size := m.End - m.Start
	if size > largest {
		return s.unusable(m, fmt.Errorf("%s: %d bytes are too many", m.File.Path, size))
	}
	data, err := s.readVDSO(pid, m)
	if err != nil {
		return s.unusable(m, err)
	}
	im := &Image{store: s, Path: m.File.Path, opened: true, memory: data, size: int64(size)}
	if id, err := elf.ReadBuildID(bytes.NewReader(data)); err == nil && len(id) > 0 {
		im.BuildID = id
	}
	return s.settle(im)
}

func (s *Store) readVDSO(pid uint32, m *vmas.Mapping) ([]byte, error) {
	if s.offline != nil {
		return s.offline.vdso(m)
	}
	if m.Start>>32 != 0 {
		if own, err := vdso.Own(); err == nil && uint64(len(own)) == m.End-m.Start {
			return own, nil
		}
	}
	data := make([]byte, m.End-m.Start)
	return data, readMemory(fmt.Sprintf("%s/%d/mem", s.proc, pid), data, m.Start)
}

func readMemory(path string, data []byte, addr uint64) error {
	mem, err := os.Open(path)
	if err != nil {
		return err
	}
	defer mem.Close()
	_, err = mem.ReadAt(data, int64(addr))
	return err
}

// file opens the file behind m as the process sees it: by its path in the
// process's root, by the kernel's own link to the mapped file (which also
// finds deleted files), or by its path here when the process is gone or may
// not be looked at.
func (s *Store) file(pid uint32, m *vmas.Mapping) (*os.File, error) {
	if s.offline != nil {
		return s.offline.file(m.File)
	}
	path := m.File.Path
	var first error
	note := func(err error) {
		if first == nil || unreachable(first) {
			first = err
		}
	}
	if m.File.Kind == vmas.Regular && !m.File.Deleted {
		f, err := openMapped(fmt.Sprintf("%s/%d/root%s", s.proc, pid, path), m.File, false)
		if err == nil {
			return f, nil
		}
		note(err)
	}
	link := fmt.Sprintf("%s/%d/map_files/%x-%x", s.proc, pid, m.Start, m.End)
	f, err := openMapped(link, m.File, true)
	if err == nil {
		return f, nil
	}
	note(err)
	if m.File.Kind == vmas.Regular && unreachable(first) {
		f, err := openMapped(path, m.File, false)
		if err == nil {
			return f, nil
		}
		note(err)
	}
	return nil, fmt.Errorf("%s: %w", path, first)
}

// unreachable says whether an error is about the process, which is gone or may
// not be looked at, rather than about the file.
func unreachable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ESRCH)
}

// openMapped opens a file that is claimed to be want, and makes sure that it
// is. Where the kernel told of neither inode nor build ID, the path has to do: the
// process has just mapped what it leads to.
func openMapped(name string, want *vmas.File, link bool) (*os.File, error) {
	f, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	err = fileid.Check(f, &want.FileID)
	if err != nil && err != fileid.ErrUnproven && !(link && leadsTo(name, f, want)) {
		f.Close()
		return nil, err
	}
	return f, nil
}

// leadsTo says whether the kernel's link to a mapped file, opened as f, shows the
// wanted path: then it is the mapped one, though its file system reports another
// inode in fstat. A build ID or a generation that differs is never overruled.
func leadsTo(link string, f *os.File, want *vmas.File) bool {
	if !want.BuildID.IsZero() || !fileid.SameGeneration(f, &want.FileID) {
		return false
	}
	target, err := os.Readlink(link)
	return err == nil && target == want.Name()
}

func stat(f *os.File) (size int64, id inode, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, id, fmt.Errorf("%s: fstat: %w", f.Name(), err)
	}
	id = inode{st.Dev, st.Ino, fileid.Generation(f), st.Size, st.Mtim, st.Ctim}
	return st.Size, id, nil
}

// contents is what the image is read from.
func (im *Image) contents() io.ReaderAt {
	if im.memory != nil {
		return bytes.NewReader(im.memory)
	}
	return im.file
}

// Sampled calls fn with path and build ID of every image that a frame of any
// walk was in, in order of their build IDs.
func (s *Store) Sampled(fn func(path string, id []byte)) {
	for _, id := range slices.Sorted(maps.Keys(s.byID)) {
		if im := s.byID[id]; im.hit {
			fn(im.Path, im.BuildID)
		}
	}
}
