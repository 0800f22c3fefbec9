package compare

import (
	"testing"
	"time"
)

// TestCostOfASample computes the cost of a sample by hand: the block that was interrupted least took
// 600 µs longer than bare, for 200 samples; 500 samples were read in 10 ms.
func TestCostOfASample(t *testing.T) {
	m := measurement{
		samples: 500, bytes: 60_000, user: 10 * time.Millisecond,
		kernel: []kernelTime{
			{block: 50_900 * time.Microsecond, samples: 100}, {block: 50_600 * time.Microsecond, samples: 200},
			{block: 53_000 * time.Microsecond, samples: 200},
		},
		total: []time.Duration{29 * time.Microsecond, 23 * time.Microsecond, 31 * time.Microsecond, 24 * time.Microsecond},
	}
	want := Cost{Samples: 500, Bytes: 120, Kernel: 3 * time.Microsecond, User: 20 * time.Microsecond,
		Low: 23 * time.Microsecond, Total: 26500 * time.Nanosecond, High: 31 * time.Microsecond}
	if got := m.cost(50 * time.Millisecond); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	want.Kernel = 0
	if got := m.cost(51 * time.Millisecond); got != want {
		t.Errorf("faster than bare: %+v, want %+v", got, want)
	}
	if got := new(measurement).cost(time.Second); got != (Cost{}) {
		t.Errorf("without samples: %+v", got)
	}
}
