package opener

import "time"

// A patience bounds how long the goroutine that drains the rings waits for processes that cannot be read.
// Quick answers cost no credit.
type patience struct {
	credit time.Duration
	at     time.Time     // when the credit was updated last
	one    time.Duration // how long to wait for one answer at most
}

const (
	// patienceForOne is long enough for an opener that has to wait for a CPU.
	patienceForOne = 100 * time.Millisecond
	leastPatience  = time.Millisecond
	ordinary       = 2 * time.Millisecond
	creditShare    = 4 // the credit grows by this part of the time
	mostCredit     = 100 * time.Millisecond
	// firstCredit is for reading processes at the start, when none is known yet.
	firstCredit = 3 * time.Second
)

func newPatience(now time.Time) patience { return patience{firstCredit, now, patienceForOne} }

// limit is how long to wait at most.
func (p *patience) limit(now time.Time) time.Duration {
	if p.credit < mostCredit {
		p.credit = min(p.credit+now.Sub(p.at)/creditShare, mostCredit)
	}
	p.at = now
	return max(leastPatience, min(p.credit, p.one))
}

// take subtracts the time waited from the credit.
func (p *patience) take(waited time.Duration) {
	if waited > ordinary {
		p.credit = max(0, p.credit-waited)
	}
}
