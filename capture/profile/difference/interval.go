package difference

import "math"

// Confidence is that of all differences of a list together: in so many of a hundred pairs of recordings that
// do not differ, none of the list is called significant.
const Confidence = 0.95

// fewest is how many samples two recordings must have of something, together, to be judged at all. What has
// less could hardly be significant, so the confidence is not divided among it, and it is never significant.
const fewest = 10

// An Estimate is a difference, B less A, and the interval in which it lies with the list's confidence.
type Estimate struct {
	Low, Value, High float64
	Spread           bool // the interval has the spread between runs, and not the error of sampling alone
}

// ExcludesZero reports whether zero lies outside of the interval.
func (e Estimate) ExcludesZero() bool { return e.Low > 0 || e.High < 0 }

// Significant reports whether zero lies outside of an interval that has the spread between runs.
func (e Estimate) Significant() bool { return e.Spread && e.ExcludesZero() }

// maybeNone is the estimate with zero in the interval.
func (e Estimate) maybeNone() Estimate {
	e.Low, e.High = min(e.Low, 0), max(e.High, 0)
	return e
}

// and is the estimate with the interval that has both.
func (e Estimate) and(o Estimate) Estimate {
	return Estimate{min(e.Low, o.Low), e.Value, max(e.High, o.High), e.Spread || o.Spread}
}

// within is the estimate with the interval as far as it can be.
func (e Estimate) within(low, high float64) Estimate {
	e.Low, e.High = max(e.Low, low), min(e.High, high)
	return e
}

// Error is how far the interval goes from the value towards zero: the value is larger where it is
// significant.
func (e Estimate) Error() float64 {
	if e.Value < 0 {
		return e.High - e.Value
	}
	return e.Value - e.Low
}

// quantile is how many standard deviations the interval of one of so many differences is to either side, for
// all to have the confidence together (Bonferroni).
func quantile(tests int) float64 {
	return math.Sqrt2 * math.Erfinv(1-(1-Confidence)/float64(max(tests, 1)))
}

// limits are a value and the interval around it.
type limits struct{ low, value, high float64 }

// proportion is a share of n samples (Wilson's score interval): it is right for shares near 0 and 1, too.
func proportion(share, n, z float64) limits {
	if n == 0 {
		return limits{0, 0, 1}
	}
	z2 := z * z / n
	middle := (share + z2/2) / (1 + z2)
	half := math.Sqrt(share*(1-share)*z2+z2*z2/4) / (1 + z2)
	return limits{max(0, min(middle-half, share)), share, min(1, max(middle+half, share))}
}

// counted is how many samples are expected where n were taken (the score interval of a Poisson distribution).
func counted(n, z float64) limits {
	half := z * math.Sqrt(n+z*z/4)
	return limits{max(0, n+z*z/2-half), n, n + z*z/2 + half}
}

// times scales limits.
func (l limits) times(f float64) limits { return limits{l.low * f, l.value * f, l.high * f} }

// between is the difference of two independent values (Newcombe's method: squares of the distances to the
// limits add up). Near 0 and 1 the distances to either side differ, so a function that one recording does not
// have is judged by how many samples it could have had there.
func between(a, b limits) Estimate {
	d := b.value - a.value
	return Estimate{
		Low:   d - math.Hypot(b.value-b.low, a.high-a.value),
		Value: d,
		High:  d + math.Hypot(b.high-b.value, a.value-a.low),
	}
}
