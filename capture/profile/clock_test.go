package profile

import (
	"math"
	"testing"
	"time"
)

// inZone has times by the clock be those of a zone an hour from UTC.
func inZone(t *testing.T) {
	t.Helper()
	zone := time.FixedZone("CET", 3600)
	before := time.Local
	time.Local = zone
	t.Cleanup(func() { time.Local = before })
}

func TestParseClocks(t *testing.T) {
	inZone(t)
	for text, want := range map[string]string{
		"14:03:10,14:03:20":                        "between 14:03:10 and 14:03:20",
		"14:03,":                                   "from 14:03 on",
		",2026-11-30T14:03:10":                     "until 2026-11-30T14:03:10",
		"2026-11-30 14:03,14:05:00.5":              "between 2026-11-30 14:03 and 14:05:00.5",
		"2026-11-30T14:03:10Z,2026-11-30T15:03:11": "between 2026-11-30T14:03:10Z and 2026-11-30T15:03:11",
		"2026-11-30,50%":                           "between 2026-11-30 and 50 %",
		"23:50,00:10":                              "between 23:50 and 00:10",
	} {
		times, err := ParseTimes(text)
		if err != nil || times.Within() != want {
			t.Errorf("%q: %q, %v", text, times.Within(), err)
		}
	}
	for _, bad := range []string{"14:03:10", "25:00,26:00", "14:60,", "14:03,0", "2026-11-30T14:03:10,2026-11-30T14:03:10",
		"2026-11-30T14:03:10Z,2026-11-30T15:03:10", "2026-13-01,", "14:03:10 CET,", "T14:03,"} {
		if times, err := ParseTimes(bad); err == nil {
			t.Errorf("%q is %q", bad, times.Within())
		}
	}
}

func TestClocksInARecording(t *testing.T) {
	inZone(t)
	const first = 5e9 // by the recording's clock
	day := func(d, h, m, s int) time.Time { return time.Date(2026, 11, d, h, m, s, 0, time.Local) }
	evening, noon := day(29, 23, 50, 0), day(30, 14, 3, 10)
	for _, c := range []struct {
		began    time.Time
		length   time.Duration
		times    string
		from, to time.Duration // since the first sample; -1 for its start or its end
	}{
		{noon, 30 * time.Second, "14:03:20,14:03:25", 10 * time.Second, 15 * time.Second},
		{noon, 30 * time.Second, "14:03:20.5,", 10*time.Second + time.Second/2, -1},
		{noon, 30 * time.Second, ",14:03:25", -1, 15 * time.Second},
		{noon, 30 * time.Second, "14:03,14:03:25", -1, 15 * time.Second},
		{noon, 30 * time.Second, "14:03:20,15:00", 10 * time.Second, time.Hour - 190*time.Second},
		{noon, 30 * time.Second, "2026-11-30T14:03:20,14:03:25", 10 * time.Second, 15 * time.Second},
		{noon, 30 * time.Second, "2026-11-30T13:03:20Z,2026-11-30T14:03:25+01:00", 10 * time.Second, 15 * time.Second},
		{noon, 30 * time.Second, "10,14:03:25", 10 * time.Second, 15 * time.Second},
		{noon, 30 * time.Second, "14:03:20,50%", 10 * time.Second, 15 * time.Second},
		{noon, 30 * time.Second, "2026-11-30,2026-12-01", -1, 10*time.Hour - 190*time.Second},
		{evening, 20 * time.Minute, "23:55,00:05", 5 * time.Minute, 15 * time.Minute},
		{evening, 20 * time.Minute, "00:05,", 15 * time.Minute, -1},
		{evening, 20 * time.Minute, "5m,00:05", 5 * time.Minute, 15 * time.Minute},
		{noon, 72 * time.Hour, "10:00,15:00", 20*time.Hour - 190*time.Second, 25*time.Hour - 190*time.Second},
		{noon, 72 * time.Hour, "2026-12-02T10:00,15:00", 44*time.Hour - 190*time.Second, 49*time.Hour - 190*time.Second},
	} {
		times, err := ParseTimes(c.times)
		if err != nil {
			t.Fatal(err)
		}
		p := &part{times: times, wall: func(at uint64) time.Time { return c.began.Add(time.Duration(at - first)) }}
		if err := p.begin(first, first+uint64(c.length)); err != nil {
			t.Fatal(err)
		}
		from, to := first+uint64(max(c.from, 0)), first+uint64(c.length)
		if c.to >= 0 {
			to = first + uint64(c.to) - 1
		}
		if !p.holds(from) || !p.holds(to) || c.from >= 0 && p.holds(from-1) || c.to >= 0 && p.holds(to+1) {
			t.Errorf("%s in %v from %v on: %v to %v", c.times, c.length, c.began, time.Duration(p.from-first),
				time.Duration(p.to-first))
		}
	}
	// Before it, behind it, and in the wrong order.
	for _, none := range []string{"13:00,14:00", "15:00,16:00", "14:03:25,14:03:20", ",14:03:10", "2026-11-29,2026-11-30",
		"2026-12-01,"} {
		times, err := ParseTimes(none)
		if err != nil {
			t.Fatal(err)
		}
		p := &part{times: times, wall: func(at uint64) time.Time { return noon.Add(time.Duration(at - first)) }}
		if err := p.begin(first, first+30e9); err != nil {
			t.Fatal(err)
		}
		for at := uint64(first); at <= first+30e9; at += 1e9 {
			if p.holds(at) {
				t.Errorf("%s holds %v", none, time.Duration(at-first))
			}
		}
	}
}

// TestClocksOfAHostileRecording has clocks that cannot be.
func TestClocksOfAHostileRecording(t *testing.T) {
	times, err := ParseTimes("14:03,1999-01-01")
	if err != nil {
		t.Fatal(err)
	}
	for _, began := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
		for _, at := range [][2]uint64{{0, math.MaxUint64}, {math.MaxUint64, 0}, {1, math.MaxInt64}, {math.MaxUint64, 5}} {
			p := &part{times: times, wall: func(uint64) time.Time { return time.Unix(0, began) }}
			if err := p.begin(at[0], at[1]); err != nil {
				t.Error(err)
			}
			p.holds(at[0])
		}
	}
	p := &part{times: times, wall: func(uint64) time.Time { return time.Time{} }}
	if _, err := p.sample(1); err != errNoClock {
		t.Errorf("without a clock: %v", err)
	}
}
