package human

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	cet, cest := time.FixedZone("CET", 3600), time.FixedZone("CEST", 7200)
	at := func(zone *time.Location, day, hour, second int) time.Time {
		return time.Date(2026, 11, day, hour, 3, second, 999_999_999, zone)
	}
	for want, span := range map[string][2]time.Time{
		"2026-11-30 14:03:10 to 14:03:40 UTC":                     {at(time.UTC, 30, 14, 10), at(time.UTC, 30, 14, 40)},
		"2026-11-30 14:03:10 CET (+01:00)":                        {at(cet, 30, 14, 10), at(cet, 30, 14, 10)},
		"2026-11-29 23:03:10 to 2026-11-30 00:03:10 CET (+01:00)": {at(cet, 29, 23, 10), at(cet, 30, 0, 10)},
		"2026-11-30 02:03:10 CEST (+02:00) to 02:03:40 CET (+01:00)": {
			at(cest, 30, 2, 10), at(cet, 30, 2, 40)},
		"2026-11-30 14:03:10 +03:30": {
			at(time.FixedZone("+0330", 3*3600+1800), 30, 14, 10), at(time.FixedZone("+0330", 3*3600+1800), 30, 14, 10)},
	} {
		if got := Span(span[0], span[1]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
