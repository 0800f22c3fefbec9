package human

import (
	"strings"
	"time"
)

const (
	second = "2006-01-02 15:04:05"
	clock  = "15:04:05"
)

// When writes a date and time with its zone: "2026-11-30 14:03:10 CET (+01:00)".
func When(t time.Time) string { return t.Format(second) + " " + zone(t) }

// Span writes from when to when something was, with the zone: "2026-11-30 14:03:10 to 14:03:40 UTC".
func Span(from, to time.Time) string {
	text, until := from.Format(second), to.Format(second)
	if until == text {
		return When(from)
	}
	if zone(from) != zone(to) { // summer time began or ended
		text += " " + zone(from)
	}
	if from.Format(time.DateOnly) == to.Format(time.DateOnly) {
		until = to.Format(clock)
	}
	return text + " to " + until + " " + zone(to)
}

// zone is the name of the zone, if it has one, and how far it is from UTC.
func zone(t time.Time) string {
	name, offset := t.Zone()
	far := t.Format("-07:00")
	switch {
	case name == "UTC" && offset == 0:
		return name
	case name == "" || strings.ContainsAny(name[:1], "+-"):
		return far
	}
	return name + " (" + far + ")"
}
