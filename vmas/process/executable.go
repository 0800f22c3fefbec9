package process

import (
	"bufio"
	"fmt"
	"io"
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
	maps, err := d.Text(pid, pid, Maps)
	if err != nil {
		return false
	}
	defer maps.Close()
	q := mappingQuery{size: uint64(unsafe.Sizeof(mappingQuery{})), addr: start}
	file, ok := maps.(*text)
	if !ok {
		return false
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(file.fd), uintptr(queryMapping),
		uintptr(unsafe.Pointer(&q)))
	switch errno {
	case 0:
		return q.start == start && q.end == end && q.access&executable != 0
	case unix.ENOTTY:
		return scanExecutable(io.LimitReader(maps, mostScanned), start, end)
	}
	return false
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
