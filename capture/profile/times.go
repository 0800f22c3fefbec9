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
	Clock   Clock // instead of Value
}

// given reports whether the moment is not the zero value, and not 0 s or 0 %.
func (m Moment) given() bool { return m.Value > 0 || m.byClock() }

func (m Moment) byClock() bool { return m.Clock != Clock{} }

// longest is the latest Moment in seconds, more than three years.
const longest = 1e8

// ParseTimes reads FROM,TO: each is a number of seconds, a time with a unit such as 1m30s, a percentage, a time by
// the wall clock (see [Clock]), or nothing for the start or the end. As perf does, it takes 10%-20% for 10%,20%, too.
func ParseTimes(text string) (t Times, err error) {
	from, to, two := strings.Cut(text, ",")
	if !two {
		if from, to, two = strings.Cut(text, "%-"); two {
			from += "%"
		}
	}
	if !two {
		return t, fmt.Errorf("%q: must be FROM,TO: seconds from the start, as in 1.5,30, percentages, "+
			"as in 10%%,20%%, or times of day, as in 14:03:10,14:03:20", text)
	}
	if t.From, err = parseMoment(from); err != nil {
		return Times{}, err
	}
	if t.To, err = parseMoment(to); err != nil {
		return Times{}, err
	}
	end := t.To
	if to == "" && t.From.Percent {
		end = Moment{Value: 100, Percent: true}
	}
	if (to != "" || end.Percent) && !end.mayFollow(t.From) {
		return Times{}, fmt.Errorf("%q: nothing lies between these times", text)
	}
	return t, nil
}

// mayFollow reports whether m can be later than the start of a part, as far as that is known without the recording.
func (m Moment) mayFollow(from Moment) bool {
	switch {
	case m.byClock() && from.byClock():
		a, b := from.Clock.date, m.Clock.date
		return a.IsZero() || b.IsZero() || a.Before(b)
	case m.byClock() || from.byClock() || m.Percent != from.Percent:
		return m.given()
	}
	return m.Value > from.Value
}

func parseMoment(text string) (m Moment, err error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return m, nil
	}
	if m.Clock, _ = parseClock(text); m.byClock() {
		return m, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	m.Percent = percent
	if m.Value, err = strconv.ParseFloat(number, 64); err != nil {
		d, err := time.ParseDuration(text)
		if err != nil {
			return Moment{}, fmt.Errorf("%q is not a number of seconds, nor a percentage, nor a time of day", text)
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
	case !t.To.given():
		return "from " + t.From.String() + " on"
	case t.From.given():
	case t.To.byClock():
		return "until " + t.To.String()
	default:
		return "the first " + t.To.String()
	}
	return t.From.String() + " to " + t.To.String()
}

// Within is String behind "samples": "between 10 s and 20 s".
func (t Times) Within() string {
	switch {
	case !t.To.given() || !t.From.given() && t.To.byClock():
		return t.String()
	case !t.From.given():
		return "in " + t.String()
	}
	return "between " + t.From.String() + " and " + t.To.String()
}

func (m Moment) String() string {
	if m.byClock() {
		return m.Clock.text
	}
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
	wall     func(uint64) time.Time // see perfdata.Reader.WallClock
	known    bool                   // from and to are: the recording has begun
	from, to uint64                 // both included

	// Of the recording, whatever the part is. first and last are the times of its samples so far.
	first, last, samples uint64
}

// newPart finds out when a recording begins and ends, if that is needed: it is in the header of a complete
// one.
func newPart(t Times, r *perfdata.Reader) (*part, error) {
	p := &part{times: t, wall: r.WallClock}
	first, last, ok := r.SampleTimes()
	switch {
	case ok && (t.From.byClock() || t.To.byClock()), t.From.Percent, t.To.Percent:
		if !ok {
			return nil, errors.New("the recording does not say when its last sample was taken, so there are no " +
				"percentages of its time: give seconds")
		}
		return p, p.begin(first, last)
	}
	return p, nil
}

// begin is told the times of the first sample and of the last, as far as that is needed.
func (p *part) begin(first, last uint64) error {
	p.known = true
	p.from, p.to = 0, math.MaxUint64
	if p.times.From.Value > 0 {
		p.from = p.times.From.after(first, last)
	}
	if to := p.times.To; to.Value > 0 && to != (Moment{Value: 100, Percent: true}) {
		p.to = to.after(first, last) - 1
	}
	if p.times.From.byClock() || p.times.To.byClock() {
		return p.byClock(first, last)
	}
	return nil
}

// byClock sets what was given by the wall clock.
func (p *part) byClock(first, last uint64) error {
	began := p.wall(first)
	if began.IsZero() {
		return errNoClock
	}
	m := wallSpan{began, began.Add(nanoseconds(last - min(first, last)))}
	// at is how long after 0 of the recording's clock a time is, in ns.
	at := func(t time.Time) uint64 {
		after := t.Sub(began)
		if after < 0 {
			return first - min(first, uint64(-after))
		}
		return first + min(uint64(after), math.MaxUint64-first)
	}
	from := began.Add(nanoseconds(p.from - min(first, p.from)))
	if c := p.times.From.Clock; c != (Clock{}) {
		from = m.find(c)
		p.from = at(from)
	}
	if c := p.times.To.Clock; c != (Clock{}) {
		to := m.find(c)
		if p.times.From.given() {
			to = m.findAfter(c, from)
		}
		p.to = max(at(to), 1) - 1
	}
	return nil
}

// nanoseconds is a time without overflow.
func nanoseconds(n uint64) time.Duration { return time.Duration(min(n, math.MaxInt64)) }

// errNoClock is returned where a part is given by the wall clock and the recording has none.
var errNoClock = errors.New("the recording does not say at what time of day it was made " +
	"(perf record -k CLOCK_MONOTONIC notes it): give seconds from its first sample, or percentages")

// sample reports whether the part holds a sample. The first one that it is asked for begins the recording.
func (p *part) sample(time uint64) (bool, error) {
	if time == 0 && p.times != (Times{}) {
		return false, errUntimed
	}
	if !p.known {
		if err := p.begin(time, time); err != nil {
			return false, err
		}
	}
	if p.samples == 0 || time < p.first {
		p.first = time
	}
	p.last = max(p.last, time)
	p.samples++
	return p.holds(time), nil
}

// errUntimed is returned where a part of a recording without times is asked for.
var errUntimed = errors.New("the samples of this recording have no times to choose from")

// holds reports whether the part holds a time.
func (p *part) holds(time uint64) bool {
	if !p.known {
		return !p.times.From.given()
	}
	return time >= p.from && time <= p.to
}
