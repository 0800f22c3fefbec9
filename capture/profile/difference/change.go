package difference

// A Delta is a number of samples on both sides, and by how much it differs.
type Delta struct {
	Samples [sides]uint64
	Share   Estimate // of the shares of the event's samples
	Amount  Estimate // in the pair's Unit
}

// Judged reports whether there are samples enough to tell a difference.
func (c *Delta) Judged() bool { return c.Samples[A]+c.Samples[B] >= fewest }

// Changes compares the rows of a pair. They have the confidence together, as one list.
func (m *Merged) Changes(pair int, rows ...Rows) (lists [][]Delta, err error) {
	s, err := m.both(pair)
	if err != nil {
		return nil, err
	}
	spreads, tests := make([][sides][][]spread, len(rows)), 0
	for i, r := range rows {
		samples := make([]float64, r.N)
		for side, runs := range s {
			for _, run := range runs {
				of := run.spreads(r)
				spreads[i][side] = append(spreads[i][side], of)
				for row := range of {
					samples[row] += of[row].samples
				}
			}
		}
		for _, n := range samples {
			if n >= fewest {
				tests++
			}
		}
	}
	j := judge{pair: &m.Pairs[pair], series: s, z: quantile(tests), tests: tests, replicated: m.Replicated()}
	for side, runs := range s {
		for _, run := range runs {
			j.squares[side] = append(j.squares[side], run.squares())
		}
	}
	for i, r := range rows {
		list := make([]Delta, r.N)
		for row := range list {
			list[row] = j.change(&spreads[i], row)
		}
		lists = append(lists, list)
	}
	return lists, nil
}

// both are the series of the runs of both sides, which are collected once.
func (m *Merged) both(pair int) (s [sides][]*series, err error) {
	if s, ok := m.collected[pair]; ok {
		return s, nil
	}
	for side, runs := range m.Runs {
		for run := range runs {
			one, err := m.series(pair, side, run)
			if err != nil {
				return s, err
			}
			s[side] = append(s[side], one)
		}
	}
	m.collected[pair] = s
	return s, nil
}

// judge finds the intervals of differences.
type judge struct {
	pair       *Pair
	series     [sides][]*series
	squares    [sides][]float64
	z          float64
	tests      int
	replicated bool
	students   map[int]float64 // quantiles that were needed
}

func (j *judge) change(of *[sides][][]spread, row int) Delta {
	var c Delta
	var share, amount [sides]limits
	var shares, amounts [sides]mean
	for side, runs := range of {
		spreads := make([]*spread, len(runs))
		for run := range runs {
			spreads[run] = &runs[run][row]
		}
		c.Samples[side], share[side], amount[side] = j.sampling(side, spreads)
		shares[side], amounts[side] = j.means(side, spreads)
	}
	c.Share, c.Amount = between(share[A], share[B]), between(amount[A], amount[B])
	if j.replicated {
		c.Share = c.Share.and(j.welch(shares)).within(-1, 1)
		c.Amount = c.Amount.and(j.welch(amounts))
	}
	if !c.Judged() {
		c.Share, c.Amount = c.Share.maybeNone(), c.Amount.maybeNone()
	}
	return c
}

// sampling is the samples of a row on one side, and their share and amount in the limits of the error of sampling.
func (j *judge) sampling(side int, runs []*spread) (samples uint64, share, amount limits) {
	whole := &j.pair.Whole[side]
	all, n, variance, bursts, sum := float64(whole.Samples), 0.0, 0.0, 0.0, 0.0
	for run, r := range runs {
		of := &j.pair.Runs[side][run]
		ofShare, ofNumber := r.bursts(j.series[side][run], float64(of.Samples), j.squares[side][run])
		n += r.samples
		bursts += ofNumber * r.samples
		sum += r.samples * of.Each
		if of.Samples > 0 {
			variance += ofShare * r.samples * (1 - r.samples/float64(of.Samples))
		}
	}
	p, ofShare, ofNumber, each := 0.0, 1.0, 1.0, whole.Each
	if all > 0 {
		p = n / all
	}
	if p > 0 && p < 1 {
		ofShare = max(1, variance/(n*(1-p)))
	}
	if n > 0 {
		ofNumber, each = bursts/n, sum/n/float64(len(runs))
	}
	return uint64(n), proportion(p, all/ofShare, j.z), counted(n/ofNumber, j.z).times(ofNumber * each)
}

// means are the share of a row on one side and its amount in a run, with the variances that runs show: as its
// share is that of all runs together, a run counts by its samples (the estimator of a ratio from clusters).
func (j *judge) means(side int, runs []*spread) (share, amount mean) {
	share.runs, amount.runs = len(runs), len(runs)
	n, all, count := 0.0, float64(j.pair.Whole[side].Samples), float64(len(runs))
	for run, r := range runs {
		n += r.samples
		amount.value += r.samples * j.pair.Runs[side][run].Each / count
	}
	if all > 0 {
		share.value = n / all
	}
	if count < 2 {
		return share, amount
	}
	for run, r := range runs {
		of := &j.pair.Runs[side][run]
		off := r.samples*of.Each - amount.value
		amount.variance += off * off / count / (count - 1)
		if all > 0 {
			off = (r.samples - share.value*float64(of.Samples)) / all
			share.variance += off * off * count / (count - 1)
		}
	}
	return share, amount
}

// welch is the difference of two means of runs, in the interval of Student's t by Welch.
func (j *judge) welch(of [sides]mean) Estimate {
	d, err, freedom := welch(of[A], of[B])
	t, ok := j.students[freedom]
	if !ok {
		if j.students == nil {
			j.students = make(map[int]float64)
		}
		t = student(j.tests, freedom)
		j.students[freedom] = t
	}
	return Estimate{Low: d - t*err, Value: d, High: d + t*err, Spread: true}
}
