package perfring

import (
	"errors"
	"fmt"
)

// Slack is how many nanoseconds a record in a ring can be older than one before it: the kernel first takes
// the time of a record and then its place in the ring, and an interrupt may come in between. About 30 µs
// were seen.
const Slack = 1e6

// merger hands out the records of many rings in the order of their times.
//
// A ring is almost sorted. So each ring is read ahead until a record is more than Slack younger than the
// oldest one that waits, and the records read are sorted by insertion, which moves hardly any. The oldest
// record of all queues is then the oldest of all rings, if it is not younger than the horizon: every
// record that is written from now on is younger than the horizon.
type merger struct {
	format  SampleFormat
	queues  []*queue
	heap    []*queue // those with a record waiting; heap[0] has the oldest
	scratch [MaxRecordSize + 1]byte
	last    uint64 // time of the last record handed out
	from    *queue // which it is from
	late    uint64 // records handed out after a younger one
	now     func() (uint64, error)
	newest  uint64 // time that has come, as far as it was asked for
	filling filling
}

// queue is one ring with the records that have been read ahead.
type queue struct {
	ring
	cpu  int // for errors
	last uint64
	// sideBand means that the ring has all records but samples.
	sideBand bool
	// ofSamples means that it has no records that tell of processes.
	ofSamples bool
	peeked    uint64 // position behind the last record that was looked at ahead of its time, by Source.Peek
	glanced   uint64 // the same by Source.Glance
	reported  uint64 // the head that Source.news last reported

	// held are the records from tail on, in the order of the ring; the first ones are released once they
	// are consumed. order are those of them that are not yet handed out, oldest first. Both slices keep
	// their memory: the used part starts at an index, and is moved to the beginning now and then.
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

func newMerger(format SampleFormat, rings []ring, cpus []int) *merger {
	m := &merger{format: format, from: new(queue), filling: filling{quarter: firstQuarter}}
	for i, r := range rings {
		m.add(r, cpus[i], false)
	}
	m.heap = make([]*queue, 0, len(rings))
	return m
}

// add adds a ring. It must not be called during a drain.
func (m *merger) add(r ring, cpu int, sideBand bool) {
	m.queues = append(m.queues, &queue{ring: r, cpu: cpu, sideBand: sideBand, ofSamples: !sideBand})
}

// drain hands out the records that are not younger than horizon, in the order of time. The caller has
// read the clock for horizon before the call, as the heads of the rings must be read after it. An error
// of fn ends drain; that record counts as consumed. The records in a corrupt ring are lost, and the other
// rings are drained before its error is returned.
func (m *merger) drain(horizon uint64, fn func(Record) error) error {
	var corrupt error
	note := func(q *queue, err error) {
		if err != nil {
			corrupt = errors.Join(corrupt, fmt.Errorf("ring of CPU %d: %w", q.cpu, err))
		}
	}
	m.heap = m.heap[:0]
	grown := 0.0
	for _, q := range m.queues {
		seen := q.seen
		if err := q.refresh(); err != nil {
			q.forget()
			note(q, err)
		} else {
			grown = max(grown, float64(q.seen-seen)/float64(len(q.data)))
		}
		note(q, m.fill(q))
		if q.front < len(q.order) {
			m.heap = append(m.heap, q)
		}
	}
	m.filling.drained(m.newest, grown)
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
		m.from = q
		rec := q.record(w.pos, w.size, m.scratch[:])
		err := fn(rec)
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

// fill reads ahead in q as far as is said at merger.
func (m *merger) fill(q *queue) error {
	for q.front == len(q.order) || q.last <= q.order[q.front].time+Slack {
		pos, size, ok, err := q.next()
		if !ok {
			if err != nil {
				q.skip()
			}
			return err
		}
		// A record without a time stays behind the one before it.
		t, ok := m.format.Time(q.record(pos, size, m.scratch[:]))
		if !ok || m.isAhead(t) {
			t = q.last
		}
		q.push(waiting{time: t, pos: pos, size: size}, pos+uint64(size))
	}
	return nil
}

// isAhead reports whether a time has not come yet. It is none then, and to wait for it would keep all that
// follows in the ring.
func (m *merger) isAhead(t uint64) bool {
	if t <= m.newest || m.now == nil {
		return false
	}
	now, err := m.now()
	if err != nil {
		return false
	}
	m.newest = now + Slack
	return t > m.newest
}

// push adds a record to q: at the end of held, and in order by its time, behind records of the same time.
func (q *queue) push(w waiting, end uint64) {
	// Moving is worth while if it frees half of the memory or more: else growing is cheaper.
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

// skip accounts for the rest of a corrupt ring, which ring.next has skipped: it is released together
// with the record before it.
func (q *queue) skip() {
	if q.heldFront == len(q.held) {
		q.release(q.read)
		return
	}
	q.held[len(q.held)-1].end = q.read
}

// forget drops the records that wait, after the whole ring was given back to the kernel.
func (q *queue) forget() {
	q.base += uint64(len(q.held))
	q.held, q.heldFront = q.held[:0], 0
	q.order, q.front = q.order[:0], 0
}

// sink restores the heap after heap[i] became younger. There are two rings for each CPU, so this takes
// only a few comparisons for each record.
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
