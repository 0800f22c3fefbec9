package perfring

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrCorrupt means that the positions of a ring or the size of a record in it are impossible.
var ErrCorrupt = errors.New("corrupt ring")

// ring reads the positions in one ring buffer, and does not interpret the records.
//
// The kernel writes at head, we read from tail. Both count bytes since the beginning and never
// wrap; the place in memory is the position modulo the size, a power of two. What lies between tail
// and head is ours until tail passes it:
//
//	        tail      read             head
//	          │         │                │
//	─ free ── ├─ held ──┼─── unread ─────┤ ── free ─
//	          └ handed out or waiting    └ the kernel's next record
//	            for its time
//
// A record can begin at the end of the memory and continue at its beginning:
//
//	memory    │▓▓▓▓▓▓▓▓░░░░░░░░░░░░░░░▓▓▓▓│
//	          └─ its rest        its start ┘
//
// Only such a record is copied. The memory can't be mapped twice, back to back, to avoid this: the
// kernel refuses to map a part of a perf buffer.
type ring struct {
	data []byte  // the kernel writes between head and tail+len(data) only
	head *uint64 // data_head in the mmap page; the kernel writes it
	tail *uint64 // data_tail in the mmap page; we write it
	read uint64  // position of the first record that next has not returned
	seen uint64  // the head that refresh last read
	free uint64  // the tail that release last wrote
}

// newRing takes the memory of a ring, whose size must be a power of two, and its two positions.
func newRing(data []byte, head, tail *uint64) ring {
	t := atomic.LoadUint64(tail)
	return ring{data: data, head: head, tail: tail, read: t, seen: t, free: t}
}

// refresh reads how far the kernel has written. The atomic load comes before all reads of the data (in
// Go, every atomic load acquires), as smp_rmb() in the protocol at struct perf_event_mmap_page demands.
func (r *ring) refresh() error {
	head := atomic.LoadUint64(r.head)
	if head-r.free > uint64(len(r.data)) || head-r.seen > head-r.free {
		err := fmt.Errorf("%w: head %d, tail %d, size %d", ErrCorrupt, head, r.free, len(r.data))
		r.read, r.seen = head, head
		r.release(head)
		return err
	}
	r.seen = head
	return nil
}

// next returns the position and the size of the next record; ok is false if there is none. After an error
// it skips all records up to the head that was seen.
func (r *ring) next() (pos uint64, size int, ok bool, err error) {
	if r.read == r.seen {
		return 0, 0, false, nil
	}
	pos = r.read
	left := r.seen - pos
	if left >= headerSize {
		// The sizes of records are multiples of 8 bytes, with one exception: the copy of a stack near
		// the end of the address space, as 32-bit programs may have it, is as long as the stack can be
		// there (perf_ustack_task_size, kernel/events/core.c). After such a record, headers can wrap as
		// well.
		mask := uint64(len(r.data) - 1)
		size = int(r.data[(pos+6)&mask]) | int(r.data[(pos+7)&mask])<<8
	}
	if size < headerSize || uint64(size) > left {
		r.read = r.seen
		return 0, 0, false, fmt.Errorf("%w: record of size %d at position %d, %d bytes before the head", ErrCorrupt,
			size, pos, left)
	}
	r.read += uint64(size)
	return pos, size, true, nil
}

// ahead calls fn with the records from a position up to the head, and returns the position behind them. They
// stay unread: next returns them later. An invalid record ends it; next will return the error.
func (r *ring) ahead(from uint64, scratch []byte, fn func(Record)) uint64 {
	peek := *r
	peek.seen = atomic.LoadUint64(r.head)
	if peek.seen-r.free > uint64(len(r.data)) {
		return from
	}
	if peek.read = from; from-r.free > peek.seen-r.free {
		peek.read = r.free // the records up to here were given back to the kernel meanwhile
	}
	for {
		pos, size, ok, _ := peek.next()
		if !ok {
			return peek.read
		}
		fn(r.record(pos, size, scratch))
	}
}

// record returns the record at pos: in place, or put together in scratch (MaxRecordSize bytes) when it
// wraps.
func (r *ring) record(pos uint64, size int, scratch []byte) Record {
	i := int(pos & uint64(len(r.data)-1))
	if i+size <= len(r.data) {
		return Record(r.data[i : i+size : i+size])
	}
	n := copy(scratch, r.data[i:])
	copy(scratch[n:size], r.data)
	return Record(scratch[:size:size])
}

// pressing reports whether a quarter of the ring or more is not given back to the kernel yet.
func (r *ring) pressing() bool { return r.holds(1) }

// halfFull says the same of half of the ring, nearlyFull of three quarters.
func (r *ring) halfFull() bool   { return r.holds(2) }
func (r *ring) nearlyFull() bool { return r.holds(3) }

func (r *ring) holds(quarters int) bool {
	return atomic.LoadUint64(r.head)-r.free >= uint64(len(r.data)/4*quarters)
}

// release gives everything before pos back to the kernel. The atomic store comes after all reads of the
// data (in Go, every atomic store releases), as smp_mb() in the protocol demands.
func (r *ring) release(pos uint64) {
	if pos != r.free {
		r.free = pos
		atomic.StoreUint64(r.tail, pos)
	}
}
