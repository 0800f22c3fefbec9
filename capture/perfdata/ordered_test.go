package perfdata

import (
	"bytes"
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"unspool/perfring"
)

// stream is a pipe of samples with these times; 0 means the end of a round.
func stream(t *testing.T, times ...uint64) *Reader {
	t.Helper()
	return streamOf(t, 0, times)
}

// streamOf is a pipe of samples with these times, in which round means the end of a round.
func streamOf(t *testing.T, round uint64, times []uint64) *Reader {
	t.Helper()
	var out bytes.Buffer
	w, err := Create(Options{Path: "-", Out: &out, Events: twoEvents()})
	if err != nil {
		t.Fatal(err)
	}
	for _, time := range times {
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
	return r
}

func TestOrderedSortsWithinRounds(t *testing.T) {
	for _, test := range []struct {
		name        string
		times, want []uint64
		limit       int
	}{
		{"in order", []uint64{1, 2, 3}, []uint64{1, 2, 3}, maxQueue},
		{"no rounds", []uint64{3, 1, 2}, []uint64{1, 2, 3}, maxQueue},
		{"across one round", []uint64{5, 9, 0, 4, 8, 0, 10, 0}, []uint64{4, 5, 8, 9, 10}, maxQueue},
		{"many rounds", []uint64{1, 4, 0, 3, 7, 0, 6, 9, 0, 8, 0}, []uint64{1, 3, 4, 6, 7, 8, 9}, maxQueue},
		{"too late for its round", []uint64{5, 0, 6, 0, 1, 7, 0}, []uint64{5, 1, 6, 7}, maxQueue},
		{"more than fits", []uint64{9, 8, 7, 6, 5, 4, 3, 2}, []uint64{6, 7, 4, 5, 2, 3, 8, 9}, 700},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []uint64
			q := queue{limit: test.limit}
			err := stream(t, test.times...).ordered(&q,
				func(rec perfring.Record, f *perfring.SampleFormat, time uint64) error {
					if rec.Type() == perfring.RecordFinishedRound {
						return nil
					}
					if at, ok := f.Time(rec); !ok || at != time {
						t.Errorf("record of time %d comes with %d", at, time)
					}
					got = append(got, time)
					return nil
				})
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v, %v", got, test.want, err)
			}
		})
	}
}

func TestOrderedHoldsAFewRoundsOnly(t *testing.T) {
	var times []uint64
	for i := range 10000 {
		times = append(times, uint64(2*i+1), uint64(2*i+2))
		if i%10 == 9 {
			times = append(times, 0)
		}
	}
	q := queue{limit: maxQueue}
	most := 0
	err := stream(t, times...).ordered(&q, func(perfring.Record, *perfring.SampleFormat, uint64) error {
		most = max(most, len(q.items))
		return nil
	})
	if err != nil || most > 40 || q.held > 64<<10 {
		t.Errorf("%d records, %d bytes kept back, %v", most, q.held, err)
	}
}

// TestFewRecordsDoNotHoldARecording has a short record in each block that waits for its turn, and one that is kept by
// whoever it was handed to: they do not keep all blocks alive.
func TestFewRecordsDoNotHoldARecording(t *testing.T) {
	var out bytes.Buffer
	w, err := Create(Options{Path: "-", Out: &out, Events: twoEvents()})
	if err != nil {
		t.Fatal(err)
	}
	untimed := appendHeader(nil, perfring.RecordType(500), 0, 32<<10)
	untimed = append(untimed, make([]byte, 32<<10-len(untimed))...)
	const blocks, most = 60, 8
	for i := range blocks {
		if err := w.Write(sample(11, uint64(1000-i), 1, 2)); err != nil {
			t.Fatal(err)
		}
		for range blockSize / len(untimed) {
			if err := w.Write(untimed); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeWriter(t, w)
	for _, keep := range []bool{false, true} {
		r, err := newReader("stream", bytes.NewReader(out.Bytes()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.data.pool.most = most
		var times []uint64
		var records []perfring.Record
		if err := r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, time uint64) error {
			if time != 0 {
				times = append(times, time)
			}
			if kept, k := r.Keep(rec); keep {
				records = append(records, kept)
			} else {
				r.Release(k)
			}
			return nil
		}); err != nil || len(times) != blocks || !slices.IsSorted(times) {
			t.Errorf("%d records in order, want %d: %v; %v", len(times), blocks, times, err)
		}
		for i, rec := range records {
			if size := rec.Size(); size != len(rec) || i >= len(records)-blocks && rec.Type() != perfring.RecordSample {
				t.Fatalf("kept record %d has %d bytes, and says %d, of %v", i, len(rec), size, rec.Type())
			}
		}
		if n := r.data.pool.made; n > most+2 {
			t.Errorf("kept: %v: %d blocks are held, want at most %d", keep, n, most+2)
		}
		r.Close()
	}
}

func TestOrderedPassesErrorsOn(t *testing.T) {
	stop := errors.New("stop")
	for _, times := range [][]uint64{{1, 2}, {1, 0, 2, 0, 3, 0}} {
		if err := stream(t, times...).Ordered(func(perfring.Record, *perfring.SampleFormat, uint64) error {
			return stop
		}); err != stop {
			t.Error(err)
		}
	}
}

// The events have different samples, so that a record whose ID belongs to none of them cannot be decoded.
func TestRecordsOfUnknownEventsAreCounted(t *testing.T) {
	events := twoEvents()
	events[1].PerfEventAttr.Sample_type |= 1 << 3 // PERF_SAMPLE_ADDR
	var out bytes.Buffer
	w, err := Create(Options{Path: "-", Out: &out, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{11, 999, 13} {
		if err := w.Write(sample(id, 5, 1, 2)); err != nil {
			t.Fatal(err)
		}
	}
	closeWriter(t, w)
	r, err := newReader("stream", &out, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := r.Ordered(func(perfring.Record, *perfring.SampleFormat, uint64) error { n++; return nil }); err != nil ||
		n != 2 || r.Unknown() != 1 {
		t.Errorf("%d records, %d unknown, %v", n, r.Unknown(), err)
	}
	if r.Event(14) != 1 || r.Event(999) != -1 {
		t.Errorf("events %d and %d", r.Event(14), r.Event(999))
	}
}

// Records of the same time stay in the order of the recording, however many rings they come from.
func TestSortIsStable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		var q queue
		for range rng.IntN(40) {
			start := rng.Uint64N(50)
			for range rng.IntN(20) {
				q.add(queued{time: start, rec: make([]byte, len(q.items))})
				start += rng.Uint64N(3)
			}
		}
		want := slices.Clone(q.items)
		slices.SortStableFunc(want, func(a, b queued) int { return cmp.Compare(a.time, b.time) })
		q.sort()
		same := func(a, b queued) bool { return a.time == b.time && len(a.rec) == len(b.rec) }
		if !slices.EqualFunc(q.items, want, same) || q.unsorted {
			t.Fatalf("round %d: %d items are not in order", round, len(q.items))
		}
	}
}
