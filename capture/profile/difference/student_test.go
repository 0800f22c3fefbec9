package difference

import (
	"testing"
	"time"

	"unspool/capture/profile"
)

// Tables of Student's t: 2.5 % and 0.0005 / 2 to either side.
func TestStudent(t *testing.T) {
	for _, c := range []struct {
		tests, freedom int
		want           float64
	}{
		{1, 1, 12.7062}, {1, 2, 4.3027}, {1, 3, 3.1824}, {1, 4, 2.7764}, {1, 10, 2.2281}, {1, 30, 2.0423},
		{1, 1000, 1.9623}, {0, 4, 2.7764}, {5, 4, 4.6041}, {50, 4, 8.6103}, {50, 1, 636.6192}, {50, 10, 4.5869},
	} {
		if got := student(c.tests, c.freedom); !near(got, c.want, 0.00005) {
			t.Errorf("%d of %d: %v, want %v", c.freedom, c.tests, got, c.want)
		}
	}
	if got, want := student(1, 1e7), quantile(1); !near(got, want, 1e-5) {
		t.Errorf("%v, of the normal distribution %v", got, want)
	}
}

// By hand: 1 and 4 / 3 of 3 and 4 runs are 7 / 3; (7/3)² / (1 / 2 + 16 / 9 / 3) is 4.98, so 4. Where nothing varies,
// the fewest degrees of freedom hold.
func TestWelch(t *testing.T) {
	d, err, freedom := welch(mean{10, 1, 3}, mean{12, 4.0 / 3, 4})
	if d != 2 || !near(err, 1.527525, 1e-6) || freedom != 4 {
		t.Errorf("%v, %v, %d", d, err, freedom)
	}
	if d, err, freedom := welch(mean{10, 0, 3}, mean{12, 0, 4}); d != 2 || err != 0 || freedom != 2 {
		t.Errorf("%v, %v, %d", d, err, freedom)
	}
	// As only one side varies, it has the say, and the same twice has both together.
	if _, _, freedom := welch(mean{1, 2, 9}, mean{1, 0, 2}); freedom != 8 {
		t.Errorf("%d", freedom)
	}
	if _, _, freedom := welch(mean{1, 2, 5}, mean{1, 2, 5}); freedom != 8 {
		t.Errorf("%d", freedom)
	}
}

// runsOf makes recordings of f, of so many of so many samples of a ms.
func runsOf(counts ...[2]uint64) (runs []Run) {
	for _, c := range counts {
		runs = append(runs, newStacks().add("x", 0, c[0], "f", "/x").add("x", 0, c[1]-c[0], "g", "/x").recording())
	}
	return runs
}

// changeOf is that of f alone.
func changeOf(t *testing.T, a, b []Run) (Delta, *Merged) {
	t.Helper()
	m, err := Merge(a, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CheckValid(); err != nil {
		t.Fatal(err)
	}
	lists, err := m.Changes(0, Rows{N: 1, Of: func(_, leaf int32, add func(int32)) {
		if m.Frames[m.Nodes[leaf].Frame].Name == "f" {
			add(0)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return lists[0][0], m
}

// The interval by hand. Of 1,000 samples each, f has 200, 300 and 400 in A, and 500, 600 and 700 in B: shares with a
// variance of 0.01, so the means have 0.01 / 3 each, with 4 degrees of freedom together:
// 0.3 ± 2.7764 · √(0.02 / 3).
// In ms, 300 ± 226.69.
func TestSpreadBetweenRuns(t *testing.T) {
	a := runsOf([2]uint64{200, 1000}, [2]uint64{300, 1000}, [2]uint64{400, 1000})
	b := runsOf([2]uint64{500, 1000}, [2]uint64{600, 1000}, [2]uint64{700, 1000})
	c, m := changeOf(t, a, b)
	if !m.Replicated() || c.Samples != [2]uint64{900, 1800} {
		t.Errorf("%+v", c)
	}
	for _, e := range []struct {
		have  Estimate
		scale float64
	}{{c.Share, 1}, {c.Amount, 1}} {
		if !near(e.have.Value, 0.3, 1e-9) || !near(e.have.Low, 0.0733, 5e-5) || !near(e.have.High, 0.5267, 5e-5) ||
			!e.have.Significant() {
			t.Errorf("%+v", e.have)
		}
	}
	if p := &m.Pairs[0]; p.Whole[A].Samples != 3000 || !near(p.Whole[A].Amount(), 1, 1e-9) || len(p.Runs[B]) != 3 ||
		p.Runs[B][2].Samples != 1000 {
		t.Errorf("%+v", p)
	}

	// Half as far apart they do not differ for certain, though by the error of sampling alone they would: 0.15 ± 0.0226.
	b = runsOf([2]uint64{350, 1000}, [2]uint64{450, 1000}, [2]uint64{550, 1000})
	if c, _ = changeOf(t, a, b); c.Share.ExcludesZero() || c.Amount.ExcludesZero() || !near(c.Share.Low, -0.0767, 5e-5) {
		t.Errorf("%+v", c)
	}
	// With one run on either side the spread is in no interval.
	for _, c := range [][2][]Run{{a[:1], b[2:]}, {a, b[2:]}, {a[:1], b}} {
		d, m := changeOf(t, c[0], c[1])
		if m.Replicated() || !d.Share.ExcludesZero() || d.Share.Significant() || d.Amount.Significant() {
			t.Errorf("%d and %d runs: %+v", len(c[0]), len(c[1]), d)
		}
	}
}

// Runs that are alike by chance do not make the error of sampling smaller: of 30 of 100, and 60 of 100, three times
// each, that is Newcombe's interval of 90 and 180 of 300, and that of Poisson for the amount.
func TestSpreadIsNoLessThanSampling(t *testing.T) {
	a := runsOf([2]uint64{30, 100}, [2]uint64{30, 100}, [2]uint64{30, 100})
	b := runsOf([2]uint64{60, 100}, [2]uint64{60, 100}, [2]uint64{60, 100})
	c, _ := changeOf(t, a, b)
	z := quantile(1)
	share := between(proportion(0.3, 300, z), proportion(0.6, 300, z))
	amount := between(counted(90, z).times(1e-3/3), counted(180, z).times(1e-3/3))
	for _, e := range [][2]Estimate{{c.Share, share}, {c.Amount, amount}} {
		if !near(e[0].Low, e[1].Low, 1e-9) || !near(e[0].High, e[1].High, 1e-9) || !e[0].Significant() {
			t.Errorf("%+v, want %+v", e[0], e[1])
		}
	}
}

// A run counts by its samples: 10 of 100 and 90 of 300 are 100 of 400, and off by −15 and 15, a variance of
// 2 / 1 · (15² + 15²) / 400² = 0.005625. In ms they are 10 and 90, with 50 as mean and a variance of 1,600.
func TestRunsOfDifferentLengths(t *testing.T) {
	runs := runsOf([2]uint64{10, 100}, [2]uint64{90, 300})
	_, m := changeOf(t, runs, runs)
	s, err := m.both(0)
	if err != nil {
		t.Fatal(err)
	}
	rows := Rows{N: 1, Of: func(_, leaf int32, add func(int32)) {
		if m.Frames[m.Nodes[leaf].Frame].Name == "f" {
			add(0)
		}
	}}
	j := judge{pair: &m.Pairs[0], series: s, z: quantile(1)}
	share, amount := j.means(A, []*spread{&s[A][0].spreads(rows)[0], &s[A][1].spreads(rows)[0]})
	if !near(share.value, 0.25, 1e-12) || !near(share.variance, 0.005625, 1e-12) || share.runs != 2 ||
		!near(amount.value, 0.05, 1e-12) || !near(amount.variance, 0.0016, 1e-12) {
		t.Errorf("%+v, %+v", share, amount)
	}
}

// Programs whose functions take by turns more or less of a run, all through it, differ by chance from each other in
// single runs, and as good as never in several: what one run shows is not called significant.
func TestRunsThatDiffer(t *testing.T) {
	// Of 12 runs of a program, f has these of 1,000 samples: the spread is 15 times that of sampling.
	counts := []uint64{300, 480, 350, 420, 330, 510, 390, 310, 450, 360, 500, 410}
	var runs []Run
	for _, n := range counts {
		runs = append(runs, runsOf([2]uint64{n, 1000})...)
	}
	alone := 0
	for i := range len(runs) - 1 {
		if c, _ := changeOf(t, runs[i:i+1], runs[i+1:i+2]); c.Share.ExcludesZero() {
			alone++
		}
	}
	if alone < 8 {
		t.Errorf("%d of 11 pairs differ by more than sampling", alone)
	}
	for i := 0; i+6 <= len(runs); i++ {
		if c, _ := changeOf(t, runs[i:i+3], runs[i+3:i+6]); c.Share.Significant() {
			t.Errorf("from %d on: %+v", i, c.Share)
		}
	}
}

// Several runs have their own times, programs and events. Those that only one run has are of the side.
func TestRunsOfSeveralKinds(t *testing.T) {
	events := []profile.Event{{Name: "cycles"}, {Name: "faults"}}
	one := newStacks(events[1]).add("x", 0, 20, "f", "/x")
	both := newStacks(events...).add("x", 0, 5, "f", "/x").add("y", 1, 7, "f", "/x", "g", "/x")
	m, err := Merge([]Run{one.recording(), both.recording()}, []Run{both.recording(), both.recording()},
		Options{Processes: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CheckValid(); err != nil {
		t.Fatal(err)
	}
	if len(m.Pairs) != 2 || m.Pairs[0].Name != "faults" || m.Pairs[0].Whole[A].Samples != 27 ||
		m.Pairs[0].Runs[A][1].Samples != 7 || m.Pairs[1].Name != "cycles" || m.Pairs[1].Runs[A][0].Samples != 0 ||
		m.Pairs[1].Whole[B].Samples != 10 {
		t.Errorf("%+v", m.Pairs)
	}
	// Blocks are parts of each run: a burst in each of two runs is two observations of ten samples each.
	var runs []Run
	for range 2 {
		r := making(t, 2)
		for b := range Blocks {
			for range 10 {
				function := 1
				if b == 70 {
					function = 0
				}
				r.add(t, function, length*time.Duration(b)/Blocks+time.Millisecond)
			}
		}
		runs = append(runs, r.recording())
	}
	if m, err = Merge(runs, runs, Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := m.both(0)
	if err != nil {
		t.Fatal(err)
	}
	rows := Rows{N: len(m.Frames), Of: func(_, leaf int32, add func(int32)) { add(m.Nodes[leaf].Frame) }}
	j := judge{pair: &m.Pairs[0], series: s, z: 2}
	var of []*spread
	for run := range runs {
		j.squares[A] = append(j.squares[A], s[A][run].squares())
		spreads := s[A][run].spreads(rows)
		for row := range m.Frames {
			if m.Frames[row].Name == "f00" {
				of = append(of, &spreads[row])
			}
		}
	}
	// As in TestBursts, each run has 10.0787 times the variance, and 10.1581 times that of a share.
	n, share, amount := j.sampling(A, of)
	want := counted(20/10.0787, 2).times(10.0787e-3 / 2)
	if n != 20 || !near(amount.low, want.low, 1e-6) || !near(amount.high, want.high, 1e-6) ||
		!near(share.high, proportion(20.0/2560, 2560/10.1581, 2).high, 1e-6) {
		t.Errorf("%d, %+v, %+v, want %+v", n, share, amount, want)
	}
}
