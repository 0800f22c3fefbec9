package rest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is a memory of so many bytes, as both processes have it.
func pair(t *testing.T, size int) (theirs *Shared, ours *Stacks) {
	t.Helper()
	theirs, fd, err := NewShared(size)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	shared, err := OpenShared(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = theirs.Close()
		_ = shared.Close()
	})
	return theirs, NewStacks(shared)
}

// TestStacksInOrder puts stacks of all sizes, some of which are not asked for, and finds the others as they
// were put, whenever they are taken.
func TestStacksInOrder(t *testing.T) {
	const size, most = 64 << 10, 20 << 10
	theirs, ours := pair(t, size)
	random := rand.New(rand.NewPCG(1, 2))
	type stack struct {
		time uint64
		data []byte
	}
	var waiting []stack
	put, refused, found := 0, 0, 0
	for time := uint64(1); time < 30_000; time++ {
		n := uint64(random.IntN(most) + 1)
		room := theirs.room(n)
		if room == nil {
			refused++
		} else if random.IntN(8) > 0 { // others were read in vain
			n -= uint64(random.IntN(int(n)))
			data := bytes.Repeat([]byte{byte(time)}, int(n))
			copy(room, data)
			more := uint64(random.IntN(int(n) + 1))
			theirs.put(head{size: n - more, more: more, tid: 7, time: time, start: 8 * time})
			waiting, put = append(waiting, stack{time, data}), put+1
		}
		if random.IntN(4) > 0 && len(waiting) < 200 {
			continue
		}
		for _, w := range waiting {
			if random.IntN(5) == 0 {
				continue // its sample was left out
			}
			got := ours.Find(7, w.time, 8*w.time)
			if !bytes.Equal(append(got.Memory, got.Above...), w.data) {
				t.Fatalf("%d: %d and %d bytes, want %d", w.time, len(got.Memory), len(got.Above), len(w.data))
			}
			found++
		}
		if waiting = waiting[:0]; random.IntN(3) > 0 {
			ours.Release()
		}
	}
	if put < 10_000 || found < put/2 || refused == 0 {
		t.Errorf("%d put, %d found, %d refused", put, found, refused)
	}
}

// TestStacksOfOthers asks for stacks that are not there.
func TestStacksOfOthers(t *testing.T) {
	theirs, ours := pair(t, 64<<10)
	put := func(time uint64) {
		copy(theirs.room(100), "stack")
		theirs.put(head{size: 5, tid: 7, time: time, start: 64})
	}
	put(10)
	put(20)
	for _, ask := range []struct {
		tid         uint32
		time, start uint64
		found       bool
	}{
		{7, 9, 64, false}, // before the first one
		{7, 10, 64, true},
		{7, 15, 64, false}, // between them
		{7, 20, 72, false}, // its copy ends elsewhere
		{7, 20, 64, false}, // it was passed over
	} {
		if got := ours.Find(ask.tid, ask.time, ask.start); (string(got.Memory) == "stack") != ask.found {
			t.Errorf("%+v: %q", ask, got.Memory)
		}
	}
	put(30)
	if got := ours.Find(8, 30, 64); got.Memory != nil {
		t.Errorf("of another thread: %q", got.Memory)
	}
}

// TestSharedIsDistrusted has each side find anything in the memory.
func TestSharedIsDistrusted(t *testing.T) {
	const size = 64 << 10
	theirs, ours := pair(t, size)
	random := rand.New(rand.NewPCG(3, 4))
	for time := uint64(0); time < 100_000; time++ {
		words := theirs.words[:]
		for _, w := range []int{written, taken, from, to} {
			switch random.IntN(6) {
			case 0:
				words[w].Store(random.Uint64())
			case 1:
				words[w].Store(random.Uint64N(4*size) &^ (headSize - 1))
			}
		}
		if random.IntN(2) == 0 {
			*theirs.headAt(random.Uint64() &^ (headSize - 1)) = head{
				size: random.Uint64() >> random.IntN(64), more: random.Uint64() >> random.IntN(64),
				tid: 7, time: time, start: 64}
		}
		if room := theirs.room(uint64(random.IntN(size))); room != nil {
			clear(room)
			theirs.put(head{size: uint64(random.IntN(len(room) + 1)), tid: 7, time: time, start: 64})
		}
		rest := ours.Find(7, time, 64)
		clear(rest.Memory)
		clear(rest.Above)
	}
}

// TestThreads tells of threads with the same remainder.
func TestThreads(t *testing.T) {
	theirs, ours := pair(t, 64<<10)
	const end = 0x7ffd_1234_5678
	for _, tid := range []uint32{0, 1, 4_194_303} {
		if _, isKnown := theirs.thread(tid); isKnown {
			t.Errorf("thread %d is known", tid)
		}
		ours.Skips(tid, 1, 2) // nothing is known of it
		ours.Ends(tid, end)
		known, isKnown := theirs.thread(tid)
		at := depth(known.stack.Load()).end()
		if !isKnown || at < end || at > end+1<<endShift || known.above.Load() != 0 {
			t.Errorf("thread %d: %v, %#x, %#x", tid, isKnown, at, known.above.Load())
		}
		ours.Skips(tid, 1, 2)
		if known.large.Load() != 1 || known.above.Load() != 2 {
			t.Errorf("thread %d: %#x to %#x", tid, known.large.Load(), known.above.Load())
		}
		if _, isKnown := theirs.thread(tid ^ uint32(maxThreads)); isKnown {
			t.Errorf("thread %d is taken for another one", tid)
		}
	}
	for _, end := range []uint64{0, 1 << 47, ^uint64(0)} {
		ours.Ends(5, end)
		if known, isKnown := theirs.thread(5); !isKnown || depth(known.stack.Load()).end() != 0 {
			t.Errorf("a stack that ends at %#x: %#x", end, known.stack.Load())
		}
	}
}
