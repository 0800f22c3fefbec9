package sysprofd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A reader reads frames as Sysprof does: it takes one from each read at most, and the rest stays for the next
// read. It has room for 64 KiB.
type reader struct {
	pipe *os.File
	done chan struct{} // closed when it has ended

	mu      sync.Mutex
	paused  bool
	resume  *sync.Cond
	header  []byte
	frames  []Frame
	backlog int // how many reads ended with a whole frame left, or more
	largest int // of the reads, in bytes
	err     error
}

func newReader(pipe *os.File) *reader {
	r := &reader{pipe: pipe, done: make(chan struct{})}
	r.resume = sync.NewCond(&r.mu)
	go r.run()
	return r
}

const readerSize = 64 << 10

func (r *reader) run() {
	defer close(r.done)
	buf := make([]byte, readerSize)
	for n := 0; ; {
		r.mu.Lock()
		for r.paused {
			r.resume.Wait()
		}
		r.mu.Unlock()
		if n == len(buf) {
			r.fail(errors.New("there is no room left: Sysprof would read nothing any more, for ever"))
			return
		}
		got, err := r.pipe.Read(buf[n:])
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				r.fail(err)
			}
			return
		}
		n += got
		taken, err := r.take(buf[:n], got)
		if err != nil {
			r.fail(err)
			return
		}
		n = copy(buf, buf[taken:n])
	}
}

// take takes the header or a frame from what was read.
func (r *reader) take(b []byte, got int) (taken int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.largest = max(r.largest, got)
	if r.header == nil {
		if len(b) < HeaderSize {
			return 0, fmt.Errorf("%d bytes of a header", len(b))
		}
		r.header = append([]byte(nil), b[:HeaderSize]...)
		taken = HeaderSize
	} else {
		f, size, ok, err := next(b)
		if err != nil || !ok {
			return 0, err
		}
		r.frames = append(r.frames, f)
		taken = size
	}
	if _, _, ok, _ := next(b[taken:]); ok {
		r.backlog++
	}
	return taken, nil
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}
