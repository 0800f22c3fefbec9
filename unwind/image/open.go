package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"unspool/unwind/image/fileid"
	"unspool/unwind/vdso"
	"unspool/vmas"
	"unspool/vmas/process"
)

// Opens reports whether Open has begun to open a file. Lookup and BuildID take in what has become of that.
func (s *Store) Opens(f *vmas.File) bool {
	_, ok := f.Image.(*opening)
	return ok
}

// A finder finds the files that processes map. It is immutable: goroutines of the reader share it.
type finder struct {
	access  process.Access // nil if processes are not looked at
	offline *Offline
	files   *descriptors
	reader  *reader
}

// An opened is the result of opening the file behind a mapping.
type opened struct {
	source *source // nil where there is an error
	err    error
	same   bool // in place of a source: the file is the one that was known
}

// close closes a file that is not wanted any more.
func (o opened) close() {
	if o.source != nil {
		o.source.close()
	}
}

// is reports whether a file that was opened again is the file of im: the same inode, size and time of change,
// build ID and segments. A runtime that keeps generated code in a file writes to it all the time.
func (o *opened) is(im *Image) bool {
	if o.source != nil && o.source.notELF && im.isNotELF() {
		return o.source.isFile(&im.inode)
	}
	return o.source != nil && im.source != nil && o.source.isFile(&im.source.inode) &&
		o.source.inode.size == im.source.inode.size && o.source.inode.mtime == im.source.inode.mtime &&
		o.source.buildID != nil && o.source.key() == im.key
}

// open opens the file behind a mapping of a process.
func (fd *finder) open(pid uint32, m *vmas.Mapping) opened {
	if m.File.Kind == vmas.VDSO {
		data, err := fd.vdso(pid, m)
		if err != nil {
			return opened{err: err}
		}
		return opened{source: inMemory(data)}
	}
	uid := fd.owner(pid)
	if err := fd.files.room(uid); err != nil {
		return opened{err: fmt.Errorf("%s: %w", m.File.Path, err)}
	}
	file, err := fd.file(pid, m)
	if err != nil {
		fd.files.giveBack(uid)
	}
	switch {
	case errors.Is(err, process.ErrNotCode):
		return opened{source: withoutCode(m.File)}
	case errors.Is(err, process.ErrEmpty):
		return opened{err: fmt.Errorf("%s: %w", m.File.Path, errWritten)}
	case err != nil:
		return opened{err: err}
	}
	return fd.opened(file, uid, pid, m)
}

// opened identifies a file that was opened for a mapping. There is room for it among the descriptors.
func (fd *finder) opened(file *os.File, uid, pid uint32, m *vmas.Mapping) opened {
	s, err := fd.identify(file, uid, pid, fd.opener(pid, m))
	if err == nil && fd.offline == nil &&
		(fd.isRewritten(s, pid, m) || m.Offset >= uint64(s.size)) { // or it is being written
		s.close()
		return opened{err: fmt.Errorf("%s: %w", m.File.Path, errWritten)}
	}
	return opened{source: s, err: err}
}

// isRewritten reports whether a file was written to since it was mapped, or may have been: the kernel stamps a file
// that nobody has looked at with the time of the last tick, which may be that before the mapping. As long as the
// process is there, nobody can write to its program (ETXTBSY).
func (fd *finder) isRewritten(s *source, pid uint32, m *vmas.Mapping) bool {
	if s.writtenAfter(m.Time) {
		return true
	}
	if !s.writtenAfter(m.Time - min(m.Time, tick)) {
		return false
	}
	_, err := fd.access.Stat(pid, m.File.Name())
	return err != nil
}

// tick is the time between two ticks of the kernel's clock, in ns.
var tick = clockTick()

func clockTick() uint64 {
	var resolution unix.Timespec
	if unix.ClockGetres(unix.CLOCK_REALTIME_COARSE, &resolution) != nil {
		return 10e6 // the longest of all kernels
	}
	return uint64(resolution.Nano())
}

// opener opens the file behind a mapping again.
func (fd *finder) opener(pid uint32, m *vmas.Mapping) opener {
	return opener{find: *fd, pid: pid, at: *m}
}

// recorded is the build ID that a recording has for a file, zero if it has none or processes run here.
func (fd *finder) recorded(f *vmas.File) vmas.BuildID {
	if fd.offline == nil {
		return f.BuildID
	}
	return fd.offline.buildID(f)
}

// nobody stands for the user of a process that is gone.
const nobody = ^uint32(0)

// owner is the user of a process. Files of a recording are all this user's.
func (fd *finder) owner(pid uint32) uint32 {
	if fd.offline != nil {
		return uint32(os.Geteuid())
	}
	uid, err := fd.access.Owner(pid)
	if err != nil {
		return nobody
	}
	return uid
}

// errWritten means that what was mapped is not known any more.
var errWritten = errors.New("written to since it was mapped")

// openAgain is open for a file that was opened before and has changed since: the path of the mapping leads to
// its inode in the root of the process, or here when that is gone, with another size or time. Otherwise
// the file counts as the same.
func (fd *finder) openAgain(pid uint32, m *vmas.Mapping, was inode) opened {
	st, err := fd.access.Stat(pid, m.File.Name())
	if unreachable(err) {
		st, err = fd.access.Stat(0, m.File.Name())
	}
	if err != nil || st.Dev != was.dev || st.Ino != was.ino || was.unchanged(&st) {
		return opened{same: true}
	}
	return fd.open(pid, m)
}

// vdso returns the vDSO: our own, or a copy of that of the process if they differ.
func (fd *finder) vdso(pid uint32, m *vmas.Mapping) ([]byte, error) {
	const largest = 1 << 20
	size := m.End - m.Start
	if size > largest {
		return nil, fmt.Errorf("%s: %d bytes are too many", m.File.Path, size)
	}
	if fd.offline != nil {
		return fd.offline.vdso(m)
	}
	if m.Start>>32 != 0 {
		if own, err := vdso.Own(); err == nil && uint64(len(own)) == size {
			return own, nil
		}
	}
	data := make([]byte, size)
	if fd.access.ReadMemory(pid, data, m.Start) < len(data) {
		return nil, fmt.Errorf("%s: process %d's memory cannot be read", m.File.Path, pid)
	}
	return data, nil
}

// file opens the file behind m as the process sees it: by its path in the
// process's root, by the kernel's own link to the mapped file (which also
// finds deleted files), or by its path here when the process is gone or may
// not be looked at.
func (fd *finder) file(pid uint32, m *vmas.Mapping) (*os.File, error) {
	if fd.offline != nil {
		return fd.offline.file(m.File)
	}
	var first error
	note := func(err error) {
		if first == nil || unreachable(first) {
			first = err
		}
	}
	if m.File.Kind == vmas.Regular {
		f, err := fd.openPath(pid, m, m.File.Name())
		if err == nil {
			return f, nil
		}
		note(err)
	}
	f, err := fd.openMapped(pid, m)
	if err == nil {
		return f, nil
	}
	note(err)
	if m.File.Kind == vmas.Regular && unreachable(first) {
		for _, path := range vmas.Paths(m.File.Name()) {
			f, err := fd.openPath(0, m, path)
			if err == nil {
				return f, nil
			}
			note(err)
		}
	}
	return nil, fmt.Errorf("%s: %w", m.File.Path, first)
}

// unreachable reports whether an error is about the process, which is gone or may
// not be looked at, rather than about the file.
func unreachable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ESRCH)
}

// openPath opens a file by a path in the root of a process, or here for PID 0, and makes sure that
// it is the one that is mapped.
func (fd *finder) openPath(pid uint32, m *vmas.Mapping, path string) (*os.File, error) {
	f, err := fd.access.OpenPath(pid, path, m.Start, m.End)
	if err != nil {
		return nil, err
	}
	return proven(f, m.File, "")
}

// openMapped is openPath for the kernel's link to the mapped file.
func (fd *finder) openMapped(pid uint32, m *vmas.Mapping) (*os.File, error) {
	f, target, err := fd.access.OpenMapped(pid, m.Start, m.End)
	if err != nil {
		return nil, err
	}
	return proven(f, m.File, target)
}

// proven returns f if it is the wanted file, and closes it otherwise. If the kernel told neither inode nor
// build ID, the path is enough: the process has just mapped what it leads to. target is what the kernel's own
// link to the mapped file shows, "" if f was opened by another path. If that is the wanted path, f is the mapped file
// even if its file system reports another inode in fstat; not if a mapping of f shows another one: the process may
// have mapped another file there since.
func proven(f *os.File, want *vmas.File, target string) (*os.File, error) {
	err := fileid.Check(&process.OpenFile{File: f}, &want.FileID)
	if err != nil && err != fileid.ErrUnproven && (err != fileid.ErrUnlike || target == "" || target != want.Name()) {
		f.Close()
		return nil, err
	}
	return f, nil
}
