package process

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A mappingQuery is struct procmap_query (include/uapi/linux/fs.h, since Linux 6.11).
type mappingQuery struct {
	size, flags, addr           uint64
	start, end, access          uint64
	pageSize, offset, inode     uint64
	major, minor                uint32
	nameSize, buildIDSize       uint32
	nameAddress, buildIDAddress uint64
}

const (
	// queryMapping is PROCMAP_QUERY, the ioctl on a maps file that tells of one mapping.
	queryMapping = 3<<30 | uint32(unsafe.Sizeof(mappingQuery{}))<<16 | 'f'<<8 | 17
	executable   = 4 // PROCMAP_QUERY_VMA_EXECUTABLE
	// mostScanned bounds what is read of the maps of a process where the kernel does not tell of one mapping.
	mostScanned = 256 << 10
)

// IsExecutable says whether a process has an executable mapping from start to end.
func (d Direct) IsExecutable(pid uint32, start, end uint64) bool {
	maps, err := d.Text(pid, pid, Maps, mostScanned)
	if err != nil {
		return false
	}
	defer maps.Close()
	file, ok := maps.(*text)
	if !ok {
		return false
	}
	q, errno := mappingAt(file.fd, start)
	switch errno {
	case 0:
		return q.start == start && q.end == end && q.access&executable != 0
	case unix.ENOTTY:
		return scanExecutable(io.LimitReader(maps, mostScanned), start, end)
	}
	return false
}

// mappingAt asks for the mapping around an address. The error is ENOTTY where the kernel does not tell of
// one.
func mappingAt(maps int, addr uint64) (q mappingQuery, errno unix.Errno) {
	q = mappingQuery{size: uint64(unsafe.Sizeof(mappingQuery{})), addr: addr}
	_, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(maps), uintptr(queryMapping), uintptr(unsafe.Pointer(&q)))
	return q, errno
}

// MappingEnd is where the mapping of a process ends that an address is in. ok is false where the kernel does
// not tell of one mapping.
func MappingEnd(pid uint32, addr uint64) (end uint64, ok bool) {
	name := "/proc/" + strconv.FormatUint(uint64(pid), 10) + "/maps"
	maps, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, true
	}
	defer unix.Close(maps)
	q, errno := mappingAt(maps, addr)
	if errno != 0 {
		return 0, errno != unix.ENOTTY
	}
	return q.end, true
}

// scanExecutable says whether maps has an executable mapping from start to end.
func scanExecutable(maps io.Reader, start, end uint64) bool {
	want := fmt.Sprintf("%08x-%08x ", start, end)
	for lines := bufio.NewReader(maps); ; {
		line, prefix, err := lines.ReadLine()
		if err != nil {
			return false
		}
		if access, ok := strings.CutPrefix(string(line[:min(len(line), 64)]), want); ok {
			return len(access) > 2 && access[2] == 'x'
		}
		for prefix && err == nil {
			_, prefix, err = lines.ReadLine()
		}
	}
}
