package image

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// contents reads the code of an image for the goroutine that walks. What is not in the page cache is read by
// a goroutine of the reader, a chunk at a time. A chunk that does not come in time is missed: nothing that
// was concluded without it may be kept.
type contents struct {
	image  *Image
	chunks [16]chunk
	slow   bool // the file system has no RWF_NOWAIT: everything is read as chunks
}

// A chunk is a piece of the file. A new one replaces the one that had its place.
type chunk struct {
	at   int64 // offset in the file
	data []byte
}

const chunkSize = 64 << 10

// errMissed means that a piece of a file was not read in time.
var errMissed = errors.New("not read in time")

func (c *contents) ReadAt(p []byte, off int64) (n int, err error) {
	if s := c.image.source; s == nil || off < 0 || off > s.size {
		return 0, io.EOF
	}
	if s := c.image.source; s.file != nil && !c.slow {
		n, err := s.readNow(p, off)
		if err == nil {
			return n, endOf(n, p)
		}
		c.slow = err != unix.EAGAIN
	}
	for n < len(p) {
		data, err := c.from(off + int64(n))
		if err != nil {
			return n, err
		}
		if len(data) == 0 {
			return n, io.EOF
		}
		n += copy(p[n:], data)
	}
	return n, nil
}

// readCached fills p, and reports whether the page cache has it all.
func (c *contents) readCached(p []byte, off int64) bool {
	s := c.image.source
	switch {
	case s == nil || off < 0 || off > s.size || c.slow:
		return false
	case s.file == nil:
		return copy(p, s.memory[min(off, int64(len(s.memory))):]) == len(p)
	}
	n, err := s.readNow(p, off)
	return err == nil && n == len(p)
}

// endOf is io.EOF if n bytes do not fill p.
func endOf(n int, p []byte) error {
	if n < len(p) {
		return io.EOF
	}
	return nil
}

// from returns what the file has from an offset on, to the end of a chunk.
func (c *contents) from(off int64) ([]byte, error) {
	source := c.image.source
	if source.file == nil {
		return source.memory[min(off, int64(len(source.memory))):], nil
	}
	at := off &^ (chunkSize - 1)
	k := &c.chunks[at/chunkSize%int64(len(c.chunks))]
	if k.data == nil || k.at != at {
		if err := c.read(k, at); err != nil {
			return nil, err
		}
	}
	return k.data[min(off-at, int64(len(k.data))):], nil
}

// read reads the chunk at an offset into k, in place of the one there.
func (c *contents) read(k *chunk, at int64) error {
	s := c.image.store
	if c.image.misses() {
		return errMissed // one read at a time
	}
	buf := k.data
	if buf == nil {
		if !s.code.take(chunkSize) {
			return errTooLarge
		}
		buf = make([]byte, chunkSize)
	}
	k.data = nil // a late job may still write to it
	source := c.image.source
	var n int
	t := newTask(func() error {
		var err error
		n, err = source.ReadAt(buf[:chunkSize], at)
		return err
	}, nil)
	t.concerns(source)
	came := c.image.wait(&t.job)
	if !came || errors.Is(t.result, errClosed) {
		s.code.give(chunkSize)
	}
	switch {
	case !came:
		return errMissed
	case errors.Is(t.result, errClosed):
		return c.image.spoil(t.result)
	}
	k.at, k.data = at, buf[:n]
	return nil
}

// forget gives the memory back to the quota.
func (c *contents) forget() {
	for i := range c.chunks {
		if c.chunks[i].data != nil {
			c.image.store.code.give(chunkSize)
		}
	}
	c.chunks = [len(c.chunks)]chunk{}
}
