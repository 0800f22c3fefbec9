package perfring

import (
	"testing"
	"time"
)

// TestDrainsFollowTheRateOfARing simulates a reader that drains a ring when it is foretold to be a quarter full, and
// after a tenth of a second at the latest. No ring may be full then, and few drains may be in vain.
func TestDrainsFollowTheRateOfARing(t *testing.T) {
	const longest, step = 100 * time.Millisecond, 10 * time.Microsecond
	for _, c := range []struct {
		name string
		rate func(at time.Duration) float64 // rings a second
		most int                            // drains in ten seconds
	}{
		{"idle", func(time.Duration) float64 { return 0 }, 115},
		{"a tenth of a ring until the next drain", func(time.Duration) float64 { return 1 }, 115},
		{"a quarter", func(time.Duration) float64 { return 2.5 }, 115},
		{"four rings", func(time.Duration) float64 { return 40 }, 1650},
		{"ten rings", func(time.Duration) float64 { return 100 }, 4100},
		{"ten times as much after a second", func(at time.Duration) float64 {
			if at < time.Second {
				return 0.9
			}
			return 9
		}, 400},
		{"more and more", func(at time.Duration) float64 { return 1 + 10*at.Seconds() }, 2100},
		{"now and then", func(at time.Duration) float64 {
			if at%time.Second < 800*time.Millisecond {
				return 0
			}
			return 9.9
		}, 330},
	} {
		m := newMerger(timeFormat, nil, nil)
		f := &m.filling
		drains, filled, fullest := 0, 0.0, 0.0
		for at, due := time.Duration(0), time.Duration(0); at < 10*time.Second; at += step {
			filled += c.rate(at) * step.Seconds()
			fullest = max(fullest, filled)
			if at < due {
				continue
			}
			f.drained(uint64(time.Hour+at), min(filled, 1))
			due = at + min(longest, time.Duration(f.quarter))
			filled = 0
			drains++
		}
		t.Logf("%s: %d drains, at most %.2f of the ring full", c.name, drains, fullest)
		if drains > c.most || fullest >= 1 {
			t.Errorf("%s: %d drains, want at most %d; up to %.2f of the ring full", c.name, drains, c.most, fullest)
		}
	}
}
