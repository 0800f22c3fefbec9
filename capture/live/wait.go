package live

import (
	"context"
	"errors"
	"runtime"
	"time"

	"unspool/perfring"
)

// wait waits until the rings are to be drained. New mappings wake it, so that files are opened while the
// processes that map them exist.
func (r *recording) wait(ctx context.Context, w *wakeups) error {
	if r.session.SawGaps() {
		r.early.begun = true
	}
	until := time.Now().Add(r.untilDrain())
	if end := r.began.Add(r.Duration); r.Duration > 0 && end.Before(until) {
		until = end
	}
	if at, waits := r.resumes(); waits && at.Before(until) {
		until = at
	}
	if answer := time.Now().Add(perfring.Slack); r.sampling.pinged != 0 && answer.Before(until) {
		until = answer
	}
	for {
		if r.session.HasUnread() {
			return nil
		}
		now := time.Now()
		until = r.early.until(now, until)
		// Adopted events wake for samples as well: for nothing, as long as no files are new.
		hold := until.Sub(now)
		if r.Adopted == nil || w.findsNew(now) {
			hold = min(hold, w.due(now))
		}
		if hold > 0 {
			if err := r.source.Pause(hold); err != nil {
				return err
			}
			w.waited(r.source.Crowded())
		}
		timeout := max(0, time.Until(until))
		if r.source.Pressing() {
			timeout = 0
		}
		if err := r.source.Wait(timeout); err != nil {
			return err
		}
		r.delayed(time.Since(now) - max(0, until.Sub(now)))
		r.source.Peek(r.expect)
		r.session.CommandLines().Read()
		if r.opens {
			r.opens = false
			w.foundNew(time.Now())
			// The files are opened now, as their processes may be about to end. Where none are, this would
			// only wake a thread of the runtime, which would look for work in vain.
			runtime.Gosched()
		}
		if r.source.Pressing() {
			if left := leastDrain - time.Duration(r.source.Now()-r.lastDrain); left > 0 {
				return r.source.Sleep(left)
			}
			return nil
		}
		if !time.Now().Before(until) || r.told() || r.over(ctx) {
			return nil
		}
	}
}

// untilDrain is how long the next drain may wait.
func (r *recording) untilDrain() time.Duration { return r.session.DrainEvery(r.drainEvery()) }

// expect looks at a record before it is taken.
func (r *recording) expect(rec perfring.Record) {
	if r.session.Expect(rec) {
		r.opens = true
	}
	if t := rec.Type(); t == perfring.RecordFork || t == perfring.RecordComm {
		r.early.begun = true
	}
	r.outrunTask(rec)
}

// leastPeek is after how many records the rings are looked at while they are drained.
const leastPeek = 64

// record takes the next record from the rings. Now and then it looks ahead for new mappings, as their
// processes may be about to end.
func (r *recording) record(rec perfring.Record) error {
	if r.untilPeek--; r.untilPeek <= 0 {
		// As rare as there are rings that it goes through, which would else be most of a record's cost.
		r.untilPeek = max(leastPeek, r.source.Rings()/2)
		r.source.Peek(r.expect)
	}
	return r.session.Record(rec)
}

// drained lets the recording continue after a corrupt ring, whose content is lost: the user is told.
func (r *recording) drained(err error) error {
	if errors.Is(err, perfring.ErrCorrupt) {
		r.note(err.Error())
		return nil
	}
	return err
}

func (r *recording) over(ctx context.Context) bool {
	switch {
	case ctx.Err() != nil, r.sampling.stopped, r.opener.gone.Load(), r.Duration > 0 && time.Since(r.began) >= r.Duration:
		return true
	case r.command != nil:
		return r.command.ended()
	}
	return r.source.Done()
}
