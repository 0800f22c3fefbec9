package difference

import "math"

// mean is the mean of runs, or a share of all of them together, and its variance as far as they show it.
type mean struct {
	value, variance float64
	runs            int
}

// welch is b less a, its standard error, and the degrees of freedom by Welch and Satterthwaite, rounded down as for
// tables of Student's t. Both have two runs or more.
func welch(a, b mean) (difference, err float64, freedom int) {
	freedom = min(a.runs, b.runs) - 1
	v := a.variance + b.variance
	if v > 0 {
		x, y := a.variance/v, b.variance/v
		freedom = max(freedom, int(1/(x*x/float64(a.runs-1)+y*y/float64(b.runs-1))+1e-9))
	}
	return b.value - a.value, math.Sqrt(v), freedom
}

// Mean is the mean of values, 0 of none, and the interval that it has but for a probability outside, by Student's t:
// infinite with fewer than two.
func Mean(values []float64, outside float64) (low, value, high float64) {
	n := float64(len(values))
	for _, v := range values {
		value += v / n
	}
	if n < 2 {
		return math.Inf(-1), value, math.Inf(1)
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - value) * (v - value)
	}
	half := Student(outside, len(values)-1) * math.Sqrt(squares/(n-1)/n)
	return value - half, value, value + half
}

// student is what quantile is, for a variance that is estimated with so many degrees of freedom.
func student(tests, freedom int) float64 {
	return Student((1-Confidence)/float64(max(tests, 1)), freedom)
}

// Student is how far from zero Student's t goes to either side with a probability of 1 - outside, which is above 0 and
// below 1, for one degree of freedom or more.
func Student(outside float64, freedom int) float64 {
	low, high := 0.0, 1.0
	for beyond(high, freedom) > outside {
		low, high = high, 2*high
	}
	for range 60 {
		if middle := (low + high) / 2; beyond(middle, freedom) > outside {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// beyond is the probability that Student's t is further from zero than t (Abramowitz and Stegun, 26.7.1).
func beyond(t float64, freedom int) float64 {
	n := float64(freedom)
	x := n / (n + t*t)
	return incompleteBeta(x, n/2, 0.5)
}

// incompleteBeta is I_x(a, b), by Lentz's method for its continued fraction (26.5.8 there).
func incompleteBeta(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2): // where the fraction converges slowly
		return 1 - incompleteBeta(1-x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	const tiny, enough = 1e-300, 1e-15
	c, d := 1.0, 1/(1-(a+b)*x/(a+1))
	f := d
	for i := 1; i < 1000; i++ {
		m := float64(i)
		for _, by := range [...]float64{
			m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m)),
			-(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1)),
		} {
			d = 1 / nonzero(1+by*d, tiny)
			c = nonzero(1+by/c, tiny)
			f *= c * d
		}
		if math.Abs(c*d-1) < enough {
			break
		}
	}
	return front * f
}

func nonzero(x, tiny float64) float64 {
	if math.Abs(x) < tiny {
		return tiny
	}
	return x
}
