// Package costs holds what a fuzzed input takes against a bound: a parser that neither panics nor gives a
// wrong answer can still be made to take minutes or gigabytes.
package costs

import (
	"runtime/metrics"
	"sync"
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
	cpu, bytes := CPUTime(), allocated()
	return func() {
		t.Helper()
		cpu, bytes := CPUTime()-cpu, allocated()-bytes
		if cpu > b.CPU {
			t.Errorf("it took %v of CPU time, %v are allowed", cpu, b.CPU)
		}
		if bytes > b.Bytes {
			t.Errorf("it allocated %d bytes, %d are allowed", bytes, b.Bytes)
		}
		largest.Lock()
		defer largest.Unlock()
		largest.cpu = max(largest.cpu, float64(cpu)/float64(b.CPU))
		largest.bytes = max(largest.bytes, float64(bytes)/float64(b.Bytes))
	}
}

var largest struct {
	sync.Mutex
	cpu, bytes float64
}

// Largest is the most that any input has taken, as shares of what it might take.
func Largest() (cpu, bytes float64) {
	largest.Lock()
	defer largest.Unlock()
	return largest.cpu, largest.bytes
}

// CPUTime is what all threads of this process have taken.
func CPUTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
