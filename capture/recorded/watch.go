package recorded

import (
	"context"
	"time"

	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/perfring"
)

// Walk unwinds a recording as [Convert] does and hands it to a watcher instead of a file. A sample whose user
// stack was unwound has a Result; a sample that has a callchain and no raw stack is handed on without one.
// If [errors.As] finds a *[perfdata.DamageError] in the error, what came before the damage has been handed on.
func Walk(ctx context.Context, o Options, to session.Watcher) (counts.Stats, error) {
	if err := o.Check(); err != nil {
		return counts.Stats{}, err
	}
	r, err := openInput(ctx, o.Input)
	if err != nil {
		return counts.Stats{}, err
	}
	defer r.Close()
	defer context.AfterFunc(ctx, r.Stop)()
	c := &conversion{Options: o, stop: ctx.Done(), reader: r, began: time.Now()}
	c.report = c.began.Add(counts.ProgressEvery)
	w := &watched{c: c, to: to}
	err = r.Ordered(w.record)
	if c.own == nil {
		return w.stats(), err
	}
	if ferr := c.own.session.Flush(); err == nil {
		err = ferr
	}
	if err == nil {
		err = r.FeatureDamage()
	}
	return w.stats(), err
}

// watched is a recording that [Walk] goes through.
type watched struct {
	c      *conversion
	to     session.Watcher
	walked perfdata.Walked
	sample perfring.Sample
}

func (w *watched) stats() counts.Stats {
	if w.c.own == nil {
		return counts.Stats{}
	}
	return w.c.own.session.Counted()
}

// begin makes the session. The events of a pipe are known when its first record comes.
func (w *watched) begin() error {
	c := w.c
	if err := checkArch(c.Input, c.reader); err != nil {
		return err
	}
	c.files = c.offline()
	c.own = new(lane)
	c.prepare(c.own, w.to)
	w.to.Begin(c.own.session)
	return nil
}

// record takes the next record.
func (w *watched) record(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
	if w.c.own == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	s := w.c.own.session
	if w.c.records++; w.c.records%1024 == 0 {
		read, total := w.c.reader.Position()
		w.c.tell(s.Counted, read, total)
	}
	if rec.Type() != perfring.RecordSample || f.HasUser() {
		return s.RecordAs(rec, f)
	}
	if err := f.Sample(rec, &w.sample); err != nil {
		s.Stats.Malformed++
		return nil
	}
	s.Stats.Samples++
	chain := w.walked.Chain[:0]
	for i := range w.sample.Callchain.Len() {
		chain = append(chain, w.sample.Callchain.At(i))
	}
	w.walked = perfdata.Walked{Record: rec, Format: f, Sample: &w.sample, Chain: chain}
	return w.to.WriteSample(&w.walked)
}
