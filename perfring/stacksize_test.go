package perfring

import (
	"os"
	"testing"
)

func TestRingFor(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, c := range []struct {
		memory uint64
		cpus   int
		want   int
	}{
		{24 * gib, 2, 16 * mib},
		{512 * gib, 128, 16 * mib},
		{1 * gib, 4, 16 * mib},
		{1*gib - 1, 4, 8 * mib},
		{16 * gib, 128, 8 * mib},
		{256 * mib, 64, 4 * mib}, // so that copies have their full size
	} {
		if got := ringFor(c.memory, c.cpus); got != c.want {
			t.Errorf("%d CPUs and %d MiB: a ring of %d bytes, want %d", c.cpus, c.memory/mib, got, c.want)
		}
	}
}

// TestStackSizeFollowsTheRing: as many bytes are copied as the ring has room for, unless it is said how many.
func TestStackSizeFollowsTheRing(t *testing.T) {
	page := os.Getpagesize()
	for _, c := range []struct {
		ring, asked int // bytes
		want        int
	}{
		{0, 0, MaxStackSize},
		{16 << 20, 0, MaxStackSize},
		{4 << 20, 0, MaxStackSize},
		{2 << 20, 0, 32768},
		{2 << 20, 65528, 65528},
		{16 << 20, 8192, 8192},
		{0, 8192, 8192},
		{1, 0, 32768},
	} {
		op := &opener{sys: hostSystem, target: Target{AllCPUs: true}, opts: Options{
			Events: []Event{{Name: "cpu-clock"}}, StackSize: c.asked, Pages: (c.ring + page - 1) / page}}
		if err := op.check(); err != nil {
			t.Fatal(err)
		}
		if op.opts.StackSize != c.want {
			t.Errorf("ring of %d bytes, %d asked for: %d bytes of a stack are copied, want %d", c.ring, c.asked,
				op.opts.StackSize, c.want)
		}
		if op.pages < op.leastPages() {
			t.Errorf("ring of %d bytes: %d pages, and two samples need %d", c.ring, op.pages, op.leastPages())
		}
	}
}
