package live

import (
	"fmt"
	"math"
	"syscall"
	"time"

	"unspool/capture/counts"
	"unspool/capture/session/commandlines"
)

// measure updates the statistics that are measured rather than counted.
func (r *recording) measure(now time.Time) {
	st := &r.session.Stats
	st.Command = commandlines.Mask(r.Command)
	st.Duration = now.Sub(r.began)
	st.CPU = r.opener.cpuTime()
	st.Busy = st.CPU - st.Start
	st.MaxRSS = counts.MaxRSS()
	st.Lost = r.source.Lost()
	st.Forgotten = r.session.Table().Forgotten()
	st.LeftOut = r.session.Table().LeftOut()
	st.OfflineCPUs = r.source.OfflineCPUs()
	st.Rings = r.source.RingUse()
	st.Written = uint64(r.writer.Written())
}

// finish completes the recording, ends the command if it still runs, which may take longer than the opener has,
// and sums up.
func (r *recording) finish() error {
	err := r.complete()
	if r.command != nil {
		if cerr := r.endCommand(); err == nil {
			err = cerr
		}
	}
	r.session.Stats.CPU = r.opener.cpuTime()
	r.session.Stats.MaxRSS = counts.MaxRSS()
	r.session.Stats.Written = uint64(r.writer.Written())
	r.out.Stats = r.session.Stats
	return err
}

// complete takes what is left in the rings, and completes the file.
func (r *recording) complete() error {
	r.opener.bound()
	now := time.Now()
	err := r.readLastCommandLines()
	if r.Adopted == nil {
		if derr := r.source.Disable(); err == nil {
			err = derr
		}
	}
	if ferr := r.drained(r.source.Flush(r.session.Record)); err == nil {
		err = ferr
	}
	if ferr := r.session.Flush(); err == nil {
		err = ferr
	}
	if ferr := r.session.EndCommandLines(); err == nil {
		err = ferr
	}
	if ferr := r.answerPing(math.MaxUint64); err == nil {
		err = ferr
	}
	r.measure(now)
	if err == nil {
		err = r.session.Lost(r.session.Stats.Lost, r.anyID())
	}
	r.session.TellBuildIDs()
	r.keepMaps()
	r.tellSampled(true)
	if cerr := r.writer.Close(); err == nil {
		err = cerr
	}
	return err
}

// keepMaps makes the recording keep the perf maps of what was sampled, and notes what generated code lacks.
func (r *recording) keepMaps() {
	g := r.generators
	if g == nil {
		return
	}
	defer g.Close()
	g.Finish()
	r.writer.KeepPerfMaps(g.Kept())
	r.out.Trouble.Generated = g.Notes()
}

// readLastCommandLines reads command lines as long as records tell what else happens.
func (r *recording) readLastCommandLines() error {
	if !r.CommandLines {
		return nil
	}
	err := r.drained(r.source.Drain(r.record))
	r.session.CommandLines().Reread()
	return err
}

// tellSampled hands the sampled files on, if they are asked for.
func (r *recording) tellSampled(last bool) {
	if r.Sampled != nil {
		r.Sampled(r.session.Images().Files(), last)
	}
}

// anyID is the ID of one of the events.
func (r *recording) anyID() uint64 {
	for _, a := range r.source.Attrs() {
		if len(a.IDs) > 0 {
			return a.IDs[0]
		}
	}
	return 0
}

const (
	graceToEnd  = 500 * time.Millisecond // after an interrupt from the terminal
	graceToTerm = 3 * time.Second
	graceToDie  = 5 * time.Second // after SIGKILL, which takes as long as the kernel takes to free its memory
)

// A NotEndedError means that the command has survived SIGKILL so far, or could not be sent it.
type NotEndedError struct {
	Command string
	PID     int
}

func (e *NotEndedError) Error() string {
	return fmt.Sprintf("%s (process %d) has not ended %v after SIGKILL: it has become another user's, its cgroup is "+
		"frozen, or the kernel holds it", e.Command, e.PID, graceToDie)
}

// endCommand waits for the command to end, and ends it if it does not. An interrupt from the terminal reaches
// the command directly.
func (r *recording) endCommand() error {
	c := r.command
	if !c.started {
		c.cancel()
		return nil
	}
	defer c.release()
	if r.out.ExitStatus != 0 { // it never ran
		_ = c.reap()
		return nil
	}
	gone := r.opener.gone.Load()
	if gone {
		c.term.Pull() // whether it has ended may not be known
	}
	wait := func(d time.Duration) bool {
		select {
		case <-c.done:
			return true
		case <-time.After(d):
			return false
		}
	}
	timeUp := r.sampling.stopped || r.Duration > 0 && time.Since(r.began) >= r.Duration
	if !c.ended() && (timeUp || !wait(graceToEnd)) {
		c.term.Pull()
		if !wait(graceToTerm) {
			c.kill.Pull()
			if !wait(graceToDie) {
				return &NotEndedError{c.name, c.pid}
			}
		}
	}
	if err := c.reap(); err != nil && !gone {
		return fmt.Errorf("the exit status of %s is not known: %w", c.name, err)
	}
	r.out.ExitStatus = c.exitStatus()
	if timeUp && c.status.Signaled() &&
		(c.status.Signal() == syscall.SIGTERM || c.status.Signal() == syscall.SIGKILL) {
		r.out.ExitStatus = 0 // it ended because we were asked to end it
	}
	return nil
}
