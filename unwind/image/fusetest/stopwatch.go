package fusetest

import (
	"sync"
	"time"
)

// Stopwatch measures how long something is waited for: the time that passes until stop is called, but for
// what a busy machine adds to it, in which nothing of this process runs for some milliseconds.
func Stopwatch() (stop func() time.Duration) {
	const tick, most = time.Millisecond, 3 * time.Millisecond // most: a timer is late by less than that
	var total time.Duration
	var ticking sync.WaitGroup
	over := make(chan struct{})
	ticking.Go(func() {
		last := time.Now()
		for running := true; running; {
			select {
			case <-over:
				running = false
			case <-time.After(tick):
			}
			now := time.Now()
			total += min(now.Sub(last), most)
			last = now
		}
	})
	return func() time.Duration {
		close(over)
		ticking.Wait()
		return total
	}
}
