package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/image/fileid"
	"unspool/vmas"
	"unspool/vmas/process"
	"unspool/vmas/sys"
)

// A source is what an image is read from, a file, or memory for the vDSO, with its identity. It is immutable,
// but its file may be closed and opened again.
type source struct {
	file    *descriptor    // nil for memory
	by      process.ReadBy // nil where this process reads the file itself
	name    string         // of the file
	owner   uint32         // of the file
	memory  []byte
	size    int64
	inode   inode
	buildID []byte    // nil where it has none
	loads   elf.Loads // of a file with a build ID
	notELF  bool      // it was no ELF file when it was opened
}

// inode is the identity of an opened file without a build ID. All fields come from the open file, so its
// device is the same whenever it is asked; size and times of change differ for a file that was rewritten in
// place.
type inode struct {
	dev, ino     uint64
	generation   uint32
	size         int64
	mtime, ctime unix.Timespec
}

// identify reads the identity of an open file, which has room among the descriptors and belongs to the source
// from now on. again opens it again.
func (fd *finder) identify(file *os.File, uid, pid uint32, again opener) (*source, error) {
	st, err := process.Fstat(file)
	if err != nil {
		file.Close()
		fd.files.giveBack(uid)
		return nil, fmt.Errorf("%s: fstat: %w", file.Name(), err)
	}
	s := &source{name: file.Name(), size: st.Size, owner: st.Uid, by: fd.readBy(pid, file)}
	s.inode = inode{st.Dev, st.Ino, fileid.Generation(file), st.Size, st.Mtim, st.Ctim}
	s.readIdentity(&process.OpenFile{File: file, By: s.by})
	s.file = newDescriptor(fd.files, fd.reader, uid, st.Dev, file, again)
	return s, nil
}

// inMemory is the source of an image that is not in a file.
func inMemory(data []byte) *source {
	s := &source{memory: data, size: int64(len(data))}
	s.readIdentity(s.contents())
	return s
}

// withoutCode is the source of a file that the opener did not hand out, as it is no ELF file. The mapping
// gives its identity.
func withoutCode(f *vmas.File) *source {
	return &source{inode: inode{dev: unix.Mkdev(f.Major, f.Minor), ino: f.Inode,
		generation: uint32(f.Generation)}}
}

func (s *source) readIdentity(r io.ReaderAt) {
	id, loads, err := elf.ReadIdentity(r)
	s.notELF = errors.Is(err, elf.ErrBadELF)
	if err == nil && len(id) > 0 {
		s.buildID, s.loads = id, loads
	}
}

// key identifies an image with a build ID. It includes the segments, as tools that change a program after
// linking, like patchelf, move its parts and leave its build ID; and the owner, as anybody can write a file
// with the build ID of another one, which must not stand for that.
func (s *source) key() string {
	key := binary.LittleEndian.AppendUint32(bytes.Clone(s.buildID), s.owner)
	for i := range s.loads {
		l := &s.loads[i]
		for _, n := range []uint64{l.Offset, l.Vaddr, l.Filesz, uint64(l.Flags)} {
			key = binary.LittleEndian.AppendUint64(key, n)
		}
	}
	return string(key)
}

// contents reads the source directly, which may block.
func (s *source) contents() io.ReaderAt {
	if s.file == nil {
		return bytes.NewReader(s.memory)
	}
	return s
}

// ReadAt reads the file, which may block.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	file, err := s.hold()
	if err != nil {
		return 0, err
	}
	defer s.release()
	open := process.OpenFile{File: file, By: s.by}
	return open.ReadAt(p, off)
}

// readBy returns who reads a file that was opened for a process, nil for this process itself.
func (fd *finder) readBy(pid uint32, file *os.File) process.ReadBy {
	var opener any = fd.access
	if fd.offline != nil {
		opener = fd.offline.Opener
	}
	reader, ok := opener.(process.FileReader)
	if !ok {
		return nil
	}
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH == 0 {
		return nil
	}
	return func(file *os.File, p []byte, off int64) (int, error) { return reader.ReadFile(pid, file, p, off) }
}

// hold keeps the file open until release. It may have to open it again, which may block.
func (s *source) hold() (*os.File, error) {
	if s.file == nil {
		return nil, nil
	}
	return s.file.hold(s.isSame)
}

// holdOpen is hold for a file that is open, else nil. It does not block.
func (s *source) holdOpen() *os.File {
	if s.file == nil {
		return nil
	}
	return s.file.holdOpen()
}

func (s *source) release() {
	if s.file != nil {
		s.file.release()
	}
}

// isOpen reports whether the source can be read without opening a file again.
func (s *source) isOpen() bool {
	if s.file == nil {
		return true
	}
	if s.holdOpen() == nil {
		return false
	}
	s.release()
	return true
}

// isSame returns an error unless file is the one that was closed, unchanged.
func (s *source) isSame(file *os.File) error {
	st, err := process.Fstat(file)
	if err != nil {
		return err
	}
	switch {
	case st.Dev != s.inode.dev || st.Ino != s.inode.ino || fileid.Generation(file) != s.inode.generation:
		return fileid.ErrReplaced
	case st.Size != s.inode.size || st.Mtim != s.inode.mtime:
		return errWritten
	}
	return nil
}

// readNow reads from an offset of the file what the page cache has of it, and does not block. The error is
// EAGAIN if something is not in the cache or the file was closed, and another one if the file system does not
// support such reads.
func (s *source) readNow(buf []byte, off int64) (n int, err error) {
	file := s.holdOpen()
	if file == nil {
		return 0, unix.EAGAIN
	}
	defer s.release()
	n, err = sys.PreadCached(int(file.Fd()), buf, off)
	if err == nil && n < len(buf) && off+int64(n) < s.size {
		err = unix.EAGAIN
	}
	return n, err
}

// close closes the file on another goroutine.
func (s *source) close() {
	if s.file != nil {
		s.file.close()
	}
}

// isFile reports whether the source is the file of an inode.
func (s *source) isFile(id *inode) bool {
	return s.file != nil && s.inode.isFile(id)
}

// isFile reports whether it is the inode of the same file, which may have been written to.
func (i *inode) isFile(j *inode) bool {
	return i.dev == j.dev && i.ino == j.ino && i.generation == j.generation
}

// rewritten reports whether the contents of the file may have changed. The ctime also shows changes after which
// somebody has reset the mtime, but it changes with the file's mode and names, too.
func (s *source) rewritten(was *inode) bool {
	st, ok := s.stat()
	return ok && (s.written(&st) || !isTime(st.Ctime, was.ctime))
}

// changed reports whether the contents have changed since the file was opened, by size and mtime.
func (s *source) changed() bool {
	st, ok := s.stat()
	return ok && s.written(&st)
}

func (s *source) written(st *unix.Statx_t) bool {
	return int64(st.Size) != s.inode.size || !isTime(st.Mtime, s.inode.mtime)
}

// stat returns what this machine knows of the file now: a server is not asked, so that the call does not
// wait. ok is false if the file was closed; it is compared when it is opened again.
func (s *source) stat() (st unix.Statx_t, ok bool) {
	file := s.holdOpen()
	if file == nil {
		return st, false
	}
	defer s.release()
	const mask = unix.STATX_SIZE | unix.STATX_MTIME | unix.STATX_CTIME
	err := sys.Statx(int(file.Fd()), unix.AT_STATX_DONT_SYNC, mask, &st)
	return st, err == nil
}

// writtenAfter reports whether an ELF file was written to after a time of CLOCK_MONOTONIC, at which it was
// mapped: a program that ended soon may have been replaced by the next one in the same file. Files to which
// runtimes write code that they have mapped are no ELF files.
func (s *source) writtenAfter(mapped uint64) bool {
	if s.file == nil || mapped == 0 {
		return false
	}
	since, now, ok := clocks()
	if !ok {
		return false
	}
	written := unix.TimespecToNsec(s.inode.mtime)
	at := now - (since - int64(mapped))
	// A time ahead of our own clock comes from another one, such as a server's.
	if written <= at || written > now {
		return false
	}
	var magic [4]byte
	n, _ := s.ReadAt(magic[:], 0)
	return n == len(magic) && string(magic[:]) == "\x7fELF"
}

// clocks reads CLOCK_MONOTONIC and CLOCK_REALTIME at the same time, in ns. This thread may lose its CPU between the
// two: then they are read again.
func clocks() (monotonic, realtime int64, ok bool) {
	const tries, apart = 8, 20_000
	for range tries {
		var before, now, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &now) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			return 0, 0, false
		}
		if monotonic, realtime = before.Nano(), now.Nano(); after.Nano()-monotonic < apart {
			break
		}
	}
	return monotonic, realtime, true
}

func isTime(a unix.StatxTimestamp, b unix.Timespec) bool {
	return a.Sec == b.Sec && int64(a.Nsec) == b.Nsec
}

func (i *inode) unchanged(st *unix.Stat_t) bool {
	return st.Size == i.size && st.Mtim == i.mtime && st.Ctim == i.ctime
}

// again returns another descriptor of the file, if it is open.
func (s *source) again() (*os.File, error) {
	file := s.holdOpen()
	if file == nil {
		return nil, errClosed
	}
	defer s.release()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), s.name), nil
}
