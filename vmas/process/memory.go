package process

import (
	"encoding/binary"
	"io"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// A MemoryReader reads the memory of one process, by descriptors that it keeps. Once the process has executed
// another program, these read nothing any more: then they are opened again.
//
// It reads by /proc/PID/mem, as nothing else leaves the process alone: process_vm_readv(2) asks a handler of
// userfaultfd(2) for a page and waits for it, which the handler may take for a fault of the program's own. But
// /proc/PID/mem also goes where the program itself could not, lets stacks grow, and keeps the process from changing
// its mappings while a page comes from a file's server or a disk. So what is read is
//   - readable memory, not mapped from a device, and private, or code that others write;
//   - of a file, only pages that are in the process's page table.
//
// A page of its own that the process has never touched is there afterwards: it is all zeroes.
type MemoryReader struct {
	folder   string
	mem      int // the descriptors, -1 for none
	maps     int
	pagemap  int      // opened for memory of files
	last     readable // as of found, CLOCK_MONOTONIC in ns
	found    uint64
	noQuery  bool       // the kernel does not tell of one mapping
	readable []readable // then, what may be read as of scanned, in order of addresses
	scanned  uint64
	name     []byte // scratch
}

// A readable is a mapping that may be read.
type readable struct {
	start, end uint64
	ofFile     bool
}

const (
	pageSize = 4096
	// A mapping is asked for again once it is older than keptForOne: parts of a stack are read one after the other.
	keptForOne = 1_000_000 // ns
	// Where the kernel does not tell of one mapping, the list of all is read again once it is older than keptFor; for
	// an address in none of them, than keptForNone.
	keptFor     = 1_000_000_000
	keptForNone = 10_000_000
)

// OpenMemory opens the memory of a process. It has to be closed.
func (d Direct) OpenMemory(pid uint32) (*MemoryReader, error) {
	r := &MemoryReader{folder: d.folder(pid) + "/", mem: -1, maps: -1, pagemap: -1}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *MemoryReader) open() (err error) {
	if r.mem, err = r.openFile("mem"); err != nil {
		return err
	}
	if r.maps, err = r.openFile("maps"); err != nil {
		r.Close()
	}
	return err
}

func (r *MemoryReader) openFile(name string) (fd int, err error) {
	for {
		fd, err = unix.Open(r.folder+name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// Close closes the descriptors. The next read opens them again.
func (r *MemoryReader) Close() {
	for _, fd := range []*int{&r.mem, &r.maps, &r.pagemap} {
		if *fd >= 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
	r.found, r.readable, r.scanned = 0, r.readable[:0], 0
}

// IsOver reports whether nothing is read by the descriptors any more, as the program has ended that ran in the process.
func (r *MemoryReader) IsOver() bool {
	if r.maps < 0 {
		return true
	}
	if !r.noQuery {
		if _, err := mappingAt(r.maps, 0, nil); err != unix.ENOTTY {
			return err == unix.ESRCH
		}
	}
	var b [1]byte
	n, err := unix.Pread(r.maps, b[:], 0)
	return n == 0 && err == nil || err == unix.ESRCH // after exec, and after the end of the process
}

// Read reads from an address on up to what may not or cannot be read, and returns how much that is.
func (r *MemoryReader) Read(buf []byte, addr uint64) (read int) {
	read = r.read(buf, addr)
	if read > 0 || len(buf) == 0 || !r.IsOver() {
		return read
	}
	r.Close()
	if r.open() != nil {
		return 0
	}
	return r.read(buf, addr)
}

func (r *MemoryReader) read(buf []byte, addr uint64) (read int) {
	for read < len(buf) {
		at := addr + uint64(read)
		m, ok := r.find(at)
		if !ok {
			return read
		}
		size := int(min(uint64(len(buf)-read), m.end-at))
		if m.ofFile {
			size = min(size, r.present(at, size))
		}
		n := r.copy(buf[read:read+size], at)
		if read += n; n < size || size == 0 {
			return read
		}
	}
	return read
}

// copy reads memory that may be read. The kernel reads pieces of a page: these are fastest if each is in one page.
func (r *MemoryReader) copy(buf []byte, addr uint64) (read int) {
	size := len(buf)
	if addr%pageSize != 0 && size > 2*pageSize {
		size = pageSize - int(addr%pageSize)
	}
	for read < len(buf) {
		n, err := unix.Pread(r.mem, buf[read:size], int64(addr)+int64(read))
		if err != nil || n == 0 {
			return read
		}
		if read += n; read < size {
			return read
		}
		size = len(buf)
	}
	return read
}

// present is how many bytes from an address on are in pages that are in the page table, of size bytes.
func (r *MemoryReader) present(addr uint64, size int) (n int) {
	const (
		entry   = 8       // of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst)
		present = 1 << 63 // its bit
	)
	if r.pagemap < 0 {
		var err error
		if r.pagemap, err = r.openFile("pagemap"); err != nil {
			return 0
		}
	}
	var pages [64 * entry]byte
	for n < size {
		at := addr + uint64(n)
		first, last := at/pageSize, (addr+uint64(size)-1)/pageSize
		some := pages[:min(last-first+1, uint64(len(pages)/entry))*entry]
		if got, err := unix.Pread(r.pagemap, some, int64(first*entry)); err != nil || got < len(some) {
			return n
		}
		for ; len(some) > 0; some = some[entry:] {
			if binary.NativeEndian.Uint64(some)&present == 0 {
				return n
			}
			first++
			n = min(int(first*pageSize-addr), size)
		}
	}
	return n
}

// MappingEnd is where the mapping ends that an address is in, 0 if it is in none that may be read.
func (r *MemoryReader) MappingEnd(addr uint64) (end uint64) {
	m, _ := r.find(addr)
	return m.end
}

// find finds the mapping that an address is in, if that may be read.
func (r *MemoryReader) find(addr uint64) (m readable, ok bool) {
	if r.last.start <= addr && addr < r.last.end && now()-r.found <= keptForOne {
		return r.last, true
	}
	if m, ok = r.ask(addr); ok {
		r.last, r.found = m, now()
	}
	return m, ok
}

// ask is find for one that was not found just now.
func (r *MemoryReader) ask(addr uint64) (m readable, ok bool) {
	if r.noQuery {
		return r.findInList(addr)
	}
	q, err := mappingAt(r.maps, addr, nil)
	ok = q.isPlain()
	if err == nil && !ok {
		if r.name == nil {
			r.name = make([]byte, unix.PathMax)
		}
		q, err = mappingAt(r.maps, addr, r.name)
		ok = q.mayBeRead(unix.ByteSliceToString(r.name))
	}
	switch {
	case err == unix.ENOTTY:
		r.noQuery = true
		return r.findInList(addr)
	case err != nil || !ok:
		return m, false
	}
	return readable{q.start, q.end, q.inode != 0}, true
}

// findInList is find where the kernel does not tell of one mapping.
func (r *MemoryReader) findInList(addr uint64) (m readable, ok bool) {
	find := func() bool {
		i := sort.Search(len(r.readable), func(i int) bool { return r.readable[i].end > addr })
		if i == len(r.readable) || r.readable[i].start > addr {
			return false
		}
		m = r.readable[i]
		return true
	}
	age := now() - r.scanned
	if age <= keptFor && find() {
		return m, true
	}
	if age <= keptForNone {
		return m, false
	}
	r.readable, r.scanned = r.readable[:0], now()
	if _, err := unix.Seek(r.maps, 0, io.SeekStart); err == nil {
		r.readable = appendReadable(r.readable, &text{r.maps, r.folder + "maps"})
	}
	return m, find()
}

// appendReadable appends the mappings in a maps file that may be read.
func appendReadable(all []readable, maps io.Reader) []readable {
	for q, name := range mappings(maps) {
		if q.isPlain() || q.mayBeRead(name) {
			all = append(all, readable{q.start, q.end, q.inode != 0})
		}
	}
	return all
}

// isPlain reports whether it is memory that may be read, whatever its name: what is not of a file and can be written
// to is no part of the kernel's.
func (q *mappingQuery) isPlain() bool {
	return q.access&(canRead|canWrite|shared) == canRead|canWrite && q.inode == 0
}

// mayBeRead reports whether it is memory that may be read, if it has a name.
func (q *mappingQuery) mayBeRead(name string) bool {
	switch {
	case q.access&canRead == 0 || q.access&(shared|canExecute) == shared:
		return false
	case q.inode != 0:
		return (name[:min(1, len(name))] == "/" || strings.HasPrefix(name, "(unreachable)")) && !IsDevice(name)
	case strings.HasPrefix(name, "[anon:") || strings.HasPrefix(name, "[stack"):
		return true
	}
	return name == "" || name == "[heap]" || name == "[vdso]" // not [vvar]
}

// IsDevice reports whether a file is no memory, and reading it can have effects: a device, or a file of the kernel's.
// Its path is that of a maps file.
func IsDevice(path string) bool {
	for _, memory := range []string{"/dev/shm/", "/dev/hugepages/", "/dev/zero"} {
		if strings.HasPrefix(path, memory) {
			return false
		}
	}
	for _, prefix := range []string{"/dev/", "/sys/", "/proc/", "anon_inode:"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

func now() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return uint64(t.Nano())
}
