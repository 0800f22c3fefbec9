package live

import (
	"fmt"
	"slices"
	"time"

	"unspool/capture/counts"
	"unspool/capture/rights/priority"
	"unspool/perfring"
)

// A precedence is a priority over the recorded processes.
type precedence interface {
	Highest() bool
	Restore()
	String() string
}

const (
	guardEvery = 3 * time.Second
	mostCPU    = 80                    // per cent of one, with raised priority
	mostDelay  = 50 * time.Millisecond // of a wake-up: less than a ring takes to fill
)

// raisePriority gives this process and the opener priority over the recorded processes, if that is permitted.
func (r *recording) raisePriority() {
	r.priority = r.Opener.RaisePriority()
	r.outrun()
}

// outrun raises the priority above that of real-time threads of other programs, if there are any when the
// recording begins: later, this process could notice them only if they left it a CPU. With -a, only threads
// that are busy now count.
func (r *recording) outrun() {
	if r.AllCPUs && priority.AnyBusyRealTime() || slices.ContainsFunc(r.PIDs, priority.AnyRealTime) {
		r.goFirst()
	}
}

// goFirst raises the priority above that of all real-time threads, and reports whether that is new.
func (r *recording) goFirst() bool {
	if !r.priority.Highest() {
		return false
	}
	r.session.ReadNow()
	return true
}

// outrunTask does the same when a recorded thread or program begins that has real-time priority.
func (r *recording) outrunTask(rec perfring.Record) {
	if r.AllCPUs || r.priority == nil {
		return
	}
	var tid uint32
	switch rec.Type() {
	case perfring.RecordFork:
		var f perfring.Task
		if perfring.DecodeTask(rec, &f) == nil {
			tid = f.TID
		}
	case perfring.RecordComm:
		var c perfring.Comm
		if perfring.DecodeComm(rec, &c) == nil {
			tid = c.TID
		}
	}
	if tid != 0 && !r.outran && priority.IsRealTime(int(tid)) {
		r.outran = true // even if Highest fails
		r.goFirst()
	}
}

// lowerPriority restores the ordinary priority, and notes in the statistics which one the recording had.
func (r *recording) lowerPriority() {
	r.opener.bound()
	r.session.Stats.Priority = "ordinary"
	if r.priority != nil {
		r.session.Stats.Priority = r.priority.String()
		r.priority.Restore()
	}
}

// delayed raises the priority above that of real-time threads once these have kept this one from the CPU for
// too long.
func (r *recording) delayed(by time.Duration) {
	if r.priority == nil || by < mostDelay || !r.goFirst() {
		return
	}
	r.note(fmt.Sprintf("unspool got no CPU for %d ms, and now has priority over real-time threads, too (%s)",
		by.Milliseconds(), r.priority))
}

// A cpuGuard makes sure that unspool does not keep others from a CPU if it should ever need most of one.
type cpuGuard struct {
	at  time.Time
	cpu time.Duration
}

// check gives up the raised priority if too much CPU time was used since the last check.
func (g *cpuGuard) check(r *recording, now time.Time) {
	since := now.Sub(g.at)
	if since < guardEvery {
		return
	}
	used := counts.CPUTime() - g.cpu
	g.at, g.cpu = now, g.cpu+used
	if r.priority != nil && used > since*mostCPU/100 {
		r.note(fmt.Sprintf("unspool took %d %% of a CPU, and continues with ordinary priority",
			100*used/since))
		r.priority.Restore()
		r.priority = nil
	}
}
