package main

import (
	"fmt"
	"strconv"
)

// A limit is a figure that is required, 0 if none is.
type limit float64

func (l limit) String() string {
	if l == 0 {
		return "–"
	}
	return "≤ " + strconv.FormatFloat(float64(l), 'g', -1, 64)
}

// mark writes a figure, in bold if it is beyond the limit.
func (l limit) mark(v float64, format string) string {
	s := fmt.Sprintf(format, v)
	if l > 0 && v > float64(l) {
		return "**" + s + "**"
	}
	return s
}

// number writes a figure with about three digits.
func number(v float64) string {
	switch {
	case v >= 100:
		return thousands(int(v + 0.5))
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
