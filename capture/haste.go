package capture

import "time"

// A haste has the rings drained soon after a thread, a program or the recording has begun, and some times
// more: until samples of it are seen, copies of its stack end at pages that were never touched, as nobody has
// read these yet, and so they do again when the stack gets deeper. In the long run at most ten drains a
// second are early, however many threads begin.
type haste struct {
	begun  bool // something, or stacks have gaps, since the last drain
	left   int  // how many more drains are early
	at     time.Time
	credit time.Duration
}

const (
	soonDrain = 10 * time.Millisecond // after a thread has begun
	// nextDrain is after each of the moreDrains that follow: a program that copies begin to cut off is seen soon.
	nextDrain  = 40 * time.Millisecond
	moreDrains = 9
	// mostHaste is for programs that begin threads one after the other when they start.
	mostHaste  = 10 * soonDrain
	hasteShare = 10
)

// until is when the next drain is due, given a time and when it is due otherwise.
func (h *haste) until(now, usual time.Time) time.Time {
	wait := nextDrain
	if h.begun {
		h.begun, h.left, wait = false, 1+moreDrains, soonDrain
	}
	soon := now.Add(wait)
	if h.left == 0 || !soon.Before(usual) {
		return usual
	}
	h.credit = min(h.credit+now.Sub(h.at)/hasteShare, mostHaste)
	h.at = now
	if h.credit < soonDrain {
		h.left = 0
		return usual
	}
	h.credit -= soonDrain
	h.left--
	return soon
}
