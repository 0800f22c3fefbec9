package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"unspool/capture/output/human"
	"unspool/capture/profile/difference"
)

// VerdictResult says what frame pointers are good for on a workload. Its intervals have the confidence of package
// difference together.
type VerdictResult struct {
	// Sentence says all that follows, with the intervals, or that there are not enough samples to say it.
	Sentence string `json:"sentence"`
	// Enough: the intervals of usable and false go no further than 5 points to either side. Otherwise, about so many
	// samples are needed for that.
	Enough bool   `json:"enough"`
	Needed uint64 `json:"needed_samples"`

	Usable  PortionResult `json:"usable"`  // by frame pointers
	False   PortionResult `json:"false"`   // by frame pointers
	NoCode  PortionResult `json:"no_code"` // frame pointers lead to a word that is no address of code
	Unknown PortionResult `json:"unknown"` // whether they are usable is not known
	Reaches PortionResult `json:"dwarf_usable"`
}

// tests is how many intervals a verdict has.
const tests = 5

// mostStrata is how many tasks are strata of their own; the others are one together.
const mostStrata = 1000

// verdict computes the verdict of a comparison. images are those to blame. Its strata are the tasks: how much of the
// time each of them takes is no chance of sampling.
func (c *Comparison) verdict(samples []taskGroup, images []Blame, packages []string) *VerdictResult {
	var strata []*[tests]difference.Portion
	for j := range samples {
		of := &samples[j]
		g, at := &c.Groups[of.group], int(min(of.task, mostStrata))
		for at >= len(strata) {
			strata = append(strata, new([tests]difference.Portion))
		}
		for i, is := range [tests]bool{g.Usable == Yes, g.False, g.NoCode, g.Usable == Unknown, g.Reaches} {
			of.count(&strata[at][i], is)
		}
	}
	v := new(VerdictResult)
	for i, to := range [tests]*PortionResult{&v.Usable, &v.False, &v.NoCode, &v.Unknown, &v.Reaches} {
		var parts difference.Strata
		for _, s := range strata {
			parts = append(parts, &s[i])
		}
		*to = portionResult(parts, tests)
		if i < 2 { // usable and false
			v.Needed = max(v.Needed, parts.Needed(tests, within))
		}
	}
	v.Enough = v.Usable.Enough() && v.False.Enough()
	most := ""
	for i := range images {
		b := &images[i]
		var of difference.Portion
		of.Part[0], of.Whole[0] = float64(b.wrong), float64(v.False.Samples)
		if of.Estimate(1).Low > 0.5 {
			most = fmt.Sprintf("%s: %s", c.shortOwner(b.image, packages), b.wrongCause)
		}
	}
	v.Sentence = v.sentence(c.whose(), c.Samples, most)
	return v
}

// whose says of whom the stacks are: of a program, if all are.
func (c *Comparison) whose() string {
	program := ""
	for i, t := range c.Tasks {
		if i > 0 && t.Program != program {
			return ""
		}
		program = t.Program
	}
	return program
}

// sentence writes the verdict as the first line of everything. whose is a program, or "" for several; most is in whose
// code most of the stacks that are false are lost, and why.
func (v *VerdictResult) sentence(whose string, samples uint64, most string) string {
	stacks := human.Plural(samples, "stack")
	if whose != "" {
		stacks = whose + "'s " + stacks
	}
	var b strings.Builder
	if v.Enough {
		fmt.Fprintf(&b, "With frame pointers %s of %s are usable, %s show a call that never was",
			percentRange(&v.Usable), stacks, percentRange(&v.False))
		if most != "" {
			fmt.Fprintf(&b, " (most in %s)", most)
		}
		if v.NoCode.Share >= 0.01 {
			fmt.Fprintf(&b, ", %s a caller that is no code", percentRange(&v.NoCode))
		}
		if v.Unknown.Share >= 0.01 {
			fmt.Fprintf(&b, ", and of %s it is not known", percentRange(&v.Unknown))
		}
	} else {
		fmt.Fprintf(&b, "Not enough to say how many of %s are usable with frame pointers: it takes about %s samples", stacks,
			human.Number(twoDigits(v.Needed)))
	}
	if v.Reaches.Enough() {
		fmt.Fprintf(&b, "; with DWARF %s are.", percentRange(&v.Reaches))
	} else {
		b.WriteString(".")
	}
	return b.String()
}

// priceSentence says what profiling costs, behind the verdict: the price, or what a sample costs, as far as that is
// known.
func priceSentence(price *PriceResult, costs *Costs) string {
	switch {
	case price != nil:
		return price.sentence()
	case costs != nil:
		rate := costs.rate()
		return fmt.Sprintf(" DWARF costs %s of a busy CPU at %s Hz and frame pointers %s, only while they profile.",
			costs.Stack.percent(rate), human.Number(rate), costs.Chain.percent(rate))
	}
	return ""
}

// percent is how much of a CPU samples take at a rate.
func (c *Cost) percent(rate uint64) string {
	of := func(d time.Duration) float64 { return d.Seconds() * float64(rate) }
	return percentRange(&PortionResult{Share: of(c.Total), Low: of(c.Low), High: of(c.High)})
}

// twoDigits rounds up to two digits that are not 0.
func twoDigits(n uint64) uint64 {
	unit := uint64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}

type direction uint8

const (
	nearest direction = iota
	down
	up
)

// rounded is a share in percent with so many digits behind the point at most. The nearest of a share that is neither 0
// nor 1 is "<1" and ">99" instead of 0 and 100.
func rounded(share float64, digits int, to direction) string {
	scale := math.Pow10(digits)
	n, sign := 100*scale*share, ""
	switch to {
	case nearest:
		n = math.Round(n)
		if n >= 100*scale && share < 1 {
			n, sign = 100*scale-1, ">"
		} else if n == 0 && share > 0 {
			n, sign = 1, "<"
		}
	case down:
		n = math.Floor(n + 1e-9)
	case up:
		n = max(0, math.Ceil(n-1e-9)) // and not −0
	}
	return sign + strconv.FormatFloat(n/scale, 'f', -1, 64)
}

// A NamedPart is a part of the samples that can be asked for by name: usable, false, or a class.
type NamedPart struct {
	Share float64
	// Needed is about how many samples there would have to be to say the share; 0 if there are enough.
	Needed uint64
}

var partWords = [...]string{"usable by frame pointers", "show a call that never was"}
var partKeys = [...]string{"usable", "false"}

// PartKeys are the keys of all parts.
func PartKeys() []string { return append(partKeys[:], classKeys[:]...) }

// PartWords says in words which part a key is of.
func PartWords(key string) string {
	if i := slices.Index(partKeys[:], key); i >= 0 {
		return partWords[i]
	}
	c, _ := ClassByKey(key)
	return c.String()
}

// Part finds a part by its key.
func (r *Result) Part(key string) NamedPart {
	p := NamedPart{Share: r.Classes[key].Share}
	switch key {
	case partKeys[0]:
		p.Share = r.Verdict.Usable.Share
	case partKeys[1]:
		p.Share = r.Verdict.False.Share
	default:
		return p
	}
	if !r.Verdict.Enough {
		p.Needed = twoDigits(r.Verdict.Needed)
	}
	return p
}
