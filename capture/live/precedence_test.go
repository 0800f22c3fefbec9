package live

import (
	"strings"
	"testing"
	"time"

	"unspool/capture/counts"
	"unspool/capture/rights/priority"
)

// TestRecorderThatTakesACPUGivesItsPriorityUp has a recording use more CPU time than it may with its
// priority.
func TestRecorderThatTakesACPUGivesItsPriorityUp(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name        string
		since, used time.Duration
		up          bool // is given up
	}{
		{"most of a CPU", guardEvery + time.Second, guardEvery + time.Second, true},
		{"little", guardEvery + time.Second, time.Second, false},
		{"most of a CPU, for a short time", guardEvery / 2, guardEvery / 2, false},
	} {
		var notes []string
		r := &recording{priority: &priority.Raised{}}
		r.Note = func(s string) { notes = append(notes, s) }
		guard := cpuGuard{now.Add(-c.since), counts.CPUTime() - c.used}
		guard.check(r, now)
		if (r.priority == nil) != c.up || strings.Contains(strings.Join(notes, " "), "ordinary priority") != c.up {
			t.Errorf("%s: given up: %v, %q", c.name, r.priority == nil, notes)
		}
	}
}

// TestDelaysBelowRealTimePriority: without real-time priority there is no higher level to go to.
func TestDelaysBelowRealTimePriority(t *testing.T) {
	r := &recording{}
	r.Note = func(s string) { t.Error(s) }
	r.delayed(time.Second)
	r.priority = &priority.Raised{}
	r.delayed(time.Second)
}
