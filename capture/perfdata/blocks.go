package perfdata

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// from returns a reader that reads a recording from an offset on.
func from(at io.ReaderAt, offset int64) io.Reader {
	if f, ok := at.(*os.File); ok {
		return &blocks{f, offset}
	}
	return io.NewSectionReader(at, offset, 1<<63-1-offset)
}

// blocks reads a file by raw calls, though reading a block takes longer than the 20 µs that Go's scheduler waits for a
// system call: it would take the processor from the thread, which would have to find another one afterwards. This would
// be a fifth of the time of a conversion. While a slow disk is read, other goroutines of the program wait as well, but
// they have nothing else to do.
type blocks struct {
	file   *os.File
	offset int64
}

func (b *blocks) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := sys.Pread(int(b.file.Fd()), p, b.offset)
		runtime.KeepAlive(b.file)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, &os.PathError{Op: "read", Path: b.file.Name(), Err: err}
		case n == 0:
			return 0, io.EOF
		}
		b.offset += int64(n)
		return n, nil
	}
}
