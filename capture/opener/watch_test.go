package opener

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
	"unspool/unwind/image/fusetest"
	"unspool/vmas/process"
)

// take waits for the next reading of a watch, nil if it is over.
func take(t *testing.T, w process.Watch) (memory [][]byte, began uint64) {
	t.Helper()
	r := takeReading(t, w)
	return r.Memory, r.Began
}

func takeReading(t *testing.T, w process.Watch) (r process.Reading) {
	t.Helper()
	lane.Eventually(t, "a reading or the end of the watch", func() bool {
		got, ok, over := w.Next()
		r = got
		return ok || over
	})
	if r.Ended < r.Began {
		t.Errorf("a reading from %d to %d", r.Began, r.Ended)
	}
	return r
}

// isSlow reports whether no other reading comes after this one, as on a busy machine.
func isSlow(r process.Reading) bool { return r.Ended-r.Began >= uint64(process.SlowReading) }

// unmoved is memory that stays where it is: the runtime moves what is on stacks.
func unmoved(t *testing.T, size int) []byte {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	return memory
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// Each reading has what is there then, in the order of the parts, whatever their sizes; and the lines are
// used again.
func TestWatchedMemory(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	memory := unmoved(t, 300_000)
	for i := range memory {
		memory[i] = byte(i * i >> 7)
	}
	at := addressOf(memory)
	parts := []process.Part{
		{Start: at + 5, Size: 3}, {Start: 1 << 60, Size: 10}, {Start: at, Size: 250_000}, {Start: at + 9, Size: 0},
		{Start: at + 299_000, Size: 1000},
	}
	const times = 3
	whole := 0 // rounds
	round := func() {
		w, err := c.Watch(uint32(os.Getpid()), parts, process.Plan{Times: times, Apart: 2 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		r, last := process.Reading{}, uint64(0)
		for n := 0; n < times && !isSlow(r); n++ {
			r = takeReading(t, w)
			got := r.Memory
			if len(got) != len(parts) || r.Began <= last {
				t.Fatalf("reading %d at %d, after %d: %d parts", n, r.Began, last, len(got))
			}
			last = r.Began
			if n == times-1 {
				whole++
			}
			for i, p := range parts {
				var want []byte
				if p.Start != 1<<60 {
					want = memory[p.Start-at:][:p.Size]
				}
				if !bytes.Equal(got[i], want) {
					t.Fatalf("reading %d, part %d: %d bytes", n, i, len(got[i]))
				}
			}
		}
		if got, _ := take(t, w); got != nil {
			t.Errorf("more readings than %d", times)
		}
	}
	for range 2 * mostWatches {
		round()
	}
	lane.Eventually(t, "rounds without a slow reading", func() bool { round(); return whole >= mostWatches })
}

// What changes from one reading to the next is seen.
func TestWatchedMemoryThatChanges(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	memory := unmoved(t, 8)
	lane.Eventually(t, "two changes", func() bool { // a slow reading is the last one
		w, err := c.Watch(uint32(os.Getpid()), []process.Part{{Start: addressOf(memory), Size: 8}},
			process.Plan{Times: process.MostTimes, Apart: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for got, _ := take(t, w); got != nil; got, _ = take(t, w) {
			if got[0][0] == memory[0] {
				seen++
				memory[0]++
			}
		}
		return seen >= 2
	})
}

// What cannot be asked for is refused, by the opener too, and the line is free afterwards.
func TestWatchIsRefused(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	self := uint32(os.Getpid())
	if _, err := c.Watch(self, nil, process.Plan{Times: -1}); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	part := func(size uint64) []byte { return append(make([]byte, 15), byte(size>>56)) }
	for name, r := range map[string]request{
		"times":          {start: process.MostTimes + 1},
		"apart":          {start: 1, end: uint64(process.MostApart) + 1},
		"after":          {start: 1, tid: uint32(process.MostAfter/time.Microsecond) + 1},
		"half a part":    {start: 1, text: make([]byte, partSize/2)},
		"size":           {start: 1, text: part(1 << 63)},
		"too many parts": {start: 1, text: make([]byte, partSize*(process.MostParts+1))},
	} {
		r.op, r.pid = watchMemory, self
		l, err := c.watches.take()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.send(&r, -1); err != nil {
			t.Fatal(err)
		}
		if a, err := l.receive(&incoming{}, forever); err != nil || a.errno != unix.EINVAL {
			t.Errorf("%s: %v, %v", name, a.errno, err)
		}
		c.watches.giveBack(l)
	}
}

// A user whose processes hang has so many watches, and others have room beside them; whoever asks for more
// than there can be is told so.
func TestWatchesThatHang(t *testing.T) {
	t.Parallel()
	locked, page, unlock := fusetest.Lock(t)
	c := sealed(t)
	self := uint32(os.Getpid())
	plan := process.Plan{Times: 1}
	one := func() process.Watch {
		w, err := c.Watch(locked, []process.Part{{Start: page, Size: 8}}, plan)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	var hang []process.Watch
	for range mostWatchesOfOne {
		hang = append(hang, one())
	}
	// All of them hang, or one that is asked for now has room.
	memory := unmoved(t, 8)
	ask := func() (there bool) {
		w, err := c.Watch(self, []process.Part{{Start: addressOf(memory), Size: 8}}, plan)
		if err != nil {
			t.Fatal(err)
		}
		for got, _ := take(t, w); got != nil; got, _ = take(t, w) { // to the end, for the line to be free
			there = true
		}
		return there
	}
	lane.Eventually(t, "a bound for one user", func() bool {
		enough := !ask()
		for i, w := range hang {
			if _, _, over := w.Next(); over { // it came after the other one, and was refused
				hang[i], enough = one(), false
			}
		}
		return enough
	})
	for i, w := range hang {
		if r, ok, over := w.Next(); ok || over {
			t.Errorf("watch %d: %q, over: %v", i, r.Memory, over)
		}
	}
	if n := c.Aside().ReadMemory(self, memory, addressOf(memory)); n != 8 {
		t.Error("other reads hang, too")
	}
	unlock()
	for i, w := range hang {
		if got, _ := take(t, w); len(got) != 1 || len(got[0]) != 8 {
			t.Errorf("watch %d after the answer: %q", i, got)
		}
		if got, _ := take(t, w); got != nil {
			t.Errorf("watch %d does not end", i)
		}
	}
	if !ask() {
		t.Error("nothing is read after those that hung")
	}
}

// Where nobody takes readings, there is room for some, and each of these is whole; others are left out.
func TestReadingsThatWait(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	memory := unmoved(t, 64<<10)
	for i := range memory {
		memory[i] = byte(i >> 3)
	}
	// The messages of a reading, and the one that ends a watch, have that many bytes.
	end := len((&answer{fd: -1}).append(nil))
	whole := readingHead(1) + len(memory)
	whole += (whole + pieceSize - 1) / pieceSize * end
	lane.Eventually(t, "three readings", func() bool { // a slow one is the last one
		w, err := c.Watch(uint32(os.Getpid()), []process.Part{{Start: addressOf(memory), Size: len(memory)}},
			process.Plan{Times: process.MostTimes})
		if err != nil {
			t.Fatal(err)
		}
		lane.Eventually(t, "the end of a watch", func() bool { return untaken(t, w)%whole == end })
		n, last := 0, uint64(0)
		for got, began := take(t, w); got != nil; got, began = take(t, w) {
			if began <= last || len(got) != 1 || !bytes.Equal(got[0], memory) {
				t.Fatalf("reading %d at %d, after %d: %d bytes", n, began, last, len(got[0]))
			}
			n, last = n+1, began
		}
		if n >= process.MostTimes {
			t.Errorf("%d readings", n)
		}
		return n >= 3
	})
}

// untaken is how many bytes have come of a watch that nobody has taken.
func untaken(t *testing.T, w process.Watch) int {
	t.Helper()
	n, err := unix.IoctlGetInt(w.(*watch).line.socket, unix.SIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// An opener whose client does not look for readings does not wait for it beyond its end.
func TestReadingsThatNobodyTakes(t *testing.T) {
	t.Parallel()
	c, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	c.wait = long
	if err := c.Seal(); err != nil {
		t.Fatal(err)
	}
	memory := unmoved(t, process.MostWatched)
	for range 4 {
		w, err := c.Watch(uint32(os.Getpid()), []process.Part{{Start: addressOf(memory), Size: len(memory)}},
			process.Plan{Times: process.MostTimes})
		if err != nil {
			t.Fatal(err)
		}
		lane.Eventually(t, "a reading", func() bool { return untaken(t, w) > 0 })
	}
	if all, err := c.Numbers(0); err != nil || len(all) == 0 {
		t.Errorf("other requests: %v", err)
	}
	c.Close()
	ended := make(chan struct{})
	go func() { _ = c.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the opener does not end")
	}
}
