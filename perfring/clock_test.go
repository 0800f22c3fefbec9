package perfring

import (
	"testing"
	"time"
)

// TestNow compares the clock with the kernel's, at two times.
func TestNow(t *testing.T) {
	for range 2 {
		before := readClock()
		now := Now()
		after := readClock()
		const slack = uint64(time.Millisecond) // between the two readings at the start
		if now+slack < before || now > after+slack {
			t.Errorf("Now is %d, the kernel's clock goes from %d to %d", now, before, after)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if n := testing.AllocsPerRun(100, func() { Now() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
