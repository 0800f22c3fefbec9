package credit

import (
	"testing"
	"time"
)

const ms = time.Millisecond

var start = time.Unix(1000, 0)

// A spender who takes all that there is has the part of the time, however long a step takes; what was not used before
// counts up to the most.
func TestPartOfTheTime(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{10 * time.Microsecond, 3 * ms, 250 * ms} {
		for _, part := range []int{1, 6, 50} {
			c, now, spent := New(part, 20*ms), start, time.Duration(0)
			for now.Before(start.Add(time.Minute)) {
				if c.Allows(now) {
					c.Spend(step)
					spent += step
				}
				now = now.Add(max(step, 10*time.Microsecond))
			}
			most := time.Minute/time.Duration(part) + 20*ms + step
			if spent > most || spent < most*98/100-2*step && part > 1 {
				t.Errorf("steps of %v, one in %d: %v were spent, at most %v are right", step, part, spent, most)
			}
		}
	}
}

// What a Credit says when time stands still, jumps and goes back.
func TestCredit(t *testing.T) {
	t.Parallel()
	c := New(4, 100*ms)
	now := start
	is := func(want time.Duration) {
		t.Helper()
		if left := c.Left(now); left != want || c.Has() != want || c.Allows(now) != (want > 0) {
			t.Errorf("%v are left, want %v", left, want)
		}
	}
	is(100 * ms)
	now = now.Add(time.Hour) // it was full
	is(100 * ms)
	c.Spend(100 * ms)
	is(0)
	now = now.Add(-time.Minute)
	is(0)
	now = now.Add(time.Minute) // is no later than before
	is(0)
	now = now.Add(40 * ms)
	is(10 * ms)
	c.Spend(60 * ms)
	is(-50 * ms)
	if wait := c.Wait(); wait != 200*ms {
		t.Errorf("a wait of %v", wait)
	}
	c.Forgive(time.Hour)
	is(-50 * ms)
	c.Forgive(20 * ms)
	is(-20 * ms)
	now = now.Add(c.Wait())
	is(0)
	c.Forgive(0)
	is(0)
	if wait := c.Wait(); wait != 0 {
		t.Errorf("a wait of %v without a debt", wait)
	}
	c.Add(3 * time.Second) // is there once, however long it takes
	now = now.Add(time.Hour)
	is(3 * time.Second)
	c.Spend(2950 * ms)
	now = now.Add(time.Hour)
	is(100 * ms)
	if at := At(1_500_000_000); !at.Equal(time.Unix(1, 500_000_000)) {
		t.Errorf("a clock's 1.5 s are %v", at)
	}
}
