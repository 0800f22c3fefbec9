package perfdata

import (
	"bytes"
	"slices"
	"testing"

	"unspool/perfring"
)

// TestOrderedDoesNotKeepRecordsWithoutATimeBack has records of the time 0 or -1, which perf gives to
// what it made up: they come as they stand, told of as time 0, and move nothing of what has a time.
func TestOrderedDoesNotKeepRecordsWithoutATimeBack(t *testing.T) {
	const (
		round = 1<<64 - 2
		none  = 1<<64 - 1
	)
	for _, c := range []struct {
		name  string
		times []uint64
		want  []uint64 // in the order of delivery, 0 for a record without
	}{
		{"-1 among others", []uint64{5, none, 3, 9}, []uint64{0, 3, 5, 9}},
		{"0 among others", []uint64{5, 0, 3, 9}, []uint64{0, 3, 5, 9}},
		{"-1 at the end of a round", []uint64{5, 8, none, round, 4, 9, round, 6, round},
			[]uint64{0, 4, 5, 8, 6, 9}},
		{"-1 in every round", []uint64{none, 5, round, none, 4, round, none, 8, round, none},
			[]uint64{0, 0, 4, 5, 0, 0, 8}},
	} {
		var out bytes.Buffer
		w, err := Create(Options{Path: "-", Out: &out, Events: twoEvents()})
		if err != nil {
			t.Fatal(err)
		}
		for _, time := range c.times {
			if time == round {
				err = w.Round()
			} else {
				err = w.Write(sample(11, time, 1, 2))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		closeWriter(t, w)
		r, err := newReader("stream", &out, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		err = r.Ordered(func(rec perfring.Record, _ *perfring.Format, time uint64) error {
			if rec.Type() != perfring.RecordFinishedRound {
				got = append(got, time)
			}
			return nil
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v, %v", c.name, got, c.want, err)
		}
	}
}
