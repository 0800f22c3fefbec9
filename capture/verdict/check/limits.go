package check

import (
	"fmt"
	"strconv"
	"strings"

	"unspool/unwind"
)

// Tolerances say how much of the edges of each source may be wrong, in percent.
type Tolerances [NumSources]float64

// NoLimits allows everything.
func NoLimits() (l Tolerances) {
	for i := range l {
		l[i] = 100
	}
	return l
}

// Lower adds one more limit: "0.1" percent for all sources, or "cfi=0.01" for one.
func (l *Tolerances) Lower(text string) error {
	name, value, named := strings.Cut(text, "=")
	if !named {
		value = text
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return fmt.Errorf("%s: must be a percentage, or a source and one, as in cfi=0.01", text)
	}
	found := !named
	for i := range l {
		if !named || SourceName(unwind.Source(i)) == name {
			l[i] = min(l[i], percent)
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%s: unknown source: must be one of %s", text, strings.Join(SourceNames(), ", "))
	}
	return nil
}

// Exceeded says, in words, of which sources more edges are wrong than may be.
func (l *Tolerances) Exceeded(r *Result) (words []string) {
	for i := range l {
		c := &r.BySource[i]
		if have := 100 * c.Share(); have > l[i] {
			words = append(words, fmt.Sprintf("%s: %.3f %% of %d edges are wrong, more than %g %%",
				SourceName(unwind.Source(i)), have, c.Checked(), l[i]))
		}
	}
	return words
}

// SourceNames are those of the ways in which a caller is found.
func SourceNames() (names []string) {
	for i := range NumSources {
		if s := unwind.Source(i); s != unwind.BySample {
			names = append(names, SourceName(s))
		}
	}
	return names
}
