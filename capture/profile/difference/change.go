package difference

// A Delta is a number of samples in both recordings, and by how much it differs.
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
	spreads, tests := make([][sides][]spread, len(rows)), 0
	for i, r := range rows {
		for side := range s {
			spreads[i][side] = s[side].spreads(r)
		}
		for row := range r.N {
			if spreads[i][A][row].samples+spreads[i][B][row].samples >= fewest {
				tests++
			}
		}
	}
	j := judge{pair: &m.Pairs[pair], series: s, z: quantile(tests)}
	for side := range s {
		j.squares[side] = s[side].squares()
	}
	for i, r := range rows {
		list := make([]Delta, r.N)
		for row := range list {
			list[row] = j.change(&spreads[i][A][row], &spreads[i][B][row])
		}
		lists = append(lists, list)
	}
	return lists, nil
}

// both are the series of both sides, which are collected once.
func (m *Merged) both(pair int) (s [sides]*series, err error) {
	if s, ok := m.collected[pair]; ok {
		return s, nil
	}
	for side := range s {
		if s[side], err = m.series(pair, side); err != nil {
			return s, err
		}
	}
	m.collected[pair] = s
	return s, nil
}

// judge finds the intervals of differences.
type judge struct {
	pair    *Pair
	series  [sides]*series
	squares [sides]float64
	z       float64
}

func (j *judge) change(rows ...*spread) Delta {
	var c Delta
	var share, amount [sides]limits
	for side, r := range rows {
		whole := &j.pair.Whole[side]
		all := float64(whole.Samples)
		c.Samples[side] = uint64(r.samples)
		ofShare, ofNumber := r.bursts(j.series[side], all, j.squares[side])
		p := 0.0
		if all > 0 {
			p = r.samples / all
		}
		share[side] = proportion(p, all/ofShare, j.z)
		amount[side] = counted(r.samples/ofNumber, j.z).times(ofNumber * whole.Each)
	}
	c.Share, c.Amount = between(share[A], share[B]), between(amount[A], amount[B])
	if !c.Judged() {
		c.Share, c.Amount = c.Share.maybeNone(), c.Amount.maybeNone()
	}
	return c
}
