package output

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// devices are the devices that can be written to by their names, as they store nothing.
var devices = map[string]uint64{
	"/dev/null": unix.Mkdev(1, 3), // Documentation/admin-guide/devices.txt
	"/dev/full": unix.Mkdev(1, 7),
}

// Stdout reports whether a path names standard output.
func Stdout(path string) bool {
	n, ok := descriptor(path)
	return path == "-" || ok && n == 1
}

// descriptor is the number of our own descriptor that a path names.
func descriptor(path string) (n int, ok bool) {
	switch path = filepath.Clean(path); path {
	case "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, folder := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if digits, ok := strings.CutPrefix(path, folder); ok {
			n, err := strconv.ParseUint(digits, 10, 31)
			return int(n), err == nil
		}
	}
	return 0, false
}

// openStream opens a stream; nil if path does not name one.
func openStream(path string) (*os.File, error) {
	if path == "-" {
		return os.Stdout, nil
	}
	if n, ok := descriptor(path); ok {
		return duplicate(n, path)
	}
	if number, ok := devices[filepath.Clean(path)]; ok {
		return openDevice(path, number)
	}
	return nil, nil
}

func duplicate(n int, path string) (*os.File, error) {
	flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFL, 0)
	const advice = "have the shell open it, as in"
	if err != nil || flags&unix.O_PATH != 0 {
		return nil, refuse("%s: descriptor %d is not open: %s %d>FILE", path, n, advice, n)
	}
	if flags&unix.O_ACCMODE == unix.O_RDONLY {
		return nil, refuse("%s: descriptor %d is open for reading only: %s %d>FILE", path, n, advice, n)
	}
	fd, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openDevice(path string, number uint64) (*os.File, error) {
	// With these flags, open does not wait for the reader of a FIFO, and no terminal becomes that of this
	// process.
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil || st.Mode()&fs.ModeCharDevice == 0 || st.Sys().(*syscall.Stat_t).Rdev != number {
		f.Close()
		return nil, refuse("%s is not the device of that name: name another file", path)
	}
	return f, nil
}
