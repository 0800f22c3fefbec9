package vmas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// proc reads a proc file system, through one buffer.
type proc struct {
	root string
	buf  []byte
}

const (
	// mapsBuffer holds many lines of maps, and a line as long as one can be: a path of PATH_MAX
	// bytes, each at most four when escaped.
	mapsBuffer = 64 << 10
	// maxMapsBytes bounds one reading of maps: some 400,000 lines.
	maxMapsBytes = 64 << 20
)

func (p *proc) path(pid uint32, parts ...string) string {
	b := make([]byte, 0, 64)
	b = append(b, p.root...)
	b = append(b, '/')
	b = strconv.AppendUint(b, uint64(pid), 10)
	for _, s := range parts {
		b = append(b, '/')
		b = append(b, s...)
	}
	return string(b)
}

// stat reads the stat line of one thread.
func (p *proc) stat(pid uint32, tid string, st *stat) error {
	path := p.path(pid, "task", tid, "stat")
	n, err := p.readSmall(path)
	if err != nil {
		return err
	}
	if !parseStat(p.buf[:n], st) {
		return fmt.Errorf("%s: not a stat line", path)
	}
	return nil
}

func (p *proc) open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

func read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// readSmall fills the buffer with the beginning of a file that one read returns.
func (p *proc) readSmall(path string) (int, error) {
	if p.buf == nil {
		p.buf = make([]byte, mapsBuffer)
	}
	fd, err := p.open(path)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	n, err := read(fd, p.buf)
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return n, nil
}

// maps calls fn with each mapping in a maps file; m and its Name are valid during the call.
// It returns the number of mappings. Lines that make no sense are left out.
func (p *proc) maps(path string, fn func(m *Map)) (lines int, err error) {
	if p.buf == nil {
		p.buf = make([]byte, mapsBuffer)
	}
	fd, err := p.open(path)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var m Map
	have, total := 0, 0
	skip := false // in a line longer than the buffer
	for total < maxMapsBytes {
		n, err := read(fd, p.buf[have:])
		if err != nil {
			return lines, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		total += n
		data := p.buf[:have+n]
		for {
			nl := bytes.IndexByte(data, '\n')
			if nl < 0 {
				if n > 0 {
					break
				}
				nl = len(data) // the last line, without its newline
			}
			if !skip && parseMapsLine(data[:nl], &m) {
				lines++
				fn(&m)
			}
			skip = false
			if nl == len(data) {
				return lines, nil
			}
			data = data[nl+1:]
		}
		have = copy(p.buf, data)
		if have == len(p.buf) {
			have, skip = 0, true
		}
	}
	return lines, nil
}

// numbers calls fn with each name in a directory that is a PID, and its number.
func (p *proc) numbers(path string, fn func(n uint32, name string)) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			if n, err := strconv.ParseUint(name, 10, 32); err == nil && uint32(n) != noPID {
				fn(uint32(n), name)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// gone reports whether err says that the process is no more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}
