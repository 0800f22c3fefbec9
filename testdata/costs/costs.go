// Package costs holds what a fuzzed input takes against a bound: a parser that neither panics nor gives a
// wrong answer can still be made to take minutes or gigabytes.
package costs

import (
	"runtime/metrics"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Bound is what one input may take. Both are generous: what is looked for is a thousand times more.
type Bound struct {
	CPU   time.Duration // of all threads
	Bytes uint64        // that are allocated, if they are free again or not
}

// For is the bound for an input of n bytes: a second and 64 MiB, and for each byte 10 µs and a KiB.
func For(n int) Bound {
	return Bound{time.Second + time.Duration(n)*10*time.Microsecond, 64<<20 + uint64(n)<<10}
}

// Check begins to measure; what it returns ends that, and fails the test if the input took more.
func (b Bound) Check(t *testing.T) (end func()) {
	cpu, bytes := cpuTime(), allocated()
	return func() {
		t.Helper()
		if took := cpuTime() - cpu; took > b.CPU {
			t.Errorf("it took %v of CPU time, %v are allowed", took, b.CPU)
		}
		if took := allocated() - bytes; took > b.Bytes {
			t.Errorf("it allocated %d bytes, %d are allowed", took, b.Bytes)
		}
	}
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
