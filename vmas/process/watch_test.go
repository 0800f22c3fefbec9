package process

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

// watched is memory of two pages and a third one that cannot be read.
func watched(t *testing.T) (pages []byte, addr uint64) {
	t.Helper()
	size := os.Getpagesize()
	pages, err := unix.Mmap(-1, 0, 3*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(pages) })
	if err := unix.Mprotect(pages[2*size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return pages[:2*size], uint64(uintptr(unsafe.Pointer(&pages[0])))
}

// all takes all readings of a watch.
func all(t *testing.T, w Watch) (readings []Reading) {
	t.Helper()
	lane.Eventually(t, "the end of a watch", func() bool {
		for {
			switch r, ok, over := w.Next(); {
			case over:
				return true
			case !ok:
				return false
			default:
				readings = append(readings, r.clone())
			}
		}
	})
	return readings
}

// isSlow reports whether there is no other reading after this one, as on a busy machine.
func isSlow(r *Reading) bool { return r.Ended-r.Began >= uint64(SlowReading) }

// Parts are read as often as planned, each as far as it goes, one reading after the other.
func TestWatch(t *testing.T) {
	t.Parallel()
	pages, addr := watched(t)
	half := len(pages) / 2
	copy(pages[half-4:], "together")
	parts := []Part{{addr + uint64(half) - 4, 8}, {addr + uint64(len(pages)) - 4, 100}, {1 << 60, 8}, {addr, 0}}
	plan := Plan{Times: 5, Apart: 2 * time.Millisecond}
	var before uint64
	var readings []Reading
	lane.Eventually(t, "a watch without a slow reading", func() bool {
		before = now()
		w, err := Direct("/proc").Watch(uint32(os.Getpid()), parts, plan)
		if err != nil {
			t.Fatal(err)
		}
		readings = all(t, w)
		return len(readings) > 0 && !isSlow(&readings[len(readings)-1])
	})
	if len(readings) != plan.Times {
		t.Errorf("%d readings", len(readings))
	}
	for i, r := range readings {
		if r.Began < before || r.Ended < r.Began {
			t.Errorf("reading %d from %d to %d, after %d", i, r.Began, r.Ended, before)
		}
		before = r.Ended
		m := r.Memory
		if len(m) != 4 || string(m[0]) != "together" || !bytes.Equal(m[1], pages[len(pages)-4:]) ||
			len(m[2])+len(m[3]) > 0 {
			t.Errorf("reading %d: %q", i, m)
		}
	}
	runtime.KeepAlive(pages)
}

// Without readings, pages are there afterwards; and of a process that has ended nothing is read.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	_, addr := watched(t)
	self := uint32(os.Getpid())
	if w, err := Direct("/proc").Watch(self, []Part{{addr, 1}}, Plan{}); err != nil || len(all(t, w)) > 0 {
		t.Errorf("readings that nobody asked for; %v", err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	sleeps := 0
	Direct("/proc").Observe(uint32(gone.Process.Pid), []Part{{addr, 1}}, Plan{Times: MostTimes, Apart: MostApart},
		make([]byte, 1), func(time.Duration) { sleeps++ },
		func(r *Reading) bool { t.Errorf("%q of a process that has ended", r.Memory); return true })
	if sleeps > 1 {
		t.Errorf("a process that has ended is read %d times", sleeps)
	}
}

// The first reading is not made before the time that the plan says, and the others follow it.
func TestWatchBeginsLater(t *testing.T) {
	t.Parallel()
	_, addr := watched(t)
	plan := Plan{Times: 3, After: 30 * time.Millisecond, Apart: time.Millisecond}
	var slept []time.Duration
	seen := 0
	lane.Eventually(t, "readings of which none is slow", func() (isOver bool) {
		slept, seen = nil, 0
		Direct("/proc").Observe(uint32(os.Getpid()), []Part{{addr, 1}}, plan, make([]byte, 1),
			func(d time.Duration) { slept = append(slept, d) },
			func(r *Reading) bool { seen++; isOver = !isSlow(r); return true })
		return isOver
	})
	if seen != plan.Times || len(slept) != plan.Times || slept[0] < plan.After {
		t.Fatalf("%d readings, slept %v", seen, slept)
	}
	for _, d := range slept[1:] {
		if d > 2*plan.Apart {
			t.Errorf("slept %v before a later reading", d)
		}
	}
}

// What adjoins a part from below that ended early is not read for its pages; others are.
func TestPagesAreTouched(t *testing.T) {
	t.Parallel()
	pages, addr := watched(t)
	size := uint64(os.Getpagesize())
	part := func(page uint64) Part { return Part{addr + page*size, int(size)} }
	there := func() (pages [2]byte) {
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(addr), uintptr(2*size),
			uintptr(unsafe.Pointer(&pages)))
		if errno != 0 {
			t.Fatal(errno)
		}
		return pages
	}
	for _, step := range []struct {
		parts []Part
		want  [2]byte
	}{
		{[]Part{part(2), part(1), part(0)}, [2]byte{0, 0}},
		{[]Part{part(2), part(0)}, [2]byte{1, 0}},
		{[]Part{part(1), part(2)}, [2]byte{1, 1}},
	} {
		w, err := Direct("/proc").Watch(uint32(os.Getpid()), step.parts, Plan{})
		if err != nil {
			t.Fatal(err)
		}
		all(t, w)
		if got := there(); got != step.want {
			t.Errorf("%+v: pages that are there: %d, want %d", step.parts, got, step.want)
		}
	}
	runtime.KeepAlive(pages)
}

func TestPlans(t *testing.T) {
	t.Parallel()
	many := make([]Part, MostParts+1)
	for _, c := range []struct {
		parts []Part
		plan  Plan
		valid bool
	}{
		{many[1:], Plan{Times: MostTimes, Apart: MostApart}, true},
		{[]Part{{0, MostWatched}}, Plan{}, true},
		{many, Plan{Times: 1, Apart: 0}, false},
		{[]Part{{0, MostWatched}, {0, 1}}, Plan{Times: 1, Apart: 0}, false},
		{[]Part{{0, -1}, {0, 1}}, Plan{Times: 1, Apart: 0}, false},
		{[]Part{{0, 1}}, Plan{Times: MostTimes + 1, Apart: 0}, false},
		{[]Part{{0, 1}}, Plan{Times: -1, Apart: 0}, false},
		{[]Part{{0, 1}}, Plan{Times: 1, Apart: MostApart + 1}, false},
		{[]Part{{0, 1}}, Plan{Times: 1, After: MostAfter}, true},
		{[]Part{{0, 1}}, Plan{Times: 1, After: MostAfter + 1}, false},
		{[]Part{{0, 1}}, Plan{Times: 1, After: -1}, false},
		{[]Part{{0, 1}}, Plan{Times: 1, Apart: -1}, false},
	} {
		if got := c.plan.IsValid(c.parts); got != c.valid {
			t.Errorf("%d parts, %+v: %v", len(c.parts), c.plan, got)
		}
		if _, err := Direct("/proc").Watch(uint32(os.Getpid()), c.parts, c.plan); (err == nil) != c.valid {
			t.Errorf("%d parts, %+v: %v", len(c.parts), c.plan, err)
		}
	}
	plan, sum := Plan{Times: 1, Apart: time.Millisecond}, time.Duration(0)
	const n = 10_000
	for range n {
		d := plan.next()
		if d < plan.Apart/2 || d > plan.Apart*3/2 {
			t.Fatalf("%v from one reading to the next", d)
		}
		sum += d
	}
	if mean := sum / n; mean < plan.Apart*9/10 || mean > plan.Apart*11/10 {
		t.Errorf("%v in the mean", mean)
	}
}
