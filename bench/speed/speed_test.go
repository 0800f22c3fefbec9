package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/bench/workloads"
)

// recordedFor is the path of a program's recording: in the directory that
// UNSPOOL_RECORDINGS names, or made for the benchmark if perf and the program are
// installed and may be used. Two commits are compared with the same recordings.
func recordedFor(b *testing.B, name string) string {
	file := strings.ReplaceAll(name, " ", "-") + ".data"
	if dir := os.Getenv("UNSPOOL_RECORDINGS"); dir != "" {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err != nil {
			b.Skip(err)
		}
		return path
	}
	p := workloads.Find(name)
	if m := p.Missing(); m != "" {
		b.Skipf("no %s", m)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	w := workloads.Workload{Program: p, Root: root, Dir: filepath.Join(dir, "work"), Freq: 999, StackSize: 32768}
	if err := os.Mkdir(w.Dir, 0o755); err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(dir, file)
	if err := w.Record(path); err != nil {
		b.Skip(err)
	}
	return path
}

// BenchmarkWalk walks all stacks of a recording for each b.N. floor-ns/frame is the time
// of the loads alone, measured by turns with the walks.
func BenchmarkWalk(b *testing.B) {
	for _, p := range subjects {
		b.Run(strings.ReplaceAll(p.name, " ", "-"), func(b *testing.B) {
			r, err := load(recordedFor(b, p.name))
			if err != nil {
				b.Fatal(err)
			}
			w := r.begin()
			if err := w.pass(nil, nil); err != nil {
				b.Fatal(err)
			}
			if err := w.survey(); err != nil {
				b.Fatal(err)
			}
			var walked, floor time.Duration
			for b.Loop() {
				var walks, records, loads times
				if err := w.pass(&walks, &records); err != nil {
					b.Fatal(err)
				}
				walked += walks.total()
				b.StopTimer()
				w.touch(inTurn, &loads)
				floor += loads.total()
				b.StartTimer()
			}
			allocs, err := w.allocations()
			if err != nil {
				b.Fatal(err)
			}
			frames := float64(w.frames) * float64(b.N)
			b.ReportMetric(float64(allocs)/float64(len(w.samples)), "allocs/sample")
			b.ReportMetric(float64(walked)/frames, "ns/frame")
			b.ReportMetric(float64(walked)/float64(b.N)/float64(len(w.samples)), "ns/sample")
			b.ReportMetric(float64(floor)/frames, "floor-ns/frame")
			b.ReportMetric(float64(walked)/float64(floor), "x-floor")
		})
	}
}

// BenchmarkFirstPass opens and decodes the files that the stacks of a recording need,
// and walks the stacks once.
func BenchmarkFirstPass(b *testing.B) {
	for _, p := range subjects {
		b.Run(strings.ReplaceAll(p.name, " ", "-"), func(b *testing.B) {
			r, err := load(recordedFor(b, p.name))
			if err != nil {
				b.Fatal(err)
			}
			var pcs int
			for b.Loop() {
				w := r.begin()
				if err := w.pass(nil, nil); err != nil {
					b.Fatal(err)
				}
				pcs, _ = w.images.Rules()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pcs), "ns/PC")
		})
	}
}

// The walks that are measured find every frame, and the floor loads at least one word
// for each caller.
func TestMadeStacks(t *testing.T) {
	l, err := openLibrary()
	if err != nil {
		t.Skip(err)
	}
	m := newMade(l)
	at := m.places(3)
	for pid, addr := range at {
		if err := m.mapped(uint32(pid+1), addr); err != nil {
			t.Fatal(err)
		}
	}
	const depth, samples = 30, 2000
	for i := range samples { // PID 0 is the idle task
		pid := i % len(at)
		m.sampled(uint32(pid+1), uint32(pid+1), m.calls(depth-1, at[pid]), m.outermost(at[pid]))
	}
	r := m.recording
	if len(r.blocks) < 3 {
		t.Errorf("%d blocks for %d bytes of stack", len(r.blocks), len(r.stacks))
	}
	for _, block := range []bool{true, false} {
		w := r.begin()
		if !block {
			w.block = nil
		}
		s, err := w.warm(1)
		if err != nil {
			t.Fatal(err)
		}
		if s.frames != depth*samples || s.samples != samples {
			t.Errorf("%d frames in %d samples instead of %d in %d", s.frames, s.samples, depth*samples, samples)
		}
		words := 0
		for _, list := range w.words {
			words += len(list)
		}
		if words < (depth-1)*samples || words > 2*(depth-1)*samples {
			t.Errorf("the floor loads %d words for %d frames", words, s.frames)
		}
		if n, size := w.images.Rules(); n == 0 || size < 8*n {
			t.Errorf("%d rules in %d bytes", n, size)
		}
	}
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		limit       limit
		v           float64
		asked, mark string
	}{
		{2, 1.999, "≤ 2", "2.00"},
		{2.5, 2.6, "≤ 2.5", "**2.60**"},
		{0, 9, "–", "9.00"},
	} {
		if got := c.limit.mark(c.v, "%.2f"); got != c.mark || c.limit.String() != c.asked {
			t.Errorf("%v of %v: %s, %s", c.v, float64(c.limit), c.limit, got)
		}
	}
}
