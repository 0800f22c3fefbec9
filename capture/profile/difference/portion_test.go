package difference

import "testing"

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
	// 1.96² · 0.25 / 0.05² is 384.1, less 1.96² as Wilson counts it.
	if n := (Strata{&even}).Needed(1, 0.05); n != 381 {
		t.Errorf("%d are needed", n)
	}
	if n := (Strata{&bursts}).Needed(1, 0.05); n != 3024 { // 381 times 7.937
		t.Errorf("%d are needed with bursts", n)
	}
}

// What is needed is enough, and one less is not.
func TestNeeded(t *testing.T) {
	for _, c := range []struct{ part, whole, within float64 }{
		{0, 10, 0.05}, {5, 10, 0.05}, {10, 10, 0.05}, {0, 0, 0.1}, {3, 4000, 0.001}, {1, 1, 0.5}, {999, 1000, 0.01},
	} {
		var p Portion
		p.Part[0], p.Whole[0] = c.part, c.whole
		e := p.Estimate(3)
		share, n := min(max(0.5, e.Low), e.High), float64(Strata{&p}.Needed(3, c.within))
		z := quantile(3)
		if !estimate(share*n, n, n, z).Within(c.within) {
			t.Errorf("%+v: %v is not enough", c, n)
		}
		if n--; n > 0 && estimate(share*n, n, n, z).Within(c.within) {
			t.Errorf("%+v: %v would be enough", c, n)
		}
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
