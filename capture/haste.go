package capture

import "time"

// A haste has the rings drained soon after a thread or a program has begun: until its first samples are seen,
// copies of its stack end at pages that were never touched, as nobody has read these yet. In the long run at
// most ten drains a second are early, however many threads begin.
type haste struct {
	begun  bool // something, or stacks have gaps, since the last drain
	at     time.Time
	credit time.Duration
}

const (
	soonDrain = 10 * time.Millisecond // after a thread has begun
	// mostHaste is for programs that begin threads one after the other when they start.
	mostHaste  = 10 * soonDrain
	hasteShare = 10
)

// until is when the next drain is due, given a time and when it is due otherwise.
func (h *haste) until(now, usual time.Time) time.Time {
	if !h.begun {
		return usual
	}
	h.begun = false
	soon := now.Add(soonDrain)
	if !soon.Before(usual) {
		return usual
	}
	h.credit = min(h.credit+now.Sub(h.at)/hasteShare, mostHaste)
	h.at = now
	if h.credit < soonDrain {
		return usual
	}
	h.credit -= soonDrain
	return soon
}
