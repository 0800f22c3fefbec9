package live

import (
	"testing"
	"time"
)

// TestEarlyDrains: what begins now and then is looked at soon; in a storm, few drains are early.
func TestEarlyDrains(t *testing.T) {
	for _, c := range []struct {
		name        string
		every, over time.Duration // how often something begins, and for how long
		least, most int           // early drains
	}{
		{"one", time.Second, time.Second, 1, 1},
		{"now and then", 500 * time.Millisecond, 5 * time.Second, 10, 10},
		{"a program that begins its threads", 15 * time.Millisecond, 90 * time.Millisecond, 5, 6},
		{"a storm", time.Millisecond, 10 * time.Second, 340, 380},
	} {
		e := newEarlyDrains()
		now := time.Unix(1000, 0)
		due, early := now.Add(wakeEvery), 0
		for end := now.Add(c.over); now.Before(end); now = now.Add(c.every) {
			if !now.Before(due) {
				due = now.Add(wakeEvery)
			}
			e.begun = true
			if at := e.until(now, due); at.Before(due) {
				early++
				due = at
			}
		}
		if early < c.least || early > c.most {
			t.Errorf("%s: %d early drains, want %d to %d", c.name, early, c.least, c.most)
		}
	}
	e := newEarlyDrains()
	now := time.Unix(1000, 0)
	e.begun = true
	for n := range 2 * mostEarly {
		want := wakeEvery
		if n < mostEarly {
			want = earlyDrain
		}
		at := e.until(now, now.Add(wakeEvery))
		if at.Sub(now) != want {
			t.Errorf("drain %d after a thread has begun is due after %v, want %v", n, at.Sub(now), want)
		}
		now = at
	}
	if at := e.until(now, now.Add(wakeEvery)); !at.Equal(now.Add(wakeEvery)) {
		t.Errorf("nothing has begun, and the drain is due after %v", at.Sub(now))
	}
	e.begun = true
	if at := e.until(now, now.Add(earlyDrain/2)); at.Sub(now) != earlyDrain/2 {
		t.Errorf("a drain that is due is put off to after %v", at.Sub(now))
	}
}
