package opener

import (
	"time"

	"unspool/vmas/credit"
)

// An answerWait bounds how long a goroutine waits for processes that cannot be read. Quick answers cost nothing.
type answerWait struct {
	credit credit.Credit
	one    time.Duration // how long to wait for one answer at most
}

const (
	// mostForOne is long enough for an opener that has to wait for a CPU.
	mostForOne = 100 * time.Millisecond
	leastWait  = time.Millisecond
	ordinary   = 2 * time.Millisecond
	waitShare  = 4 // waiting takes one in so many of the time
	mostCredit = 100 * time.Millisecond
	// firstCredit is for reading processes at the start, when none is known yet.
	firstCredit = 3 * time.Second
)

func newAnswerWait() answerWait {
	w := answerWait{credit.New(waitShare, mostCredit), mostForOne}
	w.credit.Add(firstCredit - mostCredit)
	return w
}

// limit is how long to wait at most.
func (w *answerWait) limit(now time.Time) time.Duration {
	return max(leastWait, min(w.credit.Left(now), w.one))
}

// take takes the time waited.
func (w *answerWait) take(waited time.Duration) {
	if waited > ordinary {
		w.credit.Spend(waited)
		w.credit.Forgive(0)
	}
}
