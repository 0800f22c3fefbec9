package perfring

import (
	"errors"
	"fmt"
)

// slack is how far, in nanoseconds, a record can be out of place: the kernel takes a record's time
// first and its place in the ring after that, and an interrupt may come in between. Some 30 µs were
// seen.
const slack = 1e6

// merger hands out the records of many rings in the order of their times.
//
// A ring is almost sorted. So each is read ahead until a record is more than slack younger than the
// oldest one that waits, and the records read are sorted by insertion, which moves next to nothing.
// The oldest record of all queues is then the oldest of all rings, as far as it is not younger than
// the horizon: what is written from now on is younger than that.
type merger struct {
	format  Format
	queues  []*queue
	heap    []*queue // those with a record waiting; heap[0] has the oldest
	scratch [MaxRecordSize + 1]byte
	last    uint64 // time of the last record handed out
	late    uint64 // records handed out after a younger one
}

// queue is one ring with the records that have been read ahead.
type queue struct {
	ring
	cpu  int // for errors
	last uint64
	// maps says that the records of the ring are those about mappings.
	maps   bool
	peeked uint64 // position behind the last record that was looked at ahead of its time
	told   uint64 // head that was last told of as news

	// held are the records from tail on, in the order of the ring; its front is released once it is
	// done. order are those of them that are not yet handed out, oldest first. Both keep their
	// memory: the used part begins at an index and moves back to the beginning now and then.
	held      []held
	heldFront int
	base      uint64 // number of held[0], counted over the whole life of the queue
	order     []waiting
	front     int
}

type held struct {
	end  uint64 // position behind the record
	done bool
}

type waiting struct {
	time   uint64
	pos    uint64
	number uint64 // of its entry in held
	size   int
}

func newMerger(format Format, rings []ring, cpus []int) *merger {
	m := &merger{format: format}
	for i, r := range rings {
		m.queues = append(m.queues, &queue{ring: r, cpu: cpus[i]})
	}
	m.heap = make([]*queue, 0, len(rings))
	return m
}

// drain hands out what is there and not younger than horizon, in the order of time. The heads of
// the rings must be read after the clock that horizon comes from, which this function does. An
// error of fn ends it; the record counts as consumed. A corrupt ring loses what was in it, and the
// others are drained before its error is returned.
func (m *merger) drain(horizon uint64, fn func(Record) error) error {
	var corrupt error
	note := func(q *queue, err error) {
		if err != nil {
			corrupt = errors.Join(corrupt, fmt.Errorf("ring of CPU %d: %w", q.cpu, err))
		}
	}
	m.heap = m.heap[:0]
	for _, q := range m.queues {
		if err := q.refresh(); err != nil {
			q.forget()
			note(q, err)
		}
		note(q, m.fill(q))
		if q.front < len(q.order) {
			m.heap = append(m.heap, q)
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	for len(m.heap) > 0 {
		q := m.heap[0]
		w := q.order[q.front]
		if w.time > horizon {
			break
		}
		if w.time < m.last {
			m.late++
		}
		m.last = max(m.last, w.time)
		rec := q.record(w.pos, w.size, m.scratch[:])
		var err error
		if !q.maps || !isTask(rec.Type()) {
			err = fn(rec)
		}
		q.front++
		q.done(w.number)
		note(q, m.fill(q))
		if q.front == len(q.order) {
			last := len(m.heap) - 1
			m.heap[0] = m.heap[last]
			m.heap = m.heap[:last]
		}
		m.sink(0)
		if err != nil {
			return err
		}
	}
	return corrupt
}

// isTask says whether a record is about the beginning or the end of a task. Whoever asks for mappings gets these as well
// (perf_event_task_match, kernel/events/core.c): the sampled event has them, too.
func isTask(t RecordType) bool { return t == RecordFork || t == RecordExit }

// fill reads ahead in q, as far as the comment at merger says.
func (m *merger) fill(q *queue) error {
	for q.front == len(q.order) || q.last <= q.order[q.front].time+slack {
		pos, size, ok, err := q.next()
		if !ok {
			if err != nil {
				q.skip()
			}
			return err
		}
		// A record without a time stays behind the one before it.
		t, ok := m.format.Time(q.record(pos, size, m.scratch[:]))
		if !ok {
			t = q.last
		}
		q.push(waiting{time: t, pos: pos, size: size}, pos+uint64(size))
	}
	return nil
}

// push adds a record to q: at the end of held, and where its time belongs in order, behind its equals.
func (q *queue) push(w waiting, end uint64) {
	// Moving less than half would be repeated too soon: growing is cheaper then.
	if len(q.held) == cap(q.held) && q.heldFront > len(q.held)/2 {
		n := copy(q.held, q.held[q.heldFront:])
		q.held = q.held[:n]
		q.base += uint64(q.heldFront)
		q.heldFront = 0
	}
	if len(q.order) == cap(q.order) && q.front > len(q.order)/2 {
		n := copy(q.order, q.order[q.front:])
		q.order = q.order[:n]
		q.front = 0
	}
	w.number = q.base + uint64(len(q.held))
	q.held = append(q.held, held{end: end})
	q.order = append(q.order, w)
	i := len(q.order) - 1
	for ; i > q.front && q.order[i-1].time > w.time; i-- {
		q.order[i] = q.order[i-1]
	}
	q.order[i] = w
	q.last = w.time
}

// done marks a record as consumed and releases the ring up to the first one that is not.
func (q *queue) done(number uint64) {
	q.held[number-q.base].done = true
	for q.heldFront < len(q.held) && q.held[q.heldFront].done {
		q.release(q.held[q.heldFront].end)
		q.heldFront++
	}
	if q.heldFront == len(q.held) {
		q.base += uint64(len(q.held))
		q.held, q.heldFront = q.held[:0], 0
	}
	if q.front == len(q.order) {
		q.order, q.front = q.order[:0], 0
	}
}

// skip accounts for the rest of a corrupt ring, which next has passed over: it is released with the
// record before it.
func (q *queue) skip() {
	if q.heldFront == len(q.held) {
		q.release(q.read)
		return
	}
	q.held[len(q.held)-1].end = q.read
}

// forget drops what waits, after the whole ring was given back.
func (q *queue) forget() {
	q.base += uint64(len(q.held))
	q.held, q.heldFront = q.held[:0], 0
	q.order, q.front = q.order[:0], 0
}

// sink restores the heap after heap[i] became younger. With as many rings as CPUs this is a comparison
// or a few for each record.
func (m *merger) sink(i int) {
	h := m.heap
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c].order[h[c].front].time < h[least].order[h[least].front].time {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
