package perfring

// A filling foretells how soon a ring is a quarter full, from how fast the rings have filled between drains. It is for
// rings whose wake-ups are not waited for.
type filling struct {
	last    uint64 // when the last drain began, in nanoseconds
	quarter uint64 // how many nanoseconds it takes
}

const (
	firstQuarter   = 5e6 // as long as nothing is known
	longestQuarter = 1e9
)

// drained notes that a drain begins, and by which share of its size the ring has grown that has grown most since the
// last drain. A ring that is full may have been filled sooner: the next drain will tell. That the rings fill more
// slowly than before is believed step by step.
func (f *filling) drained(now uint64, share float64) {
	quarter := float64(max(now-min(f.last, now), Slack)) / (4 * share) // +Inf if nothing has come
	f.quarter = uint64(min(quarter, float64(f.quarter)*5/4, longestQuarter))
	f.last = now
}
