package difference

import (
	"math/rand/v2"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
)

// made is a recording that is made sample by sample: of functions f0, f1, … below main, in a second.
type made struct {
	*profiletest.Builder
	line *profile.Timeline
}

const length = time.Second

func making(t testing.TB, functions int) *made {
	t.Helper()
	line, err := profile.NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	m := &made{line: line, Builder: profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "program"}}, Events: []profile.Event{{Name: "cpu-clock", Clock: true}},
		Frames: []profile.Frame{{Name: "main", Known: true}}, First: 5e9, Duration: length,
	})}
	for i := range functions {
		m.Frame(profile.Frame{Name: "f" + string(rune('0'+i/10)) + string(rune('0'+i%10)), Known: true})
	}
	m.Thread(profile.Thread{PID: 1, TID: 1, Comm: "program"})
	return m
}

// add adds a sample of a function, of a millisecond.
func (m *made) add(t testing.TB, function int, at time.Duration) {
	t.Helper()
	one := profile.Sample{Node: m.Stack(0, int32(1+function)), CPU: -1, Count: 1, Period: 1e6}
	m.Sample(one)
	if err := m.line.Add(m.First+uint64(at), &one); err != nil {
		t.Fatal(err)
	}
}

func (m *made) recording() Run { return Run{Profile: m.Profile, Timeline: m.line} }

// merged merges two recordings of one event.
func merged(t testing.TB, a, b Run) *Merged {
	t.Helper()
	m, err := Merge([]Run{a}, []Run{b}, Options{Processes: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return m
}

// byName returns the changes of the functions' own samples, by name.
func byName(t testing.TB, m *Merged) map[string]Delta {
	t.Helper()
	lists, err := m.Changes(0, Rows{N: len(m.Frames), Of: func(_, leaf int32, add func(int32)) {
		if leaf > 0 {
			add(m.Nodes[leaf].Frame)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	changes := make(map[string]Delta)
	for i, c := range lists[0] {
		changes[m.Frames[i].Name] = c
	}
	return changes
}

func TestBlock(t *testing.T) {
	for after, want := range map[uint64]uint8{0: 0, 7: 0, 8: 1, 511: 63, 512: 64, 1023: 127, 1024: 127} {
		if got := BlockOf(after, 1023); got != want {
			t.Errorf("%d: %d, want %d", after, got, want)
		}
	}
	if got := BlockOf(1<<63, 1<<63); got != Blocks-1 {
		t.Errorf("the last block is %d", got)
	}
}

// TestBursts has ten samples in each block, of which f00 takes one; f01 one in every other block, 64 in all;
// and f02 ten, in one block, in the place of f03.
func TestBursts(t *testing.T) {
	r := making(t, 4)
	for b := range Blocks {
		at := length*time.Duration(b)/Blocks + time.Millisecond
		for n := range 10 {
			switch {
			case b == 70:
				r.add(t, 2, at)
			case n == 0:
				r.add(t, 0, at)
			case n == 1 && b%2 == 0:
				r.add(t, 1, at)
			default:
				r.add(t, 3, at)
			}
		}
	}
	m := merged(t, r.recording(), r.recording())
	s, err := m.series(0, A, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.points) != 127*2+63+1 || s.counts[70] != 10 || s.squares() != 0 {
		t.Errorf("%d points, %v", len(s.points), s.counts)
	}
	sums := s.spreads(Rows{N: 5, Of: func(_, leaf int32, add func(int32)) { add(m.Nodes[leaf].Frame) }})
	for row, want := range map[int]spread{
		1: {127, 2, 0},          // one less in block 70
		2: {63, 63*2 - 1, 0},    // but for the first block, each differs from the ones before and behind
		3: {10, 2 * 10 * 10, 0}, // all at once
		4: {127 * 9, 0, 0},      // below
	} {
		if got := sums[row]; row < 4 && got != want {
			t.Errorf("%d: %+v, want %+v", row, got, want)
		}
	}
	// 200 · 128 / (2 · 127) / 10: the ten samples are one observation.
	if _, number := sums[3].bursts(s, 1280, 0); !near(number, 10.0787, 0.0001) {
		t.Errorf("a burst: %v", number)
	}
	// 100.787 / (1280 · 1/128 · 127/128)
	if share, _ := sums[3].bursts(s, 1280, 0); !near(share, 10.1581, 0.0001) {
		t.Errorf("a burst: %v", share)
	}
	// 125 · 128 / (2 · 127) / (63 · 1217/1280), and less than that of 63 samples.
	for row, want := range map[int]float64{1: 1, 2: 1.0516} {
		if share, number := sums[row].bursts(s, 1280, 0); !near(share, want, 0.0001) || number != 1 {
			t.Errorf("%d: %v, %v", row, share, number)
		}
	}
}

// random makes a recording of n samples of functions by their weights. The first bursting of them run for 20
// samples whenever they run.
func random(t *testing.T, seed uint64, n, bursting int, weights []float64) *made {
	r, source := making(t, len(weights)), rand.New(rand.NewPCG(seed, 1))
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	for i := 0; i < n; {
		x, f := source.Float64()*sum, 0
		for ; x > weights[f]; f++ {
			x -= weights[f]
		}
		times := 1
		if f < bursting {
			times = 20
		}
		for ; times > 0 && i < n; times-- {
			r.add(t, f, length*time.Duration(i)/time.Duration(n))
			i++
		}
	}
	return r
}

// Recordings of the same program hardly ever differ, whatever it does: of 60 pairs, with 95 % confidence,
// three are expected to have a difference that is called significant. A program that was changed in one
// function shows that function.
func TestChance(t *testing.T) {
	const pairs = 60
	weights := make([]float64, 60)
	for i := range weights {
		weights[i] = 1 / float64(1+i)
	}
	changed := append([]float64{}, weights...)
	changed[5] *= 2
	bursts := append([]float64{}, weights...)
	for i := range 6 {
		bursts[i] /= 20
	}
	count := func(a, b *made, timed bool) (n int, found bool) {
		x, y := a.recording(), b.recording()
		if !timed {
			x.Timeline, y.Timeline = nil, nil
		}
		for name, c := range byName(t, merged(t, x, y)) {
			if c.Share.ExcludesZero() || c.Amount.ExcludesZero() {
				n++
				found = found || name == "f05"
			}
		}
		return n, found
	}
	for _, c := range []struct {
		name         string
		bursting     int
		a, b         []float64
		timed, shows bool
		least, most  int // pairs with differences
	}{
		{"independent samples", 0, weights, weights, true, false, 0, 8},
		{"bursts", 6, bursts, bursts, true, false, 0, 8},
		{"bursts, without times", 6, bursts, bursts, false, false, pairs / 2, pairs}, // what the times are for
		{"a function that was changed", 0, weights, changed, true, true, pairs, pairs},
	} {
		differ, shown := 0, 0
		for i := range pairs {
			a := random(t, uint64(2*i), 4000, c.bursting, c.a)
			n, found := count(a, random(t, uint64(2*i+1), 4000, c.bursting, c.b), c.timed)
			if n > 0 {
				differ++
			}
			if found {
				shown++
			}
		}
		if differ < c.least || differ > c.most || c.shows && shown < pairs*9/10 {
			t.Errorf("%s: %d of %d pairs differ, %d in the function", c.name, differ, pairs, shown)
		}
		t.Logf("%s: %d of %d pairs differ, %d in the function", c.name, differ, pairs, shown)
	}
}
