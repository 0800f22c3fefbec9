package process

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// A mappingQuery is struct procmap_query (include/uapi/linux/fs.h, since Linux 6.11).
type mappingQuery struct {
	size, _, addr      uint64 // flags
	start, end, access uint64
	_, _, inode        uint64 // page size, offset
	_, _               uint32 // device
	nameSize, _        uint32 // size of the build ID
	nameAddress, _     uint64 // address of the build ID
}

const (
	// queryMapping is PROCMAP_QUERY, the ioctl on a maps file that tells of one mapping.
	queryMapping = 3<<30 | uint(unsafe.Sizeof(mappingQuery{}))<<16 | 'f'<<8 | 17
	// PROCMAP_QUERY_VMA_READABLE and so on
	canRead    = 1
	canWrite   = 2
	canExecute = 4
	shared     = 8
	// mostMaps bounds what is read of the maps of a process where the kernel does not tell of one mapping: there are
	// some 12,000 of them in it.
	mostMaps = 1 << 20
	// longestLine is longer than any line of it: the path in it has at most unix.PathMax bytes.
	longestLine = 2 * unix.PathMax
)

// IsExecutable reports whether a process has an executable mapping from start to end.
func (d Direct) IsExecutable(pid uint32, start, end uint64) bool {
	maps, err := d.Text(pid, pid, Maps, mostMaps)
	if err != nil {
		return false
	}
	defer maps.Close()
	file, ok := maps.(*text)
	if !ok {
		return false
	}
	q, err := mappingAt(file.fd, start, nil)
	switch err {
	case nil:
		return q.start == start && q.end == end && q.access&canExecute != 0
	case unix.ENOTTY:
		return scanExecutable(maps, start, end)
	}
	return false
}

// mappingAt asks for the mapping around an address, and for its name if there is room for that. The error is ENOTTY
// where the kernel does not tell of one.
func mappingAt(maps int, addr uint64, name []byte) (q mappingQuery, err error) {
	q = mappingQuery{size: uint64(unsafe.Sizeof(mappingQuery{})), addr: addr, nameSize: uint32(len(name))}
	if len(name) > 0 {
		name[0] = 0
		q.nameAddress = uint64(uintptr(unsafe.Pointer(&name[0])))
	}
	err = sys.Ioctl(maps, queryMapping, &q)
	runtime.KeepAlive(name)
	return q, err
}

// scanExecutable reports whether maps has an executable mapping from start to end.
func scanExecutable(maps io.Reader, start, end uint64) bool {
	for q := range mappings(maps) {
		if q.start == start && q.end == end {
			return q.access&canExecute != 0
		}
	}
	return false
}

// mappings gives the mappings in a maps file, up to mostMaps, as the kernel's answers to queries would, with their
// names.
func mappings(maps io.Reader) iter.Seq2[mappingQuery, string] {
	return func(yield func(mappingQuery, string) bool) {
		for lines := bufio.NewReaderSize(io.LimitReader(maps, mostMaps), longestLine); ; {
			line, err := lines.ReadSlice('\n')
			for err == bufio.ErrBufferFull {
				if _, err = lines.ReadSlice('\n'); err != bufio.ErrBufferFull {
					line = nil
				}
			}
			if err != nil {
				return
			}
			if q, name, ok := parseMapping(strings.TrimSuffix(string(line), "\n")); ok && !yield(q, name) {
				return
			}
		}
	}
}

// parseMapping parses a line of a maps file (proc_pid_maps(5)).
func parseMapping(line string) (q mappingQuery, name string, ok bool) {
	var fields [5]string // addresses, access, offset, device, inode
	for i := range fields {
		fields[i], line, _ = strings.Cut(line, " ")
	}
	start, end, _ := strings.Cut(fields[0], "-")
	var errs [3]error
	q.start, errs[0] = strconv.ParseUint(start, 16, 64)
	q.end, errs[1] = strconv.ParseUint(end, 16, 64)
	q.inode, errs[2] = strconv.ParseUint(fields[4], 10, 64)
	if errors.Join(errs[:]...) != nil || q.end <= q.start || len(fields[1]) != len("rwxs") {
		return q, "", false
	}
	for i, can := range []uint64{canRead, canWrite, canExecute, shared} {
		if fields[1][i] == "rwxs"[i] {
			q.access |= can
		}
	}
	return q, strings.TrimLeft(line, " "), true
}
