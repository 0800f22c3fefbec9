package perfdata

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// from returns a reader of a recording that can be read at any place, from an offset on.
func from(at io.ReaderAt, offset int64) io.Reader {
	if f, ok := at.(*os.File); ok {
		return &blocks{f, offset}
	}
	return io.NewSectionReader(at, offset, 1<<63-1-offset)
}

// blocks reads a file without telling the scheduler. It would take the thread's place away in
// each read of a block, which lasts longer than the 20 µs that it waits for system calls, and look for
// another one afterwards: a fifth of what a conversion costs. A disk may take its time, though, and then
// others of our goroutines wait, too: none has anything else to do.
type blocks struct {
	file   *os.File
	offset int64
}

func (b *blocks) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_PREAD64, b.file.Fd(), uintptr(unsafe.Pointer(&p[0])),
			uintptr(len(p)), uintptr(b.offset), 0, 0)
		runtime.KeepAlive(b.file)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return 0, &os.PathError{Op: "read", Path: b.file.Name(), Err: errno}
		case n == 0:
			return 0, io.EOF
		}
		b.offset += int64(n)
		return int(n), nil
	}
}
