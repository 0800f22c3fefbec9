package vmas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"unspool/vmas/process"
)

// proc reads a proc file system, through one buffer.
type proc struct {
	texts process.Texts // nil for none
	buf   []byte
}

const (
	// mapsBuffer holds many lines of maps, and a line as long as one can be: a path of PATH_MAX
	// bytes, each at most four when escaped.
	mapsBuffer = 64 << 10
	// maxMapsBytes bounds one reading of maps: some 400,000 lines.
	maxMapsBytes = 64 << 20
)

// stat reads the stat line of one thread.
func (p *proc) stat(pid, tid uint32, st *stat) error {
	n, err := p.readSmall(pid, tid, process.Stat)
	if err != nil {
		return err
	}
	if !parseStat(p.buf[:n], st) {
		return fmt.Errorf("/proc/%d/task/%d/stat: not a stat line", pid, tid)
	}
	return nil
}

func (p *proc) reserve() {
	if p.buf == nil {
		p.buf = make([]byte, mapsBuffer)
	}
}

// readSmall fills the buffer with the beginning of a file that one read returns.
func (p *proc) readSmall(pid, tid uint32, name process.Text) (int, error) {
	p.reserve()
	text, err := p.texts.Text(pid, tid, name, 0)
	if err != nil {
		return 0, err
	}
	defer text.Close()
	n, err := text.Read(p.buf)
	if err != nil && err != io.EOF {
		return 0, err
	}
	return n, nil
}

// maps calls fn with each mapping in a maps file; m and its Name are valid during the call.
// It returns the number of mappings. Lines that make no sense are left out.
func (p *proc) maps(pid, tid uint32, fn func(m *Map)) (lines int, err error) {
	p.reserve()
	text, err := p.texts.Text(pid, tid, process.Maps, 0)
	if err != nil {
		return 0, err
	}
	defer text.Close()
	var m Map
	have, total := 0, 0
	skip := false // inside a line that is longer than the buffer
	for total < maxMapsBytes {
		n, err := text.Read(p.buf[have:])
		if err != nil && err != io.EOF {
			return lines, err
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

// numbers lists the threads of a process, or all processes for PID 0.
func (p *proc) numbers(pid uint32) ([]uint32, error) {
	all, err := p.texts.Numbers(pid)
	return slices.DeleteFunc(all, func(n uint32) bool { return n == noPID }), err
}

// gone reports whether err says that the process does not exist any more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}
