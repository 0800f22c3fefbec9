package live

import (
	"fmt"
	"sync/atomic"
	"time"

	"unspool/capture/live/control"
	"unspool/perfring"
)

// sampling is when a recording takes samples: not before the delay is over, and not while it is told not to.
// The mappings of processes are followed all the time.
type sampling struct {
	waits     bool        // for the end of the delay
	stopped   bool        // the recording was told to end
	commanded atomic.Bool // there is a command
	pinged    uint64      // when a ping was read that is not acknowledged yet, by [perfring.Source.Now]; or 0
}

// beginSampling begins to wait for the end of the delay, and for commands.
func (r *recording) beginSampling() {
	r.sampling.waits = r.Delay > 0
	if r.Control != nil {
		r.Control.Start(func() {
			r.sampling.commanded.Store(true)
			r.source.Wake()
		})
	}
}

// resumes is when the delay is over, false if there is none to wait for.
func (r *recording) resumes() (time.Time, bool) { return r.began.Add(r.Delay), r.sampling.waits }

// told reports whether there is something to do for switchSampling: not while a ping waits for its answer.
func (r *recording) told() bool {
	at, waits := r.resumes()
	return r.sampling.pinged == 0 && r.sampling.commanded.Load() || waits && !time.Now().Before(at)
}

// switchSampling begins to take samples when the delay is over, and does what the recording is told.
func (r *recording) switchSampling() error {
	if at, waits := r.resumes(); waits && !time.Now().Before(at) {
		r.sampling.waits = false
		if err := r.source.Sample(true); err != nil {
			return err
		}
	}
	if r.Control == nil || r.sampling.pinged != 0 || !r.sampling.commanded.Swap(false) {
		return nil
	}
	for !r.sampling.stopped && r.sampling.pinged == 0 {
		command, ok := r.Control.Next()
		if !ok {
			return nil
		}
		if err := r.obey(command); err != nil {
			return err
		}
	}
	return nil
}

// answerPing acknowledges a ping once all samples from before it have been taken from the rings: a drain that began
// then has. Commands that came after it wait for that.
func (r *recording) answerPing(drained uint64) error {
	if r.sampling.pinged == 0 || drained < r.sampling.pinged+perfring.Slack {
		return nil
	}
	r.sampling.pinged = 0
	r.sampling.commanded.Store(true) // there may be more commands
	return r.Control.Acknowledge()
}

// obey does what the recording is told.
func (r *recording) obey(command control.Command) error {
	switch command {
	case control.Enable, control.Disable:
		r.sampling.waits = false
		if err := r.source.Sample(command == control.Enable); err != nil {
			return err
		}
	case control.Stop:
		r.sampling.stopped = true
	case control.Ping:
		r.sampling.pinged = r.source.Now()
		return nil
	default:
		r.note(fmt.Sprintf("--control: unknown command %q: must be enable, disable, stop or ping", command))
		return nil
	}
	return r.Control.Acknowledge()
}
