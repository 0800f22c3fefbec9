package difference

import (
	"math"
	"testing"
)

// Shares of Wilson's intervals as tables have them: 81 of 263, and 0 and 20 of 20 (Newcombe, Two-sided confidence
// intervals for the single proportion, Statistics in Medicine 17 (1998), table I: method 3).
func TestPortionsOfNewcombe(t *testing.T) {
	for _, c := range []struct{ part, whole, low, high float64 }{
		{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718},
		{0, 0, 0, 1},
	} {
		var p Portion
		p.Part[0], p.Whole[0] = c.part, c.whole
		e := p.Estimate(1)
		if !near(e.Low, c.low, 0.00005) || !near(e.High, c.high, 0.00005) || c.whole > 0 && e.Value != c.part/c.whole {
			t.Errorf("%+v: %+v", c, e)
		}
	}
}

// 1,000 samples of which half are of the kind: in every block, they say as much as if they were drawn by lot. In
// every second pair of blocks all and then none, they say less.
func TestPortionsInBursts(t *testing.T) {
	var even, bursts Portion
	for b := range Blocks {
		even.Part[b], even.Whole[b], bursts.Whole[b] = 4, 8, 8
		if b%4 < 2 {
			bursts.Part[b] = 8
		}
	}
	lot, less := even.Estimate(1), bursts.Estimate(1)
	if half := (lot.High - lot.Low) / 2; !near(half, 1.96*0.5/32, 0.0005) { // √1,024 is 32
		t.Errorf("±%v", half)
	}
	// Of the differences from block to block, every second one is 8 and the others are 0: 63 squares of 64. Times 128
	// / 254 that is a variance of 2,032, where the lot has 256: 7.94 times as much. The square of Wilson's interval
	// grows with the inverse of the number plus 1.96² instead: (1,024 + 3.84) / (1,024 / 7.94 + 3.84).
	if of := (less.High - less.Low) / (lot.High - lot.Low); !near(of*of, 7.74, 0.005) {
		t.Errorf("a variance of %v times", of*of)
	}
	// 1.96² · 0.25 / 0.05² is 384.1: so many if 0.45 and 0.55 are possible. Of the lot, 0.469 is the least that is, and
	// its interval goes up by 0.05004 with 383 samples, and by 0.04997 with 384.
	if n := (Strata{&even}).Needed(1, 0.05); n != 384 {
		t.Errorf("%d are needed", n)
	}
	if n := (Strata{&bursts}).Needed(1, 0.05); n != 3056 { // 385 times 7.9375
		t.Errorf("%d are needed with bursts", n)
	}
}

// What is needed is enough for every share that is possible, and one less is not: the share that goes furthest to one
// side is z / 2√n from a half, or the possible one that is nearest to that.
func TestNeeded(t *testing.T) {
	for _, c := range []struct{ part, whole, within float64 }{
		{0, 10, 0.05}, {5, 10, 0.05}, {10, 10, 0.05}, {0, 0, 0.1}, {3, 4000, 0.001}, {1, 1, 0.5}, {999, 1000, 0.01},
		{296, 657, 0.05}, {361, 657, 0.05},
	} {
		var p Portion
		p.Part[0], p.Whole[0] = c.part, c.whole
		e, n, z := p.Estimate(3), float64(Strata{&p}.Needed(3, c.within)), quantile(3)
		enough := func(n float64) bool {
			shares := []float64{0.5 - z/2/math.Sqrt(n), 0.5 + z/2/math.Sqrt(n)}
			for i := range 1001 {
				shares = append(shares, e.Low+(e.High-e.Low)*float64(i)/1000)
			}
			for _, share := range shares {
				share = min(max(share, e.Low), e.High)
				if !estimate(share*n, n, n, z).Within(c.within) {
					return false
				}
			}
			return true
		}
		if !enough(n) {
			t.Errorf("%+v: %v is not enough", c, n)
		}
		if n--; n > 0 && enough(n) {
			t.Errorf("%+v: %v would be enough", c, n)
		}
	}
}

// Whoever has too few samples is told of more than there are.
func TestMoreIsNeeded(t *testing.T) {
	tooFew := 0
	for whole := 640.0; whole < 680; whole++ {
		for part := range int(whole) + 1 {
			var p Portion
			p.Part[0], p.Whole[0] = float64(part), whole
			if e := p.Estimate(5); e.Within(0.05) {
				continue
			}
			tooFew++
			if n := (Strata{&p}).Needed(5, 0.05); float64(n) <= whole {
				t.Errorf("%d of %v are not enough, and %d are needed", part, whole, n)
			}
		}
	}
	if tooFew == 0 {
		t.Error("all are enough")
	}
}

// A program that is of the kind and then another that is not say as much as samples that are drawn by lot; the same as
// one program say less, as that has changed.
func TestStrata(t *testing.T) {
	var one, first, second Portion
	for b := range Blocks {
		one.Whole[b] = 80
		if b < Blocks/2 {
			one.Part[b], first.Part[b], first.Whole[b] = 80, 80, 80
		} else {
			second.Whole[b] = 80
		}
	}
	// One difference of 80: 128 / 254 · 6,400 is 3,225, where the lot has 2,560.
	if _, _, bursts := (Strata{&one}).sums(); !near(bursts, 1.26, 0.001) {
		t.Errorf("%v", bursts)
	}
	part, whole, bursts := Strata{&first, &second}.sums()
	if part != 5120 || whole != 10240 || bursts != 1 {
		t.Errorf("%v of %v, %v", part, whole, bursts)
	}
}
