package session

import (
	"runtime"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

// TestWhatIsHeldIsBounded has as much wait behind a stack that was cut as may: many small records, and small ones in
// memory that was made for deep stacks. What counts is the memory that is taken.
func TestWhatIsHeldIsBounded(t *testing.T) {
	format := sessiontest.Format()
	sampled := sessiontest.UserSample(1, 0x1000)
	record := sampled.Record()
	var sample perfring.Sample
	if err := format.Sample(record, &sample); err != nil {
		t.Fatal(err)
	}
	sample.Time = 1
	cut := func(frames int) *perfdata.Walked {
		res := &unwind.Result{IPs: make([]uint64, frames), Frames: make([]unwind.Frame, frames), Open: 1}
		return &perfdata.Walked{Record: record, Format: &format, Sample: &sample, Space: new(vmas.Space), Result: res,
			Chain: make([]uint64, frames)}
	}
	for _, c := range []struct {
		name   string
		before int // deep stacks, which have been handed on
	}{{"small", 0}, {"small after deep", 300}} {
		j := NewJoiner(sessiontest.Discard{}, 10_000, JoinAfter)
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var deep []*Held
		for range c.before {
			deep = append(deep, HoldSample(cut(2000)))
		}
		for _, h := range deep {
			h.free()
		}
		deep = nil
		if err := j.WriteSample(cut(1)); err != nil {
			t.Fatal(err)
		}
		most := 0
		for j.waits() {
			if len(j.queue)-j.from > most {
				most = len(j.queue) - j.from
				if most%4000 == 0 {
					runtime.GC() // so that only what waits is left
					runtime.GC()
					if runtime.ReadMemStats(&after); after.HeapAlloc > before.HeapAlloc+maxWaiting*5/4 {
						t.Fatalf("%s: %d records take %d KiB, as %d waited for before", c.name, most,
							(after.HeapAlloc-before.HeapAlloc)>>10, j.bytes>>10)
					}
				}
			}
			if err := j.Write(record[:8]); err != nil {
				t.Fatal(err)
			}
		}
		if most < 10_000 {
			t.Errorf("%s: only %d small records waited", c.name, most)
		}
	}
}
