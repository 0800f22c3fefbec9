package live

import (
	"time"

	"unspool/vmas/credit"
)

// earlyDrains are those soon after a thread, a program or the recording has begun: until samples of it are seen, copies
// of its stack end at pages that were never touched, as nobody has read these yet, and what copies cut off is not read
// when it is sampled. In the long run some thirty drains a second are early, however many threads begin; each takes
// 40 µs.
type earlyDrains struct {
	begun  bool // something, or stacks have gaps, since the last drain
	left   int  // how many more drains are early
	credit credit.Credit
}

const (
	// earlyDrain is after how long a drain is, of the mostEarly that follow something that has begun.
	earlyDrain = 10 * time.Millisecond
	mostEarly  = 30
	// An early drain spends earlyPrice of a credit that grows by one earlyShare of the time.
	earlyPrice = 3 * time.Millisecond
	earlyShare = 10
)

func newEarlyDrains() earlyDrains {
	return earlyDrains{credit: credit.New(earlyShare, mostEarly*earlyPrice)}
}

// until is when the next drain is due, given a time and when it is due otherwise.
func (e *earlyDrains) until(now, usual time.Time) time.Time {
	if e.begun {
		e.begun, e.left = false, mostEarly
	}
	soon := now.Add(earlyDrain)
	if e.left == 0 || !soon.Before(usual) {
		return usual
	}
	if e.credit.Left(now) < earlyPrice {
		e.left = 0
		return usual
	}
	e.credit.Spend(earlyPrice)
	e.left--
	return soon
}
