package session

import (
	"errors"

	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/perfring"
)

// NewCounter returns a sink that counts samples where they leave, on their way to another sink: nothing changes them
// any more.
func NewCounter(to Sink, stats *counts.Stats, trouble *counts.Trouble) Sink {
	return &counter{to, stats, trouble}
}

type counter struct {
	sink    Sink
	stats   *counts.Stats
	trouble *counts.Trouble
}

// Write hands a record on that is no sample.
func (c *counter) Write(rec []byte) error { return c.sink.Write(rec) }

// WriteSample counts a sample, and hands it on.
func (c *counter) WriteSample(w *perfdata.Walked) error {
	if w.Result != nil {
		c.stats.Walked(w)
		c.trouble.NoteEnd(w.Result.End, w.Place)
	}
	err := c.sink.WriteSample(w)
	if errors.Is(err, perfring.ErrTooLarge) {
		c.stats.Malformed++
		return nil
	}
	return err
}
