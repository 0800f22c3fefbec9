package profile

import (
	"strings"
	"time"

	"unspool/capture/output/human"
)

// A Clock is a time by the wall clock, in the local zone: a time of day such as 14:03:10, or one with its date,
// 2026-11-30T14:03:10. The zero value is none.
type Clock struct {
	text string        // as it was given
	date time.Time     // zero for a time of day
	day  time.Duration // since midnight, for a time of day
}

// parseClock reads a time by the wall clock. ok is false for text of another form.
func parseClock(text string) (c Clock, ok bool) {
	c.text = text
	for _, layout := range []string{"15:04:05", "15:04"} { // seconds may have a fraction
		if t, err := time.Parse(layout, text); err == nil {
			c.day = t.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC))
			return c, true
		}
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		for _, zone := range []string{"", "Z07:00"} {
			t, err := time.ParseInLocation(layout+zone, strings.Replace(text, " ", "T", 1), time.Local)
			if err == nil {
				c.date = t
				return c, true
			}
		}
	}
	return Clock{}, false
}

// on is a time of day on the day of another time.
func (c Clock) on(day time.Time) time.Time {
	y, m, d := day.Date()
	return time.Date(y, m, d, 0, 0, int(c.day/time.Second), int(c.day%time.Second), day.Location())
}

// wallSpan is when a recording was made by the wall clock, from its first sample to its last.
type wallSpan struct{ began, ended time.Time }

// find returns the time that a Clock means in a recording: of a time of day, the first one that lies in the
// recording, or else the nearest one.
func (m wallSpan) find(c Clock) (found time.Time) {
	if !c.date.IsZero() {
		return c.date
	}
	nearest := time.Duration(-1)
	for day := m.began.AddDate(0, 0, -1); ; day = day.AddDate(0, 0, 1) {
		t := c.on(day)
		away := max(m.began.Sub(t), t.Sub(m.ended), 0)
		if nearest < 0 || away < nearest {
			nearest, found = away, t
		}
		if nearest == 0 || t.After(m.ended) {
			return found
		}
	}
}

// findAfter is find for the end of a part that begins at a time. In a recording that goes on over midnight, 00:10
// may come after 23:50.
func (m wallSpan) findAfter(c Clock, from time.Time) time.Time {
	t := m.find(c)
	if !c.date.IsZero() || t.After(from) {
		return t
	}
	for days := range 2 {
		next := c.on(from.AddDate(0, 0, days))
		if next.After(from) && !next.After(m.ended) {
			return next
		}
	}
	return t
}

// When returns when the samples were taken, in the local zone, "" if nothing is known of that.
func (p *Profile) When() string {
	switch {
	case !p.Began.IsZero():
		return human.Span(p.Began, p.Began.Add(p.Duration))
	case !p.Changed.IsZero():
		return human.When(p.Changed) + ", by the date of the file: the recording does not say"
	}
	return ""
}
