package firefox

import (
	"unspool/capture/perfdata/replay"
	"unspool/capture/profile"
	"unspool/perfring"
)

// Lives is a [profile.Observer] that notes when threads begin and end.
type Lives struct {
	threads map[[2]uint32]life // by PID and TID
}

// life is when a thread began and ended, in ns of the recording's clock. A time that the recording does not
// have is 0.
type life struct{ began, ended uint64 }

// NewLives makes a watcher for profile.Load.
func NewLives() *Lives { return &Lives{threads: make(map[[2]uint32]life)} }

// Begin does nothing.
func (*Lives) Begin(*profile.Profile) {}

// Record notes forks and exits.
func (l *Lives) Record(c *replay.Change, _ *perfring.SampleFormat, time uint64) {
	if time == 0 || c.Kind != replay.Fork && c.Kind != replay.Exit {
		return
	}
	key := [2]uint32{c.PID, c.TID}
	at, seen := l.threads[key]
	switch {
	case c.Kind == replay.Exit:
		at.ended = time
	case !seen:
		at.began = time
	default: // the ID is used again
		at.ended = 0
	}
	l.threads[key] = at
}

// Sample does nothing.
func (*Lives) Sample(*perfring.Sample, []int32, int32) {}

// lookup returns the life of a thread.
func (l *Lives) lookup(pid, tid uint32) life {
	if l == nil {
		return life{}
	}
	return l.threads[[2]uint32{pid, tid}]
}

// writeLife writes when a thread and its process began and ended.
func (w *writer) writeLife(t *profile.Thread) {
	process, thread := w.options.Lives.lookup(t.PID, t.PID), w.options.Lives.lookup(t.PID, t.TID)
	w.writeTimes(process.began, process.ended, thread.began, thread.ended)
}

func (w *writer) writeTimes(processBegan, processEnded, began, ended uint64) {
	for _, field := range []struct {
		name  string
		at    uint64
		still bool // write null if the time is 0, as it has not ended
	}{
		{"processStartupTime", processBegan, false},
		{"processShutdownTime", processEnded, true},
		{"registerTime", began, false},
		{"unregisterTime", ended, true},
	} {
		w.Key(field.name)
		if field.still && field.at == 0 {
			w.null()
			continue
		}
		w.milliseconds(w.since(field.at))
	}
}
