package capture

import "time"

// A pace bounds how often new mappings wake a recording: at once as long as there are few, with one wake-up
// for all that a program maps when it starts, and every 5 ms if there are many.
type pace struct {
	at     time.Time
	credit time.Duration
}

const (
	wakePrice  = 5 * time.Millisecond
	mostCredit = 20 * wakePrice
	wakeLeast  = 2 * time.Millisecond // between two wake-ups
)

// due takes the price of a wake-up at a time from the credit, and returns how long to wait until the credit
// suffices.
func (p *pace) due(now time.Time) time.Duration {
	since := now.Sub(p.at)
	p.credit = min(p.credit+since, mostCredit) - wakePrice
	p.at = now
	return max(-p.credit, wakeLeast-since, 0)
}
