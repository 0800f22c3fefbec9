package process

import (
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"
)

// A Watcher reads parts of the memory of a process several times, one reading after the other, without
// whoever asked: to be woken up for each of them costs more than reading does.
type Watcher interface {
	// Watch begins to read. It copies the parts.
	Watch(pid uint32, parts []Part, plan Plan) (Watch, error)
}

// A Part is a part of the memory of a process.
type Part struct {
	Start uint64
	Size  int // bytes
}

// A Plan says how often memory is read. With Times 0 it is read once, for nothing but that its pages are
// there afterwards, and no reading is given; nor is a part read then that adjoins one from below that ended
// early, as that may be something else.
type Plan struct {
	Times int
	After time.Duration // to wait before, where others are still reading
	// Apart is the time from one reading to the next in the mean. Each one is left to chance, so that readings
	// are not in step with what a program does every so often.
	Apart time.Duration
}

// Bounds of what is read at once.
const (
	MostParts   = 128
	MostWatched = 1 << 20 // bytes of all parts
	MostTimes   = 64
	MostApart   = 100 * time.Millisecond
	MostAfter   = 200 * time.Millisecond
)

// SlowReading is how long a reading takes after which there is no other one: the memory of this process takes
// its time, as where its pages are in a file.
const SlowReading = 10 * time.Millisecond

// IsValid reports whether parts can be read as planned.
func (p Plan) IsValid(parts []Part) bool {
	for _, part := range parts {
		if part.Size < 0 || part.Size > MostWatched {
			return false
		}
	}
	return len(parts) <= MostParts && Total(parts) <= MostWatched && 0 <= p.Times && p.Times <= MostTimes &&
		0 <= p.Apart && p.Apart <= MostApart && 0 <= p.After && p.After <= MostAfter
}

// Total is how many bytes parts have together.
func Total(parts []Part) (size int) {
	for _, p := range parts {
		size += p.Size
	}
	return size
}

// A Watch is memory that is being read.
type Watch interface {
	// Next gives the next reading that has come, and does not wait for one. Its memory is valid until the next
	// call. over says that no other one will come; then there may be no further call.
	Next() (r Reading, ok, over bool)
}

// A Reading is what was read of the parts, one after the other.
type Reading struct {
	Began, Ended uint64   // CLOCK_MONOTONIC, in ns
	Memory       [][]byte // of each part, as far as it can be read
}

// Observe reads parts as planned, each time into buf, which has room for them all, and gives each reading to
// see, until that returns false, nothing can be read any more, or the plan ends. Meanwhile it sleeps as it is
// told to.
func (d Direct) Observe(pid uint32, parts []Part, plan Plan, buf []byte, sleep func(time.Duration),
	see func(*Reading) bool) {
	memory, err := d.OpenMemory(pid)
	if err != nil {
		return
	}
	defer memory.Close()
	r := Reading{Memory: make([][]byte, len(parts))}
	if plan.Times == 0 {
		memory.touch(parts, buf)
		return
	}
	wait := plan.After
	for range plan.Times {
		sleep(wait + plan.next())
		wait = 0
		if memory.readParts(parts, buf, &r) == 0 || !see(&r) || r.Ended-r.Began >= uint64(SlowReading) {
			return
		}
	}
}

// touch reads parts for their pages.
func (m *MemoryReader) touch(parts []Part, buf []byte) {
	early, below := false, uint64(0) // whether the last part ended early, and where it began
	for _, part := range parts {
		if !early || part.Start+uint64(part.Size) != below {
			early = m.Read(buf[:part.Size], part.Start) < part.Size
		}
		below = part.Start
	}
}

// next is how long to wait for the next reading.
func (p Plan) next() time.Duration {
	return p.Apart/2 + rand.N(p.Apart+1)
}

func (m *MemoryReader) readParts(parts []Part, buf []byte, r *Reading) (read int) {
	r.Began = now()
	for i, part := range parts {
		n := m.Read(buf[:part.Size], part.Start)
		r.Memory[i], buf = buf[:n:n], buf[part.Size:]
		read += n
	}
	r.Ended = now()
	return read
}

func now() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return uint64(t.Nano())
}

// Watch is for [Watcher].
func (d Direct) Watch(pid uint32, parts []Part, plan Plan) (Watch, error) {
	if !plan.IsValid(parts) {
		return nil, unix.EINVAL
	}
	const room = 4 << 20 // bytes of readings that nobody has taken
	total := Total(parts)
	w := make(directWatch, min(plan.Times, room/max(total, 1)))
	parts = append([]Part(nil), parts...)
	go func() {
		defer close(w)
		d.Observe(pid, parts, plan, make([]byte, total), time.Sleep, func(r *Reading) bool {
			select {
			case w <- r.clone():
			default: // those that wait are taken first
			}
			return true
		})
	}()
	return w, nil
}

func (r *Reading) clone() Reading {
	c := Reading{Began: r.Began, Ended: r.Ended, Memory: make([][]byte, len(r.Memory))}
	for i, m := range r.Memory {
		c.Memory[i] = append([]byte(nil), m...)
	}
	return c
}

// A directWatch has readings that were not taken yet.
type directWatch chan Reading

func (w directWatch) Next() (r Reading, ok, over bool) {
	select {
	case r, ok = <-w:
		return r, ok, !ok
	default:
		return r, false, false
	}
}
