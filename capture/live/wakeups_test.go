package live

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/session"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
)

// Some wake-ups pass at once, and in a storm one in 20 ms, or in 5 ms while files are new.
func TestWakeups(t *testing.T) {
	const ms = time.Millisecond
	w := newWakeups()
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name        string
		every, over time.Duration // wake-ups asked for, and for how long
		newFile     time.Duration // how often one finds a new file, 0 for never
		least, most int           // that pass
	}{
		{"few", 50 * ms, time.Second, 0, 20, 20},
		{"a burst after a pause", 4 * ms, 20 * ms, 0, 5, 5},
		{"what a program maps when it begins", ms / 10, 4 * ms, 0, 1, 4},
		{"a storm of known files", ms / 10, time.Second, 0, 48, 56},
		{"a storm with new files now and then", ms / 10, 2 * time.Second, 500 * ms, 380, 440},
		{"the second after them", ms / 10, 900 * ms, 0, 110, 135},
		{"known files again", ms / 10, time.Second, 0, 48, 56},
		{"a pause", time.Second, time.Second, 0, 1, 1},
		{"a burst of new files after a pause", 4 * ms, 80 * ms, ms, 20, 20},
	} {
		passed, next := 0, now
		for end := now.Add(c.over); now.Before(end); now = now.Add(c.every) {
			if wait := w.due(now); wait > 0 {
				now = now.Add(wait)
			}
			if passed++; c.newFile > 0 && !now.Before(next) {
				w.foundNew(now)
				next = now.Add(c.newFile)
			}
		}
		if passed < c.least || passed > c.most {
			t.Errorf("%s: %d wake-ups", c.name, passed)
		}
	}
}

// TestWakeupsOfAFlood: wake-ups that find the rings crowded are followed by others soon, up to every 2 ms, and
// then as seldom as before.
func TestWakeupsOfAFlood(t *testing.T) {
	const ms = time.Millisecond
	w, now := newWakeups(), time.Unix(1000, 0)
	for _, c := range []struct {
		name    string
		crowded bool
		waits   []time.Duration
	}{
		{"first there is credit", false, []time.Duration{0, 0, 0, 0, 0, 10 * ms, 20 * ms, 20 * ms}},
		{"a flood", true, []time.Duration{20 * ms, 10 * ms, 5 * ms, 5 * ms / 2, 2 * ms, 2 * ms, 2 * ms}},
		{"it ends", false, []time.Duration{2 * ms, 4 * ms, 8 * ms, 16 * ms, 20 * ms, 20 * ms}},
	} {
		for i, want := range c.waits {
			got := w.due(now)
			if now = now.Add(max(got, 2*ms)); got != want {
				t.Errorf("%s: %d. wait of %v, want %v", c.name, i+1, got, want)
			}
			w.waited(c.crowded)
		}
	}
}

// TestWakeupsBesideDrains: however often drains have cut a wait short, the next one is no longer than others.
func TestWakeupsBesideDrains(t *testing.T) {
	w, now := newWakeups(), time.Unix(1000, 0)
	for _, most := range []time.Duration{knownPrice, wakePrice} {
		for range 200 {
			if wait := w.due(now); wait > most {
				t.Fatalf("a wait of %v, more than %v", wait, most)
			}
			now = now.Add(time.Millisecond)
		}
		w.foundNew(now)
	}
}

// TestLooksAtManyRings: what it takes to look at all rings while they are drained does not grow for each record.
func TestLooksAtManyRings(t *testing.T) {
	format := sessiontest.Format()
	mapped, err := perfring.AppendMmap2(nil, &format, &perfring.Mmap2{PID: 7, TID: 7, Addr: 0x1000, Len: 0x1000,
		Prot: unix.PROT_EXEC, Path: []byte("/a")}, &perfring.SampleID{PID: 7, TID: 7, Time: 1000, ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	for cpus, most := range map[int]int{1: 64, 16: 64, 256: 256} {
		var rings []perfring.SimulatedRing
		for i := range 2 * cpus {
			rings = append(rings, perfring.SimulatedRing{CPU: i / 2, SideBand: i%2 == 0, Data: make([]byte, 64),
				Head: new(uint64),
				Tail: new(uint64)})
		}
		r := &recording{source: perfring.OfMemory(perfring.Attr{}, rings, nil),
			session: session.New(session.Config{Format: &format, Sink: sessiontest.Discard{}, MaxStack: 2048})}
		looks, last := 0, 0
		for range 4 * most {
			if err := r.record(mapped); err != nil {
				t.Fatal(err)
			}
			if r.untilPeek > last {
				looks++
			}
			last = r.untilPeek
		}
		if looks != 4 {
			t.Errorf("%d CPUs: %d looks for %d records", cpus, looks, 4*most)
		}
	}
}
