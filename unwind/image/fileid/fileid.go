// Package fileid reports whether an open file is the one that was mapped, by what the kernel or a recording told
// about that: its build ID, else device, inode and generation, as far as these are known. A path is no
// evidence: it may lead to another file by now, and to another one in another mount namespace. Open files
// stay the caller's.
package fileid

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/vmas"
	"unspool/vmas/process"
)

var (
	// ErrReplaced means that the path of a mapped file leads to another file now,
	// and the mapped one cannot be reached any more.
	ErrReplaced = errors.New("the file at this path is not the one that was mapped")
	// ErrUnproven means that nothing is known that would identify the mapped file.
	ErrUnproven = errors.New("neither its build ID nor its inode is known")
	// ErrUnlike means that the inode is another one, which is no proof: some file systems report another inode than a
	// mapping of the file shows, and it is not known what that shows.
	ErrUnlike = fmt.Errorf("%w, as far as its inode shows", ErrReplaced)
)

// Check returns nil if file is the one that id identifies, else [ErrReplaced], [ErrUnproven], [ErrUnlike] or why the
// file cannot be examined. If a build ID is known, it alone decides.
func Check(file *process.OpenFile, id *vmas.FileID) error {
	if !id.BuildID.IsZero() {
		found, err := elf.ReadBuildID(file)
		if err != nil || !SameBuild(found, id.BuildID.Bytes()) {
			return ErrReplaced
		}
		return nil
	}
	if id.Inode == 0 {
		return ErrUnproven
	}
	st, err := process.Fstat(file.File)
	if err != nil {
		return err
	}
	switch {
	case !SameGeneration(file.File, id):
		return ErrReplaced
	case isInode(file.File, &st, id):
		return nil
	}
	shown, known := mapped(file.File)
	switch {
	case !known:
		return ErrUnlike
	case shown.Inode != id.Inode:
		return ErrReplaced
	case shown.Major != id.Major || shown.Minor != id.Minor:
		return ErrUnlike
	}
	return nil
}

// recordedSize is the room that perf.data has for a build ID, and the longest that the kernel
// reports.
const recordedSize = vmas.MaxBuildID

// SameBuild reports whether a file with the build ID found is the one of which a recording has the
// other. Recordings have 20 bytes of longer IDs, and in those of older perf there are zeros behind
// shorter ones (build_id__init in tools/perf/util/build-id.c).
func SameBuild(found, recorded []byte) bool {
	if len(found) == 0 || len(recorded) == 0 {
		return false
	}
	if len(recorded) == recordedSize && len(found) != recordedSize {
		var field [recordedSize]byte
		copy(field[:], found)
		found = field[:]
	}
	return bytes.Equal(found, recorded)
}

// Unpadded removes the zeros behind a recorded build ID of 8 or 16 bytes (see [SameBuild]).
func Unpadded(recorded []byte) []byte {
	if len(recorded) == recordedSize {
		for _, n := range []int{8, 16} {
			if len(bytes.TrimRight(recorded[n:], "\x00")) == 0 {
				return recorded[:n]
			}
		}
	}
	return recorded
}

// isInode reports whether fstat shows the inode of id, and its device if that is known and can be compared. On
// overlayfs it cannot: Linux 6.7 to 6.17 write the device of the layer into records, which neither fstat nor
// /proc/PID/maps shows. The inode number is that of the layer in all of them.
func isInode(file *os.File, st *unix.Stat_t, id *vmas.FileID) bool {
	if st.Ino != id.Inode {
		return false
	}
	unknown := id.Major == 0 && id.Minor == 0
	return unknown || unix.Major(st.Dev) == id.Major && unix.Minor(st.Dev) == id.Minor || isOverlay(file)
}

// isOverlay reports whether a file is on an overlayfs. That is not asked of a descriptor that cannot be read,
// which stands for a file of a server: the server would have to answer.
func isOverlay(file *os.File) bool {
	var fs unix.Statfs_t
	if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_PATH != 0 {
		return false
	}
	return unix.Fstatfs(int(file.Fd()), &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// ownMaps is /proc/self/maps. It stays open, as a process that has confined itself cannot open it.
var ownMaps = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/maps") })

// Prepare opens what Check needs, for a process that will not be able to open anything.
func Prepare() error {
	_, err := ownMaps()
	return err
}

// mapped returns device and inode that a mapping of the file shows. On btrfs and overlayfs these are not the ones that
// fstat gives.
func mapped(file *os.File) (shown vmas.FileID, known bool) {
	data, err := unix.Mmap(int(file.Fd()), 0, 1, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return shown, false
	}
	defer unix.Munmap(data)
	own, err := ownMaps()
	if err != nil {
		return shown, false
	}
	maps, err := io.ReadAll(io.NewSectionReader(own, 0, 1<<30))
	if err != nil {
		return shown, false
	}
	at := fmt.Sprintf("%x-", uintptr(unsafe.Pointer(&data[0])))
	for line := range strings.Lines(string(maps)) {
		if !strings.HasPrefix(line, at) {
			continue
		}
		// 7f1c2a400000-7f1c2a426000 r--p 00000000 fe:01 1048601        /usr/lib/libc.so.6
		var addresses, access, offset string
		_, err := fmt.Sscanf(line, "%s %s %s %x:%x %d",
			&addresses, &access, &offset, &shown.Major, &shown.Minor, &shown.Inode)
		return shown, err == nil
	}
	return shown, false
}

// SameGeneration reports whether the generation of the file's inode is that of id, as far as both are
// known. An inode that was freed and used again has another one.
func SameGeneration(file *os.File, id *vmas.FileID) bool {
	if id.Generation == 0 {
		return true
	}
	have := Generation(file)
	return have == 0 || uint64(have) == id.Generation
}

// getVersion is FS_IOC_GETVERSION (include/uapi/linux/fs.h) where long has 64 bits.
const getVersion = 0x80087601

// Generation is the inode's generation, 0 where the file system has none.
func Generation(f *os.File) uint32 {
	v, err := unix.IoctlGetInt(int(f.Fd()), getVersion)
	if err != nil {
		return 0
	}
	return uint32(v)
}
