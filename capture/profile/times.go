package profile

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"unspool/capture/perfdata"
)

// Times is a part of a recording: what was sampled at From or later, and before To. The zero value is all of
// it.
type Times struct{ From, To Moment }

// Moment is a time in a recording. The zero value is the recording's start or, for Times.To, its end.
type Moment struct {
	// Value is a number of seconds after the first sample, or a percentage of the time from the first sample
	// to the last.
	Value   float64
	Percent bool
}

// longest is the latest Moment in seconds, more than three years.
const longest = 1e8

// ParseTimes reads FROM,TO: each is a number of seconds, a time with a unit such as 1m30s, a percentage, or
// nothing for the start or the end. As perf does, it takes 10%-20% for 10%,20%, too.
func ParseTimes(text string) (t Times, err error) {
	from, to, two := strings.Cut(text, ",")
	if !two {
		if from, to, two = strings.Cut(text, "%-"); two {
			from += "%"
		}
	}
	if !two {
		return t, fmt.Errorf("%q: must be FROM,TO: seconds from the start, as in 1.5,30, or percentages, "+
			"as in 10%%,20%%", text)
	}
	if t.From, err = parseMoment(from); err != nil {
		return Times{}, err
	}
	if t.To, err = parseMoment(to); err != nil {
		return Times{}, err
	}
	end := t.To
	if to == "" && t.From.Percent {
		end = Moment{100, true}
	}
	given, alike := to != "" || end.Percent, end.Percent == t.From.Percent
	if given && (end.Value == 0 || alike && end.Value <= t.From.Value) {
		return Times{}, fmt.Errorf("%q: nothing lies between these times", text)
	}
	return t, nil
}

func parseMoment(text string) (m Moment, err error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return m, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	m.Percent = percent
	if m.Value, err = strconv.ParseFloat(number, 64); err != nil {
		d, err := time.ParseDuration(text)
		if err != nil {
			return Moment{}, fmt.Errorf("%q is not a number of seconds, nor a percentage", text)
		}
		m.Value = d.Seconds()
	}
	switch {
	case percent && !(m.Value >= 0 && m.Value <= 100): // not a number, too
		return Moment{}, fmt.Errorf("%q: must be 0%% to 100%%", text)
	case !(m.Value >= 0 && m.Value <= longest):
		return Moment{}, fmt.Errorf("%q: must not be negative or longer than three years", text)
	}
	return m, nil
}

// String describes the times, "" for all: "10 s to 20 s".
func (t Times) String() string {
	switch {
	case t == Times{}:
		return ""
	case t.To.Value == 0:
		return "from " + t.From.String() + " on"
	case t.From.Value == 0:
		return "the first " + t.To.String()
	}
	return t.From.String() + " to " + t.To.String()
}

// Within is String behind "samples": "between 10 s and 20 s".
func (t Times) Within() string {
	switch {
	case t.To.Value == 0:
		return t.String()
	case t.From.Value == 0:
		return "in " + t.String()
	}
	return "between " + t.From.String() + " and " + t.To.String()
}

func (m Moment) String() string {
	unit := " s"
	if m.Percent {
		unit = " %"
	}
	return strconv.FormatFloat(m.Value, 'f', -1, 64) + unit
}

// after is the moment in ns of the recording's clock.
func (m Moment) after(first, last uint64) uint64 {
	ns := m.Value * 1e9
	if m.Percent {
		ns = m.Value / 100 * float64(last-min(first, last))
	}
	if ns >= float64(math.MaxUint64-first) {
		return math.MaxUint64
	}
	return first + uint64(ns)
}

// part is Times in ns of the recording's clock.
type part struct {
	times    Times
	known    bool   // from and to are: the recording has begun
	from, to uint64 // both included
}

// newPart finds out when a recording begins and ends, if that is needed: it is in the header of a complete
// one.
func newPart(t Times, r *perfdata.Reader) (*part, error) {
	p := &part{times: t}
	if t.From.Percent || t.To.Percent {
		first, last, ok := r.SampleTimes()
		if !ok {
			return nil, errors.New("the recording does not say when its last sample was taken, so there are no " +
				"percentages of its time: give seconds")
		}
		p.begin(first, last)
	}
	return p, nil
}

// begin is told the times of the first sample and of the last, as far as that is needed.
func (p *part) begin(first, last uint64) {
	p.known = true
	p.from, p.to = 0, math.MaxUint64
	if p.times.From.Value > 0 {
		p.from = p.times.From.after(first, last)
	}
	if to := p.times.To; to.Value > 0 && to != (Moment{100, true}) {
		p.to = to.after(first, last) - 1
	}
}

// sample says whether the part holds a sample. The first one that it is asked for begins the recording.
func (p *part) sample(time uint64) (bool, error) {
	if time == 0 && p.times != (Times{}) {
		return false, errUntimed
	}
	if !p.known {
		p.begin(time, time)
	}
	return p.holds(time), nil
}

// errUntimed is returned where a part of a recording without times is asked for.
var errUntimed = errors.New("the samples of this recording have no times to choose from")

// holds says whether the part holds a time.
func (p *part) holds(time uint64) bool {
	if !p.known {
		return p.times.From.Value == 0
	}
	return time >= p.from && time <= p.to
}
