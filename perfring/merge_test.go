package perfring

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// untimed is a record of a user-space type, which has no trailer: its first word is the ID.
func untimed(id uint64) []byte {
	b := appendHeader(nil, RecordFinishedRound, 0)
	for i := range 8 {
		b = append(b, byte(id>>(8*i)))
	}
	b, _ = finishRecord(b, 0)
	return b
}

// TestMergeKeepsTheOrderOfTheRing merges records with equal times or none. Their IDs count up in the
// order wanted.
func TestMergeKeepsTheOrderOfTheRing(t *testing.T) {
	for _, c := range []struct {
		name  string
		rings [][][]byte
	}{
		{"equal times", [][][]byte{
			{timed(5, 1, 0), timed(5, 2, 3), timed(5, 3, 1), timed(5, 4, 0), timed(6, 5, 0)}}},
		{"equal to one that waits", [][][]byte{
			{timed(10, 1, 0), timed(20, 3, 0), timed(10, 2, 0), timed(20, 4, 0)}}},
		{"no time, behind the one before it", [][][]byte{
			{timed(10, 2, 0), untimed(3), timed(5, 1, 0), timed(11, 4, 0)}}},
		{"no time, behind one that is late", [][][]byte{
			{timed(20, 3, 0), timed(10, 1, 0), untimed(2), timed(30, 4, 0)}}},
		{"several without", [][][]byte{
			{timed(10, 1, 0), untimed(2), untimed(3), timed(10, 4, 0), untimed(5)}}},
		{"no time, and another ring in between", [][][]byte{
			{timed(10, 1, 0), untimed(2), timed(30, 4, 0)}, {timed(20, 3, 0)}}},
		{"no time, and another ring before", [][][]byte{
			{timed(10, 2, 0), untimed(3), timed(30, 4, 0)}, {timed(5, 1, 0)}}},
		{"no time at the beginning", [][][]byte{
			{untimed(1), timed(30, 3, 0)}, {timed(20, 2, 0)}}},
	} {
		var rings []ring
		var cpus []int
		written := 0
		for cpu, records := range c.rings {
			k := &fakeKernel{data: make([]byte, 512)}
			for _, r := range records {
				k.write(r)
				written++
			}
			rings, cpus = append(rings, k.ring()), append(cpus, cpu)
		}
		m := newMerger(timeFormat, rings, cpus)
		var got []uint64
		err := m.drain(math.MaxUint64, func(r Record) error {
			if r.Type() == RecordFinishedRound {
				got = append(got, Words(r.Body()).At(0))
			} else {
				got = append(got, checkTimed(t, r).ID)
			}
			return nil
		})
		if err != nil || len(got) != written || !slices.IsSorted(got) {
			t.Errorf("%s: %v of %d, %v", c.name, got, written, err)
		}
	}
}

// TestTimeThatHasNotComeYet: a record with such a time does not keep those behind it, and stays in its place.
func TestTimeThatHasNotComeYet(t *testing.T) {
	var clock uint64 = 100
	k := fakeKernel{data: make([]byte, 1024)}
	m := newMerger(timeFormat, []ring{k.ring()}, []int{0})
	m.now = func() (uint64, error) { return clock, nil }
	var got []uint64
	deliver := func(r Record) error { got = append(got, checkTimed(t, r).ID); return nil }
	for _, c := range []struct {
		now, times uint64
		want       []uint64
	}{
		{100, 90, []uint64{1, 2, 3}},
		{1 << 62, 1 << 61, []uint64{1, 2, 3}}, // the same later: what is ahead is another time
	} {
		clock, got = c.now, nil
		k.write(timed(c.times, 1, 0))
		k.write(timed(c.now+Slack+1, 2, 0))
		k.write(timed(c.times+1, 3, 0))
		if err := m.drain(clock, deliver); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("at %d: %v, %v", c.now, got, err)
		}
	}
	got = nil
	k.write(timed(clock+Slack, 1, 0)) // by a clock that is read elsewhere
	if err := m.drain(clock, deliver); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	if err := m.drain(clock+Slack, deliver); err != nil || !slices.Equal(got, []uint64{1}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestRingWhoseHeadMovesBack: if the head of a ring moves back, its records are dropped, even though the
// head is still ahead of the tail.
func TestRingWhoseHeadMovesBack(t *testing.T) {
	k := fakeKernel{data: make([]byte, 256)}
	other := fakeKernel{data: make([]byte, 256)}
	m := newMerger(timeFormat, []ring{k.ring(), other.ring()}, []int{0, 1})
	var got []uint64
	deliver := func(r Record) error { got = append(got, checkTimed(t, r).ID); return nil }
	k.write(timed(10, 1, 0))
	first := k.head
	k.write(timed(20, 2, 0))
	k.write(timed(30, 3, 0))
	if err := m.drain(10, deliver); err != nil || !slices.Equal(got, []uint64{1}) {
		t.Fatal(got, err)
	}
	k.head = first + 8 // behind 2 and 3, which wait
	other.write(timed(20, 4, 0))
	got = nil
	if err := m.drain(20, deliver); !errors.Is(err, ErrCorrupt) || !slices.Equal(got, []uint64{4}) {
		t.Errorf("%v, %v", got, err)
	}
	if k.tail != k.head {
		t.Errorf("tail %d, head %d", k.tail, k.head)
	}
	got = nil
	k.write(timed(40, 5, 1))
	if err := m.drain(50, deliver); err != nil || !slices.Equal(got, []uint64{5}) {
		t.Errorf("afterwards %v, %v", got, err)
	}
}

// TestRingWhoseHeadIsALapAhead: records that were read already are not read again, though they are valid.
func TestRingWhoseHeadIsALapAhead(t *testing.T) {
	k := fakeKernel{data: make([]byte, 256)}
	for id := range uint64(8) {
		k.write(timed(id+1, id, 1)) // 32 bytes
	}
	k.head += 32
	m := newMerger(timeFormat, []ring{k.ring()}, []int{0})
	n := 0
	if err := m.drain(math.MaxUint64, func(Record) error { n++; return nil }); !errors.Is(err, ErrCorrupt) ||
		n != 0 {
		t.Errorf("%d records, %v", n, err)
	}
}
