package opener

import (
	"testing"
	"time"
)

// Who owns a process is remembered for a moment, and of so many processes.
func TestOwnersAreRememberedForAMoment(t *testing.T) {
	t.Parallel()
	var o owners
	now := time.Unix(1, 0)
	o.note(7, 1000, now)
	for _, c := range []struct {
		pid  uint32
		at   time.Duration
		want bool
	}{{7, 0, true}, {7, ownerLasts - 1, true}, {7, ownerLasts, false}, {8, 0, false}} {
		if uid, ok := o.find(c.pid, now.Add(c.at)); ok != c.want || ok && uid != 1000 {
			t.Errorf("process %d after %v: user %d, %v", c.pid, c.at, uid, ok)
		}
	}
	for pid := range uint32(10 * mostOwners) {
		o.note(pid, 0, now)
	}
	if len(o.all) > mostOwners {
		t.Errorf("%d are remembered", len(o.all))
	}
}
