package top

import (
	"slices"
	"sync"
	"time"

	"unspool/capture/profile"
)

// mostNodes is how many nodes the parts of a SlidingWindow have at most, together: some 100 MiB, and a fraction of a
// second to add them up. A machine with 64 busy CPUs has fewer.
const mostNodes = 1 << 19

const (
	// usualLag is how long after a sample its round usually comes at most, mostLag is when it is there for sure.
	usualLag = time.Second
	mostLag  = 2 * time.Second
)

// A SlidingWindow holds the profile of the last seconds of a recording. Its methods may be called from any
// goroutine.
type SlidingWindow struct {
	span time.Duration

	lock   sync.Mutex
	parts  []*profile.Profile
	nodes  int    // of all parts
	latest uint64 // time of the last sample
	short  uint64 // end of the last part that was dropped because there were too many nodes
}

// NewWindow returns an empty SlidingWindow of a length.
func NewWindow(span time.Duration) *SlidingWindow { return &SlidingWindow{span: span} }

// Add adds the profile of a round. It belongs to the SlidingWindow.
func (w *SlidingWindow) Add(p *profile.Profile) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.parts = append(w.parts, p)
	w.nodes += len(p.Nodes)
	w.latest = max(w.latest, end(p))
	w.dropBefore(w.latest - min(w.latest, uint64(w.span)))
	for w.nodes > mostNodes && len(w.parts) > 1 {
		w.short = end(w.parts[0])
		w.drop()
	}
}

// end is the time of the last sample of a part.
func end(p *profile.Profile) uint64 { return p.First + uint64(p.Duration) }

// dropBefore drops the parts that end before a time.
func (w *SlidingWindow) dropBefore(time uint64) {
	for len(w.parts) > 0 && end(w.parts[0]) < time {
		w.drop()
	}
}

// drop drops the first part.
func (w *SlidingWindow) drop() {
	w.nodes -= len(w.parts[0].Nodes)
	w.parts[0] = nil
	w.parts = w.parts[1:]
}

// Profile adds up what the recording has seen in the last seconds before now, which is a time of its clock.
// The samples are from the time between from and until.
func (w *SlidingWindow) Profile(now uint64) (p *profile.Profile, from, until uint64) {
	parts, from, until := w.held(now, false)
	return profile.Merge(parts), from, until
}

// Take is Profile, and begins anew.
func (w *SlidingWindow) Take(now uint64) (p *profile.Profile, from, until uint64) {
	parts, from, until := w.held(now, true)
	return profile.Merge(parts), from, until
}

// held returns the parts that are not too old, and forgets them if they are taken.
func (w *SlidingWindow) held(now uint64, taken bool) (parts []*profile.Profile, from, until uint64) {
	w.lock.Lock()
	defer w.lock.Unlock()
	until = max(w.latest, now-min(now, uint64(usualLag)))
	from = max(w.short, until-min(until, uint64(w.span)))
	if now > w.latest+uint64(mostLag) {
		w.dropBefore(from)
	}
	parts = slices.Clone(w.parts)
	if taken {
		w.parts, w.nodes = nil, 0
	}
	return parts, from, until
}
