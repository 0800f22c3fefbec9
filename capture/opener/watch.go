package opener

import (
	"encoding/binary"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/perfring"
	"unspool/vmas/process"
)

// Memory that is read several times is asked for with one request, and each reading is sent when it has been
// made, in pieces with its beginning: first when it ended, then how many bytes of each part were read, and
// then these. The answer ends with an empty message.
//
// Nobody waits for a reading: it stays in the socket until whoever asked looks for it.

const (
	partSize = 2 * 8 // of a part in a request
	// watchRoom is how many bytes of readings a socket has room for. Others are left out until some were taken.
	watchRoom = 1 << 20
)

// watchRequest is the request for parts of the memory of a process.
func watchRequest(pid uint32, parts []process.Part, plan process.Plan) request {
	r := request{op: watchMemory, pid: pid, tid: uint32(plan.After / time.Microsecond),
		start: uint64(plan.Times), end: uint64(plan.Apart)}
	for _, p := range parts {
		r.text = binary.LittleEndian.AppendUint64(r.text, p.Start)
		r.text = binary.LittleEndian.AppendUint64(r.text, uint64(p.Size))
	}
	return r
}

// parseWatch is what such a request asks for.
func parseWatch(r *request) (parts []process.Part, plan process.Plan, err error) {
	if len(r.text)%partSize != 0 || r.start > process.MostTimes || r.end > uint64(process.MostApart) {
		return nil, plan, unix.EINVAL
	}
	plan = process.Plan{Times: int(r.start), After: time.Duration(r.tid) * time.Microsecond,
		Apart: time.Duration(r.end)}
	for b := r.text; len(b) > 0; b = b[partSize:] {
		size := binary.LittleEndian.Uint64(b[8:])
		if size > process.MostWatched {
			return nil, plan, unix.EINVAL
		}
		parts = append(parts, process.Part{Start: binary.LittleEndian.Uint64(b), Size: int(size)})
	}
	if !plan.IsValid(parts) {
		return nil, plan, unix.EINVAL
	}
	return parts, plan, nil
}

// watch reads memory several times, and sends each reading.
func (l *listener) watch(r *request) {
	parts, plan, err := parseWatch(r)
	if err == nil {
		head, total := readingHead(len(parts)), process.Total(parts)
		if cap(l.reading) < head+total {
			l.reading = make([]byte, head+total)
		}
		l.reading = l.reading[:head+total]
		l.processes.Observe(r.pid, parts, plan, l.reading[head:], sleep,
			func(rd *process.Reading) bool { return l.send(rd, packReading(l.reading, rd)) })
	}
	l.bytes(nil, err)
}

// sleep sleeps without Go's scheduler: that and the runtime's monitor look around some twenty times for each
// timer, which takes several times as long as a reading. The rest of the opener has other processors.
func sleep(d time.Duration) {
	at := unix.NsecToTimespec(int64(perfring.Now()) + int64(d))
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&at)), 0, 0, 0)
		if errno != unix.EINTR {
			return
		}
		runtime.Gosched() // the scheduler asks for it so
	}
}

func readingHead(parts int) int { return 8 + 4*parts }

// packReading makes one message of a reading, whose memory is in all, in order, behind room for the head.
func packReading(all []byte, rd *process.Reading) []byte {
	binary.LittleEndian.PutUint64(all, rd.Ended)
	n := readingHead(len(rd.Memory))
	for i, m := range rd.Memory {
		binary.LittleEndian.PutUint32(all[8+4*i:], uint32(len(m)))
		n += copy(all[n:], m) // over what could not be read before it, if anything
	}
	return all[:n]
}

// unpackReading is packReading undone. memory has room for that of each part, and is used for it.
func unpackReading(all []byte, memory [][]byte) (rd process.Reading, err error) {
	head := readingHead(len(memory))
	if len(all) < head {
		return rd, errMessage
	}
	rest := all[head:]
	for i := range memory {
		n := uint64(binary.LittleEndian.Uint32(all[8+4*i:]))
		if n > uint64(len(rest)) {
			return rd, errMessage
		}
		memory[i], rest = rest[:n:n], rest[n:]
	}
	if len(rest) > 0 {
		return rd, errMessage
	}
	return process.Reading{Ended: binary.LittleEndian.Uint64(all), Memory: memory}, nil
}

// send sends a reading in pieces, and reports whether others are wanted. It leaves out one for which there is no
// room: those that wait would be too old before it could be sent.
func (l *listener) send(rd *process.Reading, all []byte) bool {
	if !l.hasRoom(len(all)) {
		return true
	}
	for {
		n := min(len(all), pieceSize)
		a := answer{value: rd.Began, more: anotherPiece, bytes: all[:n], fd: -1}
		if all = all[n:]; len(all) == 0 {
			a.more = anotherReading
		}
		l.message = a.append(l.message[:0])
		if sendMessage(l.socket, l.message, nil) != nil {
			return false
		}
		if len(all) == 0 {
			return true
		}
	}
}

// hasRoom reports whether so many bytes can be sent without waiting, or nothing waits to be received.
func (l *listener) hasRoom(size int) bool {
	waits := int32(0)
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(l.socket), unix.SIOCOUTQ,
		uintptr(unsafe.Pointer(&waits)))
	if errno != 0 || waits == 0 {
		return true
	}
	overhead := size/4 + pieceSize/4 // of the kernel
	return int(waits)+size+overhead <= l.room
}

// A watch is memory that the opener reads.
type watch struct {
	lines  *lines
	line   *line
	all    []byte // what has come of the next reading
	memory [][]byte
}

// Watch is for [process.Watcher].
func (c *Client) Watch(pid uint32, parts []process.Part, plan process.Plan) (process.Watch, error) {
	if !plan.IsValid(parts) {
		return nil, unix.EINVAL
	}
	l, err := c.watches.take()
	if err != nil {
		return nil, err
	}
	r := watchRequest(pid, parts, plan)
	if err := l.send(&r, -1); err != nil {
		defer c.watches.giveBack(l)
		return nil, c.watches.fail(err)
	}
	return &watch{lines: c.watches, line: l, memory: make([][]byte, len(parts))}, nil
}

// Next is for [process.Watch].
func (w *watch) Next() (rd process.Reading, ok, over bool) {
	for {
		a, err := w.line.now()
		if err == errWaiting {
			return rd, false, false
		}
		if err == nil && a.more == 0 {
			w.lines.giveBack(w.line)
			return rd, false, true
		}
		if err == nil && len(w.all)+len(a.bytes) > readingHead(len(w.memory))+process.MostWatched {
			err = errMessage
		}
		if err == nil {
			w.all = append(w.all, a.bytes...)
			if a.more != anotherReading {
				continue
			}
			rd, err = unpackReading(w.all, w.memory)
			w.all, rd.Began = w.all[:0], a.value
		}
		if err != nil {
			_ = w.lines.fail(err)
			w.lines.giveBack(w.line)
			return rd, false, true
		}
		return rd, true, false
	}
}

// now receives a message if there is one.
func (l *line) now() (a answer, err error) {
	l.makeRoom()
	n, controls, err := receiveNow(l.socket, l.buf, l.control[:])
	switch {
	case err != nil:
		return a, err
	case n == 0:
		return a, ErrEnded
	}
	closeFD(receiveRights(l.control[:controls]))
	if a, err = parseAnswer(l.buf[:n]); err == nil && a.errno != 0 {
		a.more = 0
	}
	return a, err
}
