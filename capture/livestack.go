package capture

import (
	"bytes"
	"hash/maphash"
	"io"
	"slices"
	"strconv"

	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas/process"
)

// An interruptedStack reads the stack that a signal interrupted whose handler has a stack of its own: only
// the handler's stack is in the sample. It is read when the sample is unwound, up to a tenth of a second
// later, and shows where the thread is then. It counts for the sample if
//   - the thread is seen waiting with SP on the sampled stack, and what the handler does not change (its
//     frame, the signal frame) is the same in the sample and in the process, both before and after the read;
//   - that was so enough times in a row, with samples of the thread in between, and each time the interrupted
//     stack was the same.
//
// The first alone is not enough: two functions that raise a signal in turn can leave the same bytes. The
// second shows that, as the stacks above differ.
type interruptedStack struct {
	processes process.Access

	tid       uint32 // of the current sample
	time      uint64 // when it was taken, CLOCK_MONOTONIC
	base, end uint64 // of its copy of the stack

	seen  [64]sighting // by the remainder of the TID
	seed  maphash.Seed
	bytes []byte // scratch: the process's memory where fixed is
}

// A sighting is what was last seen of a thread that waits in a handler.
type sighting struct {
	pid, tid uint32
	start    uint64 // of the thread, in clock ticks after boot
	fixed    uint64 // hash of what the handler does not change
	above    uint64 // hash of the interrupted stack
	times    int    // how often this was seen, with samples in between
	last     uint64 // when it was seen last
	other    bool   // another stack was seen above the same bytes
}

// enoughSightings is how often an interrupted stack must have been seen. If two stacks alternate, and the
// times of the sightings do not follow theirs, one is seen so often in a row once in 2,048 times.
const enoughSightings = 12

// sampled sets the current sample: its thread, time and stack.
func (i *interruptedStack) sampled(tid uint32, time uint64, stack *unwind.Stack) {
	i.tid, i.time, i.base, i.end = tid, time, stack.Base, stack.Base+uint64(len(stack.Data))
}

// read is for [unwind.Unwinder.Memory].
func (i *interruptedStack) read(pid uint32, fixed unwind.Piece, buf []byte, addr uint64) int {
	start, ok := i.waits(pid, fixed)
	if !ok {
		return 0
	}
	n := i.processes.ReadMemory(pid, buf, addr)
	if again, ok := i.waits(pid, fixed); !ok || again != start || n == 0 {
		return 0
	}
	if !i.note(pid, start, fixed, buf[:n], perfring.Now()) {
		return 0
	}
	return n
}

// saw reports whether any stack was read.
func (i *interruptedStack) saw() bool { return i.seed != maphash.Seed{} }

// note records what was seen of the current thread, and reports whether that is enough to count for the sample.
func (i *interruptedStack) note(pid uint32, start uint64, fixed unwind.Piece, above []byte, now uint64) bool {
	if !i.saw() {
		i.seed = maphash.MakeSeed()
	}
	s := &i.seen[i.tid%uint32(len(i.seen))]
	is := sighting{
		pid: pid, tid: i.tid, start: start, times: 1, last: now,
		fixed: maphash.Bytes(i.seed, fixed.Data) ^ fixed.Addr, above: maphash.Bytes(i.seed, above),
	}
	switch {
	case s.pid != pid || s.tid != i.tid || s.start != start:
		*s = is
	case s.other:
	case s.fixed != is.fixed:
		*s = is
	case s.above != is.above:
		s.other = true
	case i.time > s.last: // it was sampled in between
		s.times++
		s.last = now
	}
	return !s.other && s.times >= enoughSightings
}

// waits reports whether the current thread waits in a system call with SP on the sampled stack, and its memory
// has the bytes of fixed. start is when the thread began.
func (i *interruptedStack) waits(pid uint32, fixed unwind.Piece) (start uint64, ok bool) {
	text, err := i.readText(pid, process.Syscall)
	if err != nil {
		return 0, false
	}
	const deeper = 64 << 10 // it may have called functions since
	sp, ok := waitingSP(text)
	if !ok || sp+deeper < i.base || sp > fixed.Addr {
		return 0, false
	}
	i.bytes = slices.Grow(i.bytes[:0], len(fixed.Data))[:len(fixed.Data)]
	if i.processes.ReadMemory(pid, i.bytes, fixed.Addr) < len(fixed.Data) || !bytes.Equal(i.bytes, fixed.Data) {
		return 0, false
	}
	if text, err = i.readText(pid, process.Stat); err != nil {
		return 0, false
	}
	return startTime(text)
}

// readText reads a file of the current thread in /proc.
func (i *interruptedStack) readText(pid uint32, name process.Text) ([]byte, error) {
	const most = 4096
	text, err := i.processes.Text(pid, i.tid, name, most)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	return io.ReadAll(io.LimitReader(text, most))
}

// startTime reads from /proc/PID/task/TID/stat when the thread began: the 22nd field. The second field, the
// name in brackets, may hold any characters (proc(5)).
func startTime(text []byte) (ticks uint64, ok bool) {
	const behindName = 22 - 2
	_, rest, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if len(fields) < behindName {
		return 0, false
	}
	ticks, err := strconv.ParseUint(string(fields[behindName-1]), 10, 64)
	return ticks, err == nil
}

// waitingSP reads SP from /proc/PID/task/TID/syscall: the last field but one
// (proc(5)). A thread that runs has none.
func waitingSP(text []byte) (sp uint64, ok bool) {
	fields := bytes.Fields(text)
	if len(fields) < 3 {
		return 0, false
	}
	sp, err := strconv.ParseUint(string(fields[len(fields)-2]), 0, 64)
	return sp, err == nil
}
