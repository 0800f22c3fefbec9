package difference

import "math"

// A Portion is how many samples of a recording are of some kind, of how many, in each block of its time. Where samples
// have no times, all are in one block.
type Portion struct{ Part, Whole [Blocks]float64 }

// Strata are portions that make a whole, such as those of programs. How much of the whole each of them is, is no
// chance.
type Strata []*Portion

// Estimate is the portion as a share, and the interval in which it lies. So many intervals have the Confidence
// together.
// Samples that come in bursts within a stratum count as fewer, as in Changes. Without samples, the interval is all that
// there is.
func (s Strata) Estimate(tests int) Estimate {
	part, whole, bursts := s.sums()
	return estimate(part, whole/bursts, whole, quantile(tests))
}

// Estimate is that of a single stratum.
func (p *Portion) Estimate(tests int) Estimate { return Strata{p}.Estimate(tests) }

func estimate(part, effective, whole, z float64) Estimate {
	share := 0.0
	if whole > 0 {
		share = part / whole
	}
	l := proportion(share, effective, z)
	return Estimate{Low: l.low, Value: l.value, High: l.high}
}

// Needed is how many samples the interval takes to go no further than within to either side, whichever of the
// shares that are possible turns out. Where there are not enough, it is more than there are. It is at least 1.
func (s Strata) Needed(tests int, within float64) uint64 {
	_, _, bursts := s.sums()
	e, z := s.Estimate(tests), quantile(tests)
	enough := func(samples int) bool {
		n := float64(samples)
		// Wilson's interval is lopsided. It goes furthest to one side, by z / 2√n, from a share that is as far from a half,
		// and the less far the further a share is from that one.
		most := z / 2 / math.Sqrt(n)
		for _, share := range [...]float64{0.5 - most, 0.5 + most} {
			share = min(max(share, e.Low), e.High)
			if !estimate(share*n, n, n, z).Within(within) {
				return false
			}
		}
		return true
	}
	few, many := 0, 1
	for !enough(many) {
		few, many = many, 2*many
	}
	for many-few > 1 {
		if middle := (few + many) / 2; enough(middle) {
			many = middle
		} else {
			few = middle
		}
	}
	return uint64(math.Ceil(float64(many) * bursts))
}

// Within reports whether the interval goes no further than that to either side.
func (e Estimate) Within(distance float64) bool {
	return e.High-e.Value <= distance && e.Value-e.Low <= distance
}

// sums are the samples of the kind, all of them, and by how much the variance of their share is larger than that of
// samples that are drawn by lot; at least 1.
func (s Strata) sums() (part, whole, bursts float64) {
	variance := 0.0
	for _, p := range s {
		of, all, v := p.sums()
		part += of
		whole += all
		variance += v
	}
	if part == 0 || part >= whole {
		return part, whole, 1
	}
	return part, whole, max(1, variance/(part*(1-part/whole)))
}

// sums are the samples of the kind, all of them, and the variance of the former: that of samples that are drawn by lot,
// or more if the differences between each block and the next one show more.
func (p *Portion) sums() (part, whole, variance float64) {
	used := 0
	for b := range Blocks {
		part += p.Part[b]
		whole += p.Whole[b]
		if p.Whole[b] > 0 {
			used++
		}
	}
	if part == 0 || part >= whole {
		return part, whole, 0
	}
	share, squares, before := part/whole, 0.0, 0.0
	for b := range Blocks {
		off := p.Part[b] - share*p.Whole[b] // how many are too many in the block
		if b > 0 {
			squares += (off - before) * (off - before)
		}
		before = off
	}
	variance = part * (1 - share)
	if used > 1 {
		variance = max(variance, perDifference*squares)
	}
	return part, whole, variance
}
