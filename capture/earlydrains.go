package capture

import (
	"time"

	"unspool/vmas/credit"
)

// earlyDrains are those soon after a thread, a program or the recording has begun, and some more after that:
// until samples of it are seen, copies of its stack end at pages that were never touched, as nobody has
// read these yet, and so they do again when the stack gets deeper. In the long run at most ten drains a
// second are early, however many threads begin.
type earlyDrains struct {
	begun  bool // something, or stacks have gaps, since the last drain
	left   int  // how many more drains are early
	credit credit.Credit
}

const (
	soonDrain = 10 * time.Millisecond // after a thread has begun
	// nextDrain is after each of the moreDrains that follow: a program that copies begin to cut off is seen soon.
	nextDrain  = 40 * time.Millisecond
	moreDrains = 9
	// An early drain spends soonDrain of a credit that grows by one earlyShare of the time. mostEarly is for programs
	// that begin threads one after the other when they start.
	earlyShare = 10
	mostEarly  = 10 * soonDrain
)

func newEarlyDrains() earlyDrains { return earlyDrains{credit: credit.New(earlyShare, mostEarly)} }

// until is when the next drain is due, given a time and when it is due otherwise.
func (e *earlyDrains) until(now, usual time.Time) time.Time {
	wait := nextDrain
	if e.begun {
		e.begun, e.left, wait = false, 1+moreDrains, soonDrain
	}
	soon := now.Add(wait)
	if e.left == 0 || !soon.Before(usual) {
		return usual
	}
	if e.credit.Left(now) < soonDrain {
		e.left = 0
		return usual
	}
	e.credit.Spend(soonDrain)
	e.left--
	return soon
}
