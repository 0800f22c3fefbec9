package top

import (
	"slices"
	"sync"
	"time"

	"unspool/capture/profile"
)

// mostNodes is how many nodes the parts of a Window have at most, together: some 100 MiB.
const mostNodes = 1 << 21

const (
	// usualLag is how long after a sample its round usually comes at most, mostLag is when it is there for sure.
	usualLag = time.Second
	mostLag  = 2 * time.Second
)

// A Window holds the profile of the last seconds of a recording. Its methods may be called from any goroutine.
type Window struct {
	span time.Duration

	lock   sync.Mutex
	parts  []*profile.Profile
	nodes  int    // of all parts
	latest uint64 // time of the last sample
}

// NewWindow returns an empty Window of a length.
func NewWindow(span time.Duration) *Window { return &Window{span: span} }

// Add adds the profile of a round. It belongs to the Window.
func (w *Window) Add(p *profile.Profile) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.parts = append(w.parts, p)
	w.nodes += len(p.Nodes)
	w.latest = max(w.latest, end(p))
	w.dropBefore(w.latest - min(w.latest, uint64(w.span)))
	for w.nodes > mostNodes && len(w.parts) > 1 {
		w.drop()
	}
}

// end is the time of the last sample of a part.
func end(p *profile.Profile) uint64 { return p.First + uint64(p.Duration) }

// dropBefore drops the parts that end before a time.
func (w *Window) dropBefore(time uint64) {
	for len(w.parts) > 0 && end(w.parts[0]) < time {
		w.drop()
	}
}

// drop drops the first part.
func (w *Window) drop() {
	w.nodes -= len(w.parts[0].Nodes)
	w.parts[0] = nil
	w.parts = w.parts[1:]
}

// Profile adds up what the recording has seen in the last seconds before now, which is a time of its clock.
// until is the time up to which samples have come.
func (w *Window) Profile(now uint64) (p *profile.Profile, until uint64) {
	w.lock.Lock()
	until = max(w.latest, now-min(now, uint64(usualLag)))
	if now > w.latest+uint64(mostLag) {
		w.dropBefore(until - min(until, uint64(w.span)))
	}
	parts := slices.Clone(w.parts)
	w.lock.Unlock()
	return profile.Merge(parts), until
}

// Take is Profile, and begins anew.
func (w *Window) Take(now uint64) (p *profile.Profile, until uint64) {
	w.lock.Lock()
	parts := w.parts
	w.parts, w.nodes = nil, 0
	until = max(w.latest, now-min(now, uint64(usualLag)))
	w.lock.Unlock()
	return profile.Merge(parts), until
}
