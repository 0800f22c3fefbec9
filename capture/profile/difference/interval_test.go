package difference

import (
	"math"
	"testing"
)

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

// The intervals of R. G. Newcombe, Interval estimation for the difference between independent proportions,
// Statistics in Medicine 17 (1998), table II, method 10.
func TestIntervalsOfNewcombe(t *testing.T) {
	z := quantile(1)
	for _, c := range []struct{ k1, n1, k2, n2, low, high float64 }{
		{56, 70, 48, 80, 0.0524, 0.3339},
		{9, 10, 3, 10, 0.1705, 0.8090},
		{6, 7, 2, 7, 0.0582, 0.8062},
		{5, 56, 0, 29, -0.0381, 0.1926},
		{0, 10, 0, 20, -0.1611, 0.2775},
		{10, 10, 0, 20, 0.6791, 1},
		{10, 10, 0, 10, 0.6075, 1},
	} {
		e := between(proportion(c.k2/c.n2, c.n2, z), proportion(c.k1/c.n1, c.n1, z))
		if !near(e.Low, c.low, 0.00005) || !near(e.High, c.high, 0.00005) ||
			!near(e.Value, c.k1/c.n1-c.k2/c.n2, 1e-12) {
			t.Errorf("%+v: %+v", c, e)
		}
		if e.ExcludesZero() != (c.low > 0) {
			t.Errorf("%+v: significant %v", c, e.ExcludesZero())
		}
	}
}

func TestQuantile(t *testing.T) {
	// Tables of the normal distribution: 2.5 %, 0.25 % and 0.0025 % to either side.
	for tests, want := range map[int]float64{0: 1.9600, 1: 1.9600, 10: 2.8070, 1000: 4.0556} {
		if got := quantile(tests); !near(got, want, 0.0001) {
			t.Errorf("%d: %v, want %v", tests, got, want)
		}
	}
}

func TestCounted(t *testing.T) {
	// 10 + 2² / 2 ± 2 √(10 + 2² / 4) = 12 ± 2 √11, and 0 + 2 ± 2.
	for n, want := range map[float64]limits{10: {5.3668, 10, 18.6332}, 0: {0, 0, 4}} {
		got := counted(n, 2)
		if !near(got.low, want.low, 0.0001) || got.value != want.value || !near(got.high, want.high, 0.0001) {
			t.Errorf("%v: %+v, want %+v", n, got, want)
		}
	}
}

// The error is on the side of zero, so that what is printed behind ± reports whether it is significant.
func TestErrorIsTowardsZero(t *testing.T) {
	for _, c := range []struct {
		e    Estimate
		want float64
	}{{Estimate{1, 3, 9, true}, 2}, {Estimate{-9, -3, -1, true}, 2}, {Estimate{-2, 0, 3, true}, 2}} {
		if got := c.e.Error(); got != c.want || c.e.ExcludesZero() != (math.Abs(c.e.Value) > got) {
			t.Errorf("%+v: %v, significant %v", c.e, got, c.e.ExcludesZero())
		}
	}
}
