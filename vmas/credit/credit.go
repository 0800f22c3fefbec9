// Package credit bounds the time that is spent for the sake of somebody who is not trusted: on reading a process, on
// waiting for a file system, on a wake-up for a new mapping. What may be spent is a part of all time.
package credit

import "time"

// A Credit is time that may be spent. It grows by a part of the time that passes, up to a most. Spending is noted
// afterwards, so that a Credit can be in debt; until it is not, nothing may be spent. It costs no system call and no
// memory beyond itself, and is not safe for concurrent use.
type Credit struct {
	part int // it grows by one in so many
	most time.Duration
	left time.Duration // negative for a debt
	at   time.Time     // when that was left; zero before the first question
}

// New returns a full Credit that grows by one in part of the time, up to most.
func New(part int, most time.Duration) Credit {
	return Credit{part: part, most: most, left: most}
}

// At is a time of a clock that counts nanoseconds, as perf's does. A Credit has to be asked by one clock only.
func At(ns uint64) time.Time { return time.Unix(0, int64(ns)) }

// Left returns how much may be spent at a time. A time before that of the last call counts as that.
func (c *Credit) Left(now time.Time) time.Duration {
	switch {
	case c.at.IsZero():
		c.at = now
	case now.After(c.at):
		if c.left < c.most { // what was added is not lost
			c.left = min(c.left+now.Sub(c.at)/time.Duration(c.part), c.most)
		}
		c.at = now
	}
	return c.left
}

// Allows reports whether anything may be spent at a time.
func (c *Credit) Allows(now time.Time) bool { return c.Left(now) > 0 }

// Has returns what was left when Left was called last, less what was spent since.
func (c *Credit) Has() time.Duration { return c.left }

// Spend takes what was spent.
func (c *Credit) Spend(d time.Duration) { c.left -= d }

// Add adds to the Credit, once, also beyond its most.
func (c *Credit) Add(d time.Duration) { c.left += d }

// Forgive reduces a debt to at most so much.
func (c *Credit) Forgive(most time.Duration) { c.left = max(c.left, -most) }

// Wait returns how long it takes until there is no debt.
func (c *Credit) Wait() time.Duration { return max(0, -c.left) * time.Duration(c.part) }
