package syscap

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// An outlet writes frames to a descriptor that somebody else has opened.
//
// A pipe is put into packet mode (pipe(2), O_DIRECT), and each frame is one write. Sysprof takes one frame
// from each read, so that anything that a read returns beyond the first frame waits for the next one, and is
// lost when the recording ends. A frame of more than a packet, PIPE_BUF, arrives in several, which the reader
// puts together.
//
// Writes to a pipe or a socket do not block. What it has no room for waits in a queue, so that the rings are
// drained all the same. What the queue has no room for is left out and counted.
type outlet struct {
	fd      int
	stream  bool // a pipe or a socket; otherwise a file, for which the queue is a buffer
	queue   []byte
	sizes   []int // of the frames in queue; of the first one, what is left of it
	from    int   // where the first one begins
	first   int   // index of its size
	written int64
	dropped uint64 // frames that the queue had no room for
	full    bool   // the pipe had no room when it was last written to
	err     error  // of all further writes
}

const (
	// packet is the size of a packet of a pipe: PIPE_BUF (include/uapi/linux/limits.h).
	packet = 4096
	// pipeSize is what the pipe is asked to hold. In packet mode it holds a packet in each page.
	pipeSize = 1 << 20
	// mostQueued bounds the frames that wait for a reader.
	mostQueued = 32 << 20
	// burst is how many frames are written at a time: half of what a pipe holds.
	burst = 128
	// mostKept is how much memory the queue keeps once it is empty.
	mostKept = 1 << 20
	// fileBuffer is how much is written to a file at a time.
	fileBuffer = 64 << 10
)

// newOutlet prepares a descriptor, which stays the caller's.
func newOutlet(fd int) (*outlet, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("descriptor %d for the capture: %w", fd, err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY || flags&unix.O_PATH != 0 {
		return nil, fmt.Errorf("descriptor %d for the capture is not open for writing", fd)
	}
	o := &outlet{fd: fd}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		o.stream = true
		if set(fd, flags|unix.O_NONBLOCK|unix.O_DIRECT) != nil { // before Linux 3.4
			err = set(fd, flags|unix.O_NONBLOCK)
		}
		// The size is limited by /proc/sys/fs/pipe-max-size, for users without CAP_SYS_RESOURCE.
		for size := pipeSize; size > fileBuffer; size /= 2 {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size); err == nil {
				break
			}
		}
	case unix.S_IFSOCK:
		o.stream = true
		err = set(fd, flags|unix.O_NONBLOCK)
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d for the capture: %w", fd, err)
	}
	return o, nil
}

func set(fd, flags int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	return err
}

// send queues a frame, and writes what is queued once that is much. must means that it is queued in any case.
// The error is that of an earlier write, or of this one.
//
// A reader that sleeps is woken by a write into an empty pipe, which costs more than the rest of it. Frames
// that are written one right after the other wake it once.
func (o *outlet) send(frame []byte, must bool) error {
	if o.err != nil {
		return o.err
	}
	if !o.stream {
		if o.queue = append(o.queue, frame...); len(o.queue) >= fileBuffer {
			return o.pump()
		}
		return nil
	}
	if len(o.queue)-o.from+len(frame) > mostQueued && !must {
		o.dropped++
		return nil
	}
	if o.from > len(o.queue)/2 && len(o.queue)+len(frame) > cap(o.queue) {
		o.queue = o.queue[:copy(o.queue, o.queue[o.from:])]
		o.sizes = o.sizes[:copy(o.sizes, o.sizes[o.first:])]
		o.from, o.first = 0, 0
	}
	o.queue = append(o.queue, frame...)
	o.sizes = append(o.sizes, len(frame))
	if !o.full && len(o.sizes)-o.first >= burst {
		return o.pump()
	}
	return nil
}

// waits reports whether there is something in the queue.
func (o *outlet) waits() bool { return o.from < len(o.queue) }

// pump writes what waits, as far as there is room for it.
func (o *outlet) pump() error {
	o.full = false
	for o.err == nil && o.waits() {
		size := len(o.queue) - o.from
		if o.stream {
			size = o.sizes[o.first]
		}
		n := o.try(o.queue[o.from : o.from+size])
		o.from += n
		if o.stream {
			if o.sizes[o.first] -= n; o.sizes[o.first] > 0 {
				o.full = true
				return o.err
			}
			o.first++
		}
	}
	if !o.waits() {
		o.queue, o.sizes, o.from, o.first = o.queue[:0], o.sizes[:0], 0, 0
		if cap(o.queue) > mostKept {
			o.queue, o.sizes = nil, nil
		}
	}
	return o.err
}

// try writes, and returns how much there was room for.
func (o *outlet) try(b []byte) (n int) {
	for {
		var err error
		if o.stream {
			n, err = sys.Write(o.fd, b)
		} else {
			n, err = unix.Write(o.fd, b)
		}
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN) && o.stream:
			return 0
		case err != nil:
			o.err = fmt.Errorf("write the capture: %w", err)
			return 0
		}
		o.written += int64(n)
		return n
	}
}

// finish writes what waits, for as long as grace at most. What the reader has not taken by then is counted.
func (o *outlet) finish(grace time.Duration) error {
	for until := time.Now().Add(grace); ; {
		if err := o.pump(); err != nil || !o.waits() {
			return err
		}
		left := time.Until(until)
		if left <= 0 {
			o.dropped += uint64(len(o.sizes) - o.first)
			return nil
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
	}
}

// amend writes to a place in a file, if it has places.
func (o *outlet) amend(b []byte, at int64) error {
	if _, err := unix.Pwrite(o.fd, b, at); err != nil && !errors.Is(err, unix.ESPIPE) {
		return fmt.Errorf("write the capture: %w", err)
	}
	return nil
}
