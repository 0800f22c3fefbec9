package perfdata

import (
	"io"
	"slices"

	"unspool/perfring"
)

// maxQueue bounds how many bytes of records Ordered keeps back if a recording has no rounds. perf has such
// a limit as an option (--queue-size in MiB, unlimited by default).
const maxQueue = 256 << 20

// queue holds records until their turn comes.
type queue struct {
	items []queued
	limit int
	held  int // bytes of the records

	unsorted bool     // items may be out of order
	spare    []queued // scratch: of sort

	latest uint64 // time in the queue so far
	round  uint64 // latest as it was at the end of the last round
}

type queued struct {
	time   uint64
	rec    perfring.Record
	block  *block // the block that rec is in; nil if rec was copied
	format *perfring.SampleFormat
}

// Ordered calls fn with every record in the order of time, as far as the recording allows: a record is kept
// back until a FINISHED_ROUND says that no earlier one will come. Records without a time (perf's own, and
// those about the time before the recording) are delivered in the order of the recording, with the time 0. f
// is the record's format. rec is valid during the call only. FINISHED_ROUND itself is delivered after the
// records that it releases. The files of a directory have no rounds, but each is nearly in order: they are
// merged, and rounds come from that.
//
// Without rounds at most 256 MiB are kept back; then the older half is delivered. A record that comes after
// later ones were delivered is still delivered, and not dropped. Records whose ID belongs to no event cannot
// be decoded: they are left out and counted by [Reader.Unknown].
//
// The error is that of fn, or the one of [Reader.Next] at damage, after everything before the damage has been
// delivered, or nil.
func (r *Reader) Ordered(fn func(rec perfring.Record, f *perfring.SampleFormat, time uint64) error) error {
	q := queue{limit: maxQueue}
	return r.ordered(&q, fn)
}

// RecordRef is a record's reference to the memory that it is in.
type RecordRef struct{ block *block }

// Keep keeps the record that Ordered's fn is called with: the record that it returns stays valid until
// Release is called with the second result. Both belong to the goroutine of Ordered.
func (r *Reader) Keep(rec perfring.Record) (perfring.Record, RecordRef) {
	switch {
	case r.inHand != nil && r.inHand.block == nil: // a copy
		return rec, RecordRef{}
	case r.copies():
		return append(perfring.Record(nil), rec...), RecordRef{}
	case r.inHand == nil:
		return rec, RecordRef{r.data.hold()}
	}
	r.inHand.block.holds++
	return rec, RecordRef{r.inHand.block}
}

// copies reports whether records that are kept are copied. If blocks are held, each may be for one short record.
func (r *Reader) copies() bool {
	return r.zstd != nil && r.zstd.inUse || r.data.pool.isCrowded()
}

// Release gives up a record that was kept.
func (r *Reader) Release(k RecordRef) {
	if k.block != nil {
		r.data.release(k.block)
	}
}

// Unknown returns how many records Ordered has left out.
func (r *Reader) Unknown() uint64 { return r.unknown }

func (r *Reader) ordered(q *queue, fn func(perfring.Record, *perfring.SampleFormat, uint64) error) error {
	for {
		if r.inputs != nil {
			if err := r.takeTurns(q, fn); err != nil {
				return err
			}
		}
		rec, err := r.Next()
		if err != nil {
			if flushErr := r.flush(q, len(q.items), fn); flushErr != nil {
				return flushErr
			}
			if err == io.EOF {
				return nil
			}
			return err
		}
		if rec.Type() == perfring.RecordFinishedRound {
			if r.inputs == nil {
				if err := r.finishRound(q, q.latest, fn); err != nil {
					return err
				}
			}
			continue
		}
		f := r.Format(rec)
		if f == nil {
			r.unknown++
			continue
		}
		time, ok := f.Time(rec)
		if !ok || time == 0 || time == 1<<64-1 {
			if err := fn(rec, f, 0); err != nil {
				return err
			}
			continue
		}
		r.latest = max(r.latest, time)
		q.add(r.keep(rec, f, time))
		const itemSize = 2 * 56 * 5 / 4 // with the room to grow, and for sorting
		if q.held+itemSize*len(q.items) > q.limit {
			if err := r.flush(q, (len(q.items)+1)/2, fn); err != nil {
				return err
			}
		}
	}
}

// finishRound delivers the records up to the time that the last round ended with, and a FINISHED_ROUND; next is
// the time for the round that follows.
func (r *Reader) finishRound(q *queue, next uint64,
	fn func(perfring.Record, *perfring.SampleFormat, uint64) error) error {
	q.sort()
	n, _ := slices.BinarySearchFunc(q.items, q.round, func(i queued, t uint64) int {
		if i.time <= t {
			return -1
		}
		return 1
	})
	if err := r.flush(q, n, fn); err != nil {
		return err
	}
	q.round = next
	if len(r.formats) == 0 {
		return nil
	}
	return fn(finishedRound, &r.formats[0], 0)
}

var finishedRound = perfring.Record(appendHeader(nil, perfring.RecordFinishedRound, 0, recordHeader))

// keep makes an item of the record that was returned last.
func (r *Reader) keep(rec perfring.Record, f *perfring.SampleFormat, time uint64) queued {
	if r.copies() {
		return queued{time, append(perfring.Record(nil), rec...), nil, f}
	}
	return queued{time, rec, r.data.hold(), f}
}

func (q *queue) add(i queued) {
	if n := len(q.items); n > 0 && i.time < q.items[n-1].time {
		q.unsorted = true
	}
	q.items = append(q.items, i)
	q.held += len(i.rec)
	q.latest = max(q.latest, i.time)
}

// sort orders the queue by time; records of the same time stay in the order of the recording. What comes from
// one ring is in order: there are few runs, of which pairs are merged until one is left.
func (q *queue) sort() {
	if !q.unsorted {
		return
	}
	for runs := 2; runs > 1; {
		q.spare, runs = mergePairs(q.spare[:0], q.items)
		q.items, q.spare = q.spare, q.items
	}
	clear(q.spare) // which would keep records alive
	q.unsorted = false
}

// mergePairs appends what items have, each run of them that is in order merged with the next one, and
// says how many runs that makes.
func mergePairs(to, items []queued) (_ []queued, runs int) {
	for len(items) > 0 {
		a := inOrder(items)
		b := inOrder(items[a:])
		to = merge(to, items[:a], items[a:a+b])
		items = items[a+b:]
		runs++
	}
	return to, runs
}

// inOrder returns how many items the first run has.
func inOrder(items []queued) int {
	n := min(1, len(items))
	for n < len(items) && items[n-1].time <= items[n].time {
		n++
	}
	return n
}

// merge appends two runs, in order; those of a go first where times are the same.
func merge(to, a, b []queued) []queued {
	for len(a) > 0 && len(b) > 0 {
		n := 0
		for n < len(a) && a[n].time <= b[0].time {
			n++
		}
		to, a = append(to, a[:n]...), a[n:]
		n = 0
		for len(a) > 0 && n < len(b) && b[n].time < a[0].time {
			n++
		}
		to, b = append(to, b[:n]...), b[n:]
	}
	return append(append(to, a...), b...)
}

// flush delivers the n earliest records.
func (r *Reader) flush(q *queue, n int, fn func(perfring.Record, *perfring.SampleFormat, uint64) error) error {
	q.sort()
	for k := range q.items[:n] {
		i := &q.items[k]
		r.inHand = i
		err := fn(i.rec, i.format, i.time)
		r.inHand = nil
		if err != nil {
			return err
		}
		q.held -= len(i.rec)
		if i.block != nil {
			r.data.release(i.block)
		}
	}
	kept := copy(q.items, q.items[n:])
	clear(q.items[kept:])
	q.items = q.items[:kept]
	return nil
}
