package capture

import (
	"testing"
	"time"
)

// A pace lets some wake-ups pass at once, and in a storm one in wakeLeast.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	var p pace
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name        string
		every, over time.Duration // wake-ups asked for, and for how long
		least, most int           // that pass
	}{
		{"few", 50 * ms, time.Second, 20, 20},
		{"a burst after a pause", 4 * ms, 80 * ms, 20, 20},
		{"what a program maps when it begins", ms / 10, 4 * ms, 2, 4},
		{"a storm", ms / 10, time.Second, 190, 225},
		{"a pause", time.Second, time.Second, 1, 1},
	} {
		passed := 0
		for end := now.Add(c.over); now.Before(end); now = now.Add(c.every) {
			if wait := p.due(now); wait > 0 {
				now = now.Add(wait)
			}
			passed++
		}
		if passed < c.least || passed > c.most {
			t.Errorf("%s: %d wake-ups", c.name, passed)
		}
	}
}
