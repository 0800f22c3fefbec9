package builds

import (
	"math"
	"time"

	"unspool/capture/profile/difference"
)

// The builds.
const (
	A = iota
	B
	builds
)

// Used is what one run of a build has used.
type Used struct{ Wall, CPU time.Duration }

// A Round is a run of each build.
type Round [builds]Used

// First is the build that runs first in a round, by its number from 0 up: they take turns, A B, B A, so that what
// gets steadily slower or faster is in both.
func First(round int) int { return round % builds }

// A Ratio is by how much more of A's time B takes, as a share of that: 0.01 is 1 % more.
type Ratio struct {
	Low, Value, High float64
	Known            bool // there is an interval: Low and High are infinite with one round
}

// ExcludesZero reports whether one takes more time, by the interval.
func (r *Ratio) ExcludesZero() bool { return r.Known && (r.Low > 0 || r.High < 0) }

// Within reports whether the interval goes no further than distance to either side.
func (r *Ratio) Within(distance float64) bool {
	return r.Known && r.High-r.Value <= distance && r.Value-r.Low <= distance
}

// Rounds are the rounds so far.
type Rounds []Round

// Precise is how far the interval of the CPU time goes at most, to either side, when there are rounds enough.
const Precise = 0.005

// firstLook is after how many rounds the interval is looked at first.
const firstLook = 8

// looks is how many looks there were before the last of so many rounds was over.
func looks(rounds int) (n int) {
	for at := firstLook; at < rounds; at *= 2 {
		n++
	}
	return n
}

// Enough reports whether the rounds can end, as the interval of the CPU time is narrow enough. It is false but for
// rounds after which one looks.
func (r Rounds) Enough() bool {
	n := looks(len(r))
	if len(r) != firstLook<<n {
		return false
	}
	cpu := r.ratio(cpuOf, ofLook(n))
	return cpu.Within(Precise)
}

// Wall and CPU are the differences of the times of all rounds, when no more follow.
func (r Rounds) Wall() Ratio { return r.ratio(wallOf, r.left()) }

// CPU is that of CPU time: see Wall.
func (r Rounds) CPU() Ratio { return r.ratio(cpuOf, r.left()) }

// left is the probability with which the last interval may be wrong: that of the look after which rounds end, or where
// they end for another reason all that the looks before have left.
func (r Rounds) left() float64 {
	if r.Enough() {
		return ofLook(looks(len(r)))
	}
	return math.Ldexp(1-difference.Confidence, -looks(len(r)))
}

// ofLook is the probability with which the interval may be wrong that one sees at a look, after so many others.
func ofLook(before int) float64 { return math.Ldexp(1-difference.Confidence, -before-1) }

func wallOf(u *Used) time.Duration { return u.Wall }
func cpuOf(u *Used) time.Duration  { return u.CPU }

// ratio is the difference of a time, whose interval is wrong with a probability.
func (r Rounds) ratio(of func(*Used) time.Duration, wrong float64) Ratio {
	logs := make([]float64, len(r))
	for i := range r {
		logs[i] = math.Log(seconds(of(&r[i][B])) / seconds(of(&r[i][A])))
	}
	low, mean, high := difference.Mean(logs, wrong)
	ratio := Ratio{math.Inf(-1), math.Expm1(mean), math.Inf(1), len(r) > 1}
	if ratio.Known {
		ratio.Low, ratio.High = math.Expm1(low), math.Expm1(high)
	}
	return ratio
}

// seconds is a time that is not too short to be divided by.
func seconds(d time.Duration) float64 { return max(d, time.Microsecond).Seconds() }

// mean is the mean of a time of a build.
func (r Rounds) mean(build int, of func(*Used) time.Duration) float64 {
	sum := 0.0
	for i := range r {
		sum += of(&r[i][build]).Seconds()
	}
	return sum / float64(max(1, len(r)))
}
