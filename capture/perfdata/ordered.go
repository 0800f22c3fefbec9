package perfdata

import (
	"cmp"
	"io"
	"slices"

	"unspool/perfring"
)

// maxQueue bounds what Ordered keeps back, in bytes, should a recording have no rounds. perf has
// the same limit as an option (--queue-size in MiB, unlimited by default).
const maxQueue = 256 << 20

// queue holds records until their turn comes.
type queue struct {
	items []queued
	arena []byte // their bytes
	spare []byte // the other arena: what remains after a flush moves there
	limit int

	latest uint64 // time in the queue so far
	round  uint64 // latest as it was at the end of the last round
}

type queued struct {
	time   uint64
	at     int
	size   int
	format *perfring.Format
}

// Ordered calls fn with every record in the order of time, as far as the recording tells it: a record is
// kept back until a FINISHED_ROUND says that nothing earlier will come. Records without a time (perf's
// own, and those about what was there before the recording) come as they stand in the
// recording, with the time 0. f is the record's format, and rec is valid during the call only.
// FINISHED_ROUND itself is not delivered.
//
// Without rounds at most 256 MiB are kept back; then the older half is delivered. A record that comes later than
// that allows for, or than its round, is delivered late, not dropped. Records whose ID
// belongs to no event can't be understood: they are left out and counted by [Reader.Unknown].
//
// The error is that of fn, a *DamageError after everything before the damage has been delivered,
// or nil.
func (r *Reader) Ordered(fn func(rec perfring.Record, f *perfring.Format, time uint64) error) error {
	q := queue{limit: maxQueue}
	return r.ordered(&q, fn)
}

// Unknown returns how many records Ordered has left out.
func (r *Reader) Unknown() uint64 { return r.unknown }

func (r *Reader) ordered(q *queue, fn func(perfring.Record, *perfring.Format, uint64) error) error {
	for {
		rec, err := r.Next()
		if err != nil {
			if flushErr := q.flush(len(q.items), fn); flushErr != nil {
				return flushErr
			}
			if err == io.EOF {
				return nil
			}
			return err
		}
		if rec.Type() == perfring.RecordFinishedRound {
			q.sort()
			n, _ := slices.BinarySearchFunc(q.items, q.round, func(i queued, t uint64) int {
				if i.time <= t {
					return -1
				}
				return 1
			})
			if err := q.flush(n, fn); err != nil {
				return err
			}
			q.round = q.latest
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
		q.add(rec, f, time)
		const itemSize = 40
		if len(q.arena)+itemSize*len(q.items) > q.limit {
			if err := q.flush((len(q.items)+1)/2, fn); err != nil {
				return err
			}
		}
	}
}

func (q *queue) add(rec perfring.Record, f *perfring.Format, time uint64) {
	q.items = append(q.items, queued{time, len(q.arena), len(rec), f})
	q.arena = append(q.arena, rec...)
	q.latest = max(q.latest, time)
}

// sort orders the queue by time; records of the same time stay in the order of the recording.
func (q *queue) sort() {
	if !slices.IsSortedFunc(q.items, byTime) {
		slices.SortStableFunc(q.items, byTime)
	}
}

func byTime(a, b queued) int { return cmp.Compare(a.time, b.time) }

// flush delivers the n earliest records.
func (q *queue) flush(n int, fn func(perfring.Record, *perfring.Format, uint64) error) error {
	q.sort()
	for _, i := range q.items[:n] {
		if err := fn(perfring.Record(q.arena[i.at:i.at+i.size:i.at+i.size]), i.format, i.time); err != nil {
			return err
		}
	}
	rest := q.spare[:0]
	items := q.items[:0]
	for _, i := range q.items[n:] {
		at := len(rest)
		rest = append(rest, q.arena[i.at:i.at+i.size]...)
		i.at = at
		items = append(items, i)
	}
	q.items, q.arena, q.spare = items, rest, q.arena
	return nil
}
