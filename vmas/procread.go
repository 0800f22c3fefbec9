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
	buf   []byte        // nil as long as nothing is read
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

// use reads another proc file system, unless that is nil, until the result is called.
func (p *proc) use(texts process.Texts) (restore func()) {
	before := p.texts
	if texts != nil {
		p.texts = texts
	}
	return func() { p.texts = before }
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

// A mapsText is a maps file that is read a piece at a time.
type mapsText struct {
	text io.ReadCloser
	most int    // bytes to be read; 0 for all
	read int    // bytes so far
	rest []byte // the beginning of a line that goes on in the next piece
	skip bool   // inside a line that is longer than a buffer
}

// errCut means that as many bytes were read as were asked for, and perhaps not all.
var errCut = errors.New("not read to the end")

// next reads a piece into buf and calls fn with each mapping in it; m and its Name are valid during the call.
// It returns the number of mappings, and io.EOF at the end. Lines that make no sense are left out.
func (t *mapsText) next(buf []byte, fn func(m *Map)) (lines int, err error) {
	have := copy(buf, t.rest)
	n, err := t.text.Read(buf[have:])
	if err != nil && err != io.EOF {
		return 0, err
	}
	t.read += n
	cut := t.most > 0 && t.read >= t.most
	data := buf[:have+n]
	var m Map
	for {
		nl := bytes.IndexByte(data, '\n')
		if nl < 0 && (n > 0 || cut) {
			break
		}
		if nl < 0 { // a line without its newline was cut
			return lines, io.EOF
		}
		if !t.skip && parseMapsLine(data[:nl], &m) {
			lines++
			fn(&m)
		}
		t.skip, data = false, data[nl+1:]
	}
	if len(data) == len(buf) {
		data, t.skip = nil, true
	}
	t.rest = append(t.rest[:0], data...)
	switch {
	case cut:
		return lines, errCut
	case t.read >= maxMapsBytes:
		return lines, io.EOF
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
