package profile

import (
	"fmt"
	"math"
	"strings"
	"time"

	"unspool/capture/output/human"
)

// CPUTime is the CPU time that the samples of an event stand for, and of that the time of the idle task; 0 if
// the event does not measure time.
func (p *Profile) CPUTime(event int32) (all, idle time.Duration) {
	e := &p.Events[event]
	if !e.Clock && !e.Cycles {
		return 0, 0
	}
	var count, period, idleCount, idlePeriod uint64
	for _, s := range p.Samples {
		if s.Event != event {
			continue
		}
		count, period = count+s.Count, period+s.Period
		if t := &p.Threads[s.Thread]; t.PID == 0 && t.TID == 0 {
			idleCount, idlePeriod = idleCount+s.Count, idlePeriod+s.Period
		}
	}
	switch {
	case period > math.MaxInt64: // made up
		return 0, 0
	case e.Clock && period > count: // else the recording does not have periods
		return time.Duration(period), time.Duration(idlePeriod)
	case e.Frequency > 0:
		one := float64(time.Second) / float64(e.Frequency)
		return time.Duration(float64(count) * one), time.Duration(float64(idleCount) * one)
	}
	return 0, 0
}

// WholeOf says in words what 100 % of an event's samples are: the CPU time, how many CPUs that keeps busy,
// and under a filter the share of the recording's samples; "" if nothing of that is known.
func (p *Profile) WholeOf(event int32) string {
	var parts []string
	all, idle := p.CPUTime(event)
	if all > 0 {
		text := human.Duration(all) + " of CPU time"
		if busy := p.busy(all - idle); busy != "" {
			text += ": " + busy
		}
		parts = append(parts, text)
	}
	if idle > 0 {
		parts = append(parts, human.Percent(uint64(idle), uint64(all))+" of it idle")
	}
	var count uint64
	for _, s := range p.Samples {
		if s.Event == event {
			count += s.Count
		}
	}
	if recorded := p.Events[event].Recorded; recorded > count {
		parts = append(parts, fmt.Sprintf("%s of the recording's %s", human.Percent(count, recorded),
			human.Plural(recorded, "sample")))
	}
	return strings.Join(parts, ", ")
}

// busy is how many CPUs the work kept busy; "" if too little is known. Samples at the edges make it seem more
// than there are.
func (p *Profile) busy(work time.Duration) string {
	if p.Duration <= 0 {
		return ""
	}
	busy := work.Seconds() / p.Duration.Seconds()
	if p.CPUs == 0 {
		return fmt.Sprintf("%.2f CPUs", busy)
	}
	return fmt.Sprintf("%.2f of %s", min(busy, float64(p.CPUs)), human.Plural(uint64(p.CPUs), "CPU"))
}
