package profile

import (
	"math"
	"testing"
	"time"
)

func TestWholeOf(t *testing.T) {
	work, idle := Thread{PID: 10, TID: 10, Comm: "cc1"}, Thread{Comm: "swapper"}
	clock := Event{Name: "cpu-clock", Clock: true, Frequency: 1000}
	cycles := Event{Name: "cycles", Cycles: true, Frequency: 2000}
	for name, c := range map[string]struct {
		event    Event
		count    uint64
		period   uint64
		idle     bool
		cpus     int
		recorded uint64
		want     string
	}{
		"clock":      {clock, 3000, 3e9, false, 2, 0, "3.0 s of CPU time: 1.50 of 2 CPUs"},
		"no periods": {clock, 3000, 3000, false, 2, 0, "3.0 s of CPU time: 1.50 of 2 CPUs"},
		"one CPU":    {clock, 3000, 3e9, false, 1, 0, "3.0 s of CPU time: 1.00 of 1 CPU"},
		"unknown":    {clock, 3000, 3e9, false, 0, 0, "3.0 s of CPU time: 1.50 CPUs"},
		"filter": {clock, 3000, 3e9, false, 2, 4000,
			"3.0 s of CPU time: 1.50 of 2 CPUs, 75.0 % of the recording's 4,000 samples"},
		"idle":      {clock, 3000, 3e9, true, 2, 0, "4.0 s of CPU time: 1.50 of 2 CPUs, 25.0 % of it idle"},
		"cycles":    {cycles, 3000, 9e9, false, 2, 0, "1.5 s of CPU time: 0.75 of 2 CPUs"},
		"by period": {Event{Name: "cycles", Cycles: true}, 3000, 9e9, false, 2, 0, ""},
		"faults":    {Event{Name: "page-faults", Frequency: 1000}, 3000, 3000, false, 2, 0, ""},
		"made up":   {clock, 3, math.MaxUint64, false, 2, 0, ""},
	} {
		p := &Profile{
			Events: []Event{c.event}, Threads: []Thread{work, idle}, Duration: 2 * time.Second,
			CPUs: c.cpus, Samples: []Sample{{Count: c.count, Period: c.period}},
		}
		p.Events[0].Recorded = c.recorded
		if c.idle {
			p.Samples = append(p.Samples, Sample{Thread: 1, Count: 1000, Period: 1e9})
		}
		if got := p.WholeOf(0); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
