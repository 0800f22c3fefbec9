package perfdata

import (
	"slices"
	"testing"

	"unspool/perfring"
)

// TestOrderedDoesNotKeepRecordsWithoutATimeBack has records with the time 0 or -1, as perf gives to records
// that it synthesizes: they are delivered at their place in the recording, with time 0, and do not change the
// order of records with a time.
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
		var got []uint64
		r := streamOf(t, round, c.times)
		err := r.Ordered(func(rec perfring.Record, _ *perfring.SampleFormat, time uint64) error {
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
