package profile

import (
	"fmt"
	"math"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/perfring"
)

func TestParseTimes(t *testing.T) {
	seconds := func(v float64) Moment { return Moment{Value: v} }
	percent := func(v float64) Moment { return Moment{Value: v, Percent: true} }
	for _, c := range []struct {
		text string
		want Times
		says string
	}{
		{"1.5,30", Times{seconds(1.5), seconds(30)}, "1.5 s to 30 s"},
		{"500ms, 1m30s", Times{seconds(0.5), seconds(90)}, "0.5 s to 90 s"},
		{"5,", Times{From: seconds(5)}, "from 5 s on"},
		{",5", Times{To: seconds(5)}, "the first 5 s"},
		{"0,5", Times{To: seconds(5)}, "the first 5 s"},
		{"10%,20%", Times{percent(10), percent(20)}, "10 % to 20 %"},
		{"10%-20%", Times{percent(10), percent(20)}, "10 % to 20 %"},
		{"0%,50%", Times{percent(0), percent(50)}, "the first 50 %"},
		{"50%,", Times{From: percent(50)}, "from 50 % on"},
		{"2,90%", Times{seconds(2), percent(90)}, "2 s to 90 %"},
		{",", Times{}, ""},
	} {
		got, err := ParseTimes(c.text)
		if err != nil || got != c.want || got.String() != c.says {
			t.Errorf("%q: %+v, %q, %v", c.text, got, got, err)
		}
	}
	for _, bad := range []string{"", "5", "10%", "5,5", "6,5", "5,0", "20%,10%", "100%,", "0%,0%", "-1,5",
		"5,-6", "90%,101%", "NaN,5", "5,Inf", "1e99,", "a,b", "1,2,3", "1%%,2%", "5,0%"} {
		if got, err := ParseTimes(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func TestTimesWithin(t *testing.T) {
	for text, want := range map[string]string{
		"1.5,30": "between 1.5 s and 30 s", "5,": "from 5 s on", ",5%": "in the first 5 %",
	} {
		if times, err := ParseTimes(text); err != nil || times.Within() != want {
			t.Errorf("%q: %q, %v", text, times.Within(), err)
		}
	}
}

func TestPartHolds(t *testing.T) {
	const first, last = 1e9, 11e9
	for _, c := range []struct {
		times    string
		from, to uint64 // both are in it, and their neighbours are not
	}{
		{",", 0, math.MaxUint64},
		{"2,4", 3e9, 5e9 - 1},
		{",4", 0, 5e9 - 1},
		{"0%,50%", 0, 6e9 - 1},
		{"50%,100%", 6e9, math.MaxUint64},
		{"10%,3", 2e9, 4e9 - 1},
		{"100000000,", 1e17 + 1e9, math.MaxUint64},
	} {
		times, err := ParseTimes(c.times)
		if err != nil {
			t.Fatal(err)
		}
		p := &part{times: times}
		p.begin(first, last)
		if !p.holds(c.from) || !p.holds(c.to) || c.from > 0 && p.holds(c.from-1) ||
			c.to < math.MaxUint64 && p.holds(c.to+1) {
			t.Errorf("%s: %d to %d", c.times, p.from, p.to)
		}
	}
	// Times of a hostile recording.
	const late = math.MaxUint64
	for _, span := range [][2]uint64{{late, 0}, {0, late}, {late, late}} {
		p := &part{times: Times{Moment{Value: 10, Percent: true}, Moment{Value: 5}}}
		p.begin(span[0], span[1])
		p.holds(0)
	}
}

func TestPartOfUntimedSamples(t *testing.T) {
	if in, err := new(part).sample(0); !in || err != nil {
		t.Errorf("a sample without a time: %t, %v", in, err)
	}
	if _, err := (&part{times: Times{To: Moment{Value: 1}}}).sample(0); err == nil {
		t.Error("the first second of samples without times")
	}
}

// Parts of a recording have all its samples, each once.
func TestTimesPartARecording(t *testing.T) {
	t.Parallel()
	path := record(t, "-g", "--buildid") // with the times of the first and the last sample
	whole := load(t, path)
	for _, cut := range []string{"30%", fmt.Sprintf("%g", 0.3*whole.Duration.Seconds())} {
		var sum uint64
		for _, text := range []string{"," + cut, cut + ","} {
			times, err := ParseTimes(text)
			if err != nil {
				t.Fatal(err)
			}
			p := loadWith(t, path, Options{Filter: Filter{Times: times}})
			if n := p.Count(); n == 0 || n == whole.Count() || p.Duration >= whole.Duration*8/10 {
				t.Errorf("%s: %d of %d samples in %v of %v", text, n, whole.Count(), p.Duration, whole.Duration)
			}
			sum += p.Count()
		}
		if sum != whole.Count() {
			t.Errorf("cut at %s: %d samples, want %d", cut, sum, whole.Count())
		}
	}
}

// A recording that was cut does not say how long it is.
func TestPercentagesNeedAnEnd(t *testing.T) {
	path := t.TempDir() + "/empty"
	w, err := perfdata.Create(perfdata.Options{Path: path, Events: []perfring.Attr{{Name: "cpu-clock"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	half := Filter{Times: Times{To: Moment{Value: 50, Percent: true}}}
	if _, err := Load(r, symbols.New(symbols.Options{}), Options{Filter: half}); err == nil {
		t.Error("half of an unknown time")
	}
}
