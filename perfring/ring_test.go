package perfring

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// fakeKernel writes records into memory of our own as the kernel does into a ring.
type fakeKernel struct {
	data       []byte
	head, tail uint64
}

func (k *fakeKernel) ring() ring { return newRing(k.data, &k.head, &k.tail) }

// write appends a record; false when there is no room.
func (k *fakeKernel) write(r []byte) bool {
	if k.head+uint64(len(r))-k.tail > uint64(len(k.data)) {
		return false
	}
	for i, c := range r {
		k.data[(k.head+uint64(i))%uint64(len(k.data))] = c
	}
	k.head += uint64(len(r))
	return true
}

// scribble overwrites everything that the reader has given back.
func (k *fakeKernel) scribble() {
	for pos := k.head; pos < k.tail+uint64(len(k.data)); pos++ {
		k.data[pos%uint64(len(k.data))] = 0xee
	}
}

// timeFormat is that of the records that timed makes.
var timeFormat = SampleFormat{sampleType: unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_ID, sampleIDAll: true}

// timed is a SWITCH record with a time, an ID and n words that repeat the ID.
func timed(t, id uint64, n int) []byte {
	b := appendHeader(nil, RecordSwitch, 0)
	for range n {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	b = timeFormat.appendSampleID(b, &SampleID{Time: t, ID: id})
	b, _ = finishRecord(b, 0)
	return b
}

func checkTimed(t *testing.T, r Record) SampleID {
	t.Helper()
	var id SampleID
	if err := timeFormat.SampleID(r, &id); err != nil {
		t.Fatal(err)
	}
	w := Words(r.Body())
	for i := range w.Len() - 2 {
		if w.At(i) != id.ID {
			t.Fatalf("word %d of record %d was overwritten: %#x", i, id.ID, w.At(i))
		}
	}
	return id
}

func TestRingReadsRecordsInPlaceAndCopiesTheOneThatWraps(t *testing.T) {
	k := fakeKernel{data: make([]byte, 256)}
	r := k.ring()
	scratch := make([]byte, MaxRecordSize)
	copied := 0
	for id := range uint64(100) {
		if !k.write(timed(id, id, int(id%7))) {
			t.Fatal("no room though all was released")
		}
		if err := r.refresh(); err != nil {
			t.Fatal(err)
		}
		pos, size, ok, err := r.next()
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		rec := r.record(pos, size, scratch)
		if got := checkTimed(t, rec); got.ID != id {
			t.Fatalf("record %d, want %d", got.ID, id)
		}
		if &rec[0] == &scratch[0] {
			copied++
		}
		if _, _, ok, err := r.next(); ok || err != nil {
			t.Fatalf("a record behind the head: %v, %v", ok, err)
		}
		r.release(pos + uint64(size))
		if k.tail != k.head {
			t.Fatalf("tail %d, head %d", k.tail, k.head)
		}
	}
	if laps := int(k.head / 256); copied == 0 || copied > laps {
		t.Errorf("%d records copied in %d laps", copied, laps)
	}
}

// Each record is shown once by ahead, also one that wraps, and still returned by next.
func TestRingShowsRecordsAhead(t *testing.T) {
	k := fakeKernel{data: make([]byte, 256), head: 96, tail: 96}
	r := k.ring()
	scratch := make([]byte, MaxRecordSize)
	from, seen, taken := uint64(0), uint64(0), uint64(0)
	take := func() {
		if err := r.refresh(); err != nil {
			t.Fatal(err)
		}
		pos, size, ok, err := r.next()
		if !ok || err != nil || checkTimed(t, r.record(pos, size, scratch)).ID != taken {
			t.Fatalf("record %d: %v, %v", taken, ok, err)
		}
		taken++
		r.release(pos + uint64(size))
	}
	for id := range uint64(60) {
		if !k.write(timed(id, id, int(id%5))) {
			t.Fatal("no room")
		}
		if id%3 == 2 { // some are read by next before ahead can show them
			take()
		}
		if id%4 == 1 {
			from = r.ahead(from, scratch, func(rec Record) {
				if got := checkTimed(t, rec); got.ID < seen || got.ID > id {
					t.Fatalf("record %d was shown after %d", got.ID, seen)
				} else {
					seen = got.ID + 1
				}
			})
			if seen != id+1 || from != k.head {
				t.Fatalf("%d of %d records were shown, up to %d of %d", seen, id+1, from, k.head)
			}
		}
		for k.head-k.tail > 128 {
			take()
		}
	}
	from = r.ahead(from, scratch, func(Record) {})
	k.data[(k.head+6)%256], k.data[(k.head+7)%256] = 0, 0 // a record of no size
	k.head += 16
	r.ahead(from, scratch, func(Record) { t.Error("a record that makes no sense was shown") })
	k.head += 1 << 20
	r.ahead(from, scratch, func(Record) { t.Error("positions that make no sense were followed") })
}

func TestRingPositionsPassTheEndOfTheirRange(t *testing.T) {
	k := fakeKernel{data: make([]byte, 64), head: math.MaxUint64 - 31, tail: math.MaxUint64 - 31}
	r := k.ring()
	for id := range uint64(10) {
		b := timed(id, id, 0)
		for i, c := range b {
			k.data[(k.head+uint64(i))%64] = c
		}
		k.head += uint64(len(b))
		if err := r.refresh(); err != nil {
			t.Fatal(err)
		}
		pos, size, ok, err := r.next()
		if !ok || err != nil || checkTimed(t, r.record(pos, size, make([]byte, 64))).ID != id {
			t.Fatalf("record %d: %v, %v", id, ok, err)
		}
		r.release(pos + uint64(size))
	}
}

// A copy of a stack near the end of the address space can have any size, and so can its record.
func TestRingReadsRecordsOfAnySize(t *testing.T) {
	for odd := range 16 {
		k := fakeKernel{data: make([]byte, 256)}
		m := newMerger(timeFormat, []ring{k.ring()}, []int{0})
		for n := range uint64(100) { // each header wraps somewhere now and then
			r := timed(n+1, n, int(n)%4)
			first := append(slices.Clone(r[:headerSize]), make([]byte, odd)...)
			first = append(first, r[headerSize:]...)
			binary.LittleEndian.PutUint16(first[6:], uint16(len(first)))
			k.write(first)
			id := SampleID{ID: ^uint64(0)}
			err := m.drain(math.MaxUint64, func(r Record) error { return timeFormat.SampleID(r, &id) })
			if err != nil || id.ID != n {
				t.Fatalf("%d bytes more, record %d: %d, %v", odd, n, id.ID, err)
			}
		}
	}
}

func TestRingSurvivesCorruption(t *testing.T) {
	good := timed(1, 1, 0)
	sized := func(n int) []byte {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint16(b[6:], uint16(n))
		return b
	}
	for _, c := range []struct {
		name    string
		corrupt func(k *fakeKernel)
	}{
		{"size 0", func(k *fakeKernel) { k.write(sized(0)) }},
		{"size below the header", func(k *fakeKernel) { k.write(sized(4)) }},
		{"size that ends inside the last record", func(k *fakeKernel) {
			k.write(sized(23))
			k.head -= uint64(len(good)) - 23 + 4
		}},
		{"size beyond the head", func(k *fakeKernel) { k.write(sized(32)) }},
		{"half a header", func(k *fakeKernel) { k.head += 4 }},
		{"tail ahead of head", func(k *fakeKernel) { k.head = math.MaxUint64 - 7 }},
		{"head more than a lap ahead", func(k *fakeKernel) { k.head += 264 }},
	} {
		k := fakeKernel{data: make([]byte, 256)}
		m := newMerger(timeFormat, []ring{k.ring()}, []int{3})
		c.corrupt(&k)
		err := m.drain(math.MaxUint64, func(r Record) error { return nil })
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", c.name, err)
		}
		if k.tail != k.head {
			t.Errorf("%s: tail %d, head %d", c.name, k.tail, k.head)
		}
		k.head = (k.head + 7) &^ 7
		k.tail = k.head
		m.queues[0].ring = k.ring()
		k.write(timed(7, 7, 1))
		n := 0
		err = m.drain(math.MaxUint64, func(r Record) error { n += int(checkTimed(t, r).ID); return nil })
		if err != nil || n != 7 {
			t.Errorf("%s: afterwards %d, %v", c.name, n, err)
		}
	}
}

func TestMergeOrdersRingsByTime(t *testing.T) {
	kernels := make([]fakeKernel, 3)
	var rings []ring
	for i := range kernels {
		kernels[i].data = make([]byte, 1024)
		rings = append(rings, kernels[i].ring())
	}
	m := newMerger(timeFormat, rings, []int{0, 1, 2})
	rnd := rand.New(rand.NewSource(7))
	var written, got, clock, floor uint64
	var times []uint64
	deliver := func(r Record) error {
		for i := range kernels {
			kernels[i].scribble()
		}
		id := checkTimed(t, r)
		times = append(times, id.Time)
		got++
		return nil
	}
	for range 1000 {
		for range rnd.Intn(20) {
			clock += uint64(rnd.Intn(100_000))
			at := clock
			if rnd.Intn(20) == 0 { // written late, as from within an interrupt
				at -= min(at, uint64(rnd.Intn(Slack/2)))
			}
			at = max(at, floor)
			written++
			for i := rnd.Intn(3); !kernels[i].write(timed(at, written, rnd.Intn(10))); {
				before := got
				at, floor = clock, clock // else it would be older than the records that are handed out now
				if err := m.drain(clock, deliver); err != nil {
					t.Fatal(err)
				}
				if got == before {
					t.Fatal("a full ring and nothing to hand out")
				}
			}
		}
		horizon := clock - min(clock, Slack)
		if err := m.drain(horizon, deliver); err != nil {
			t.Fatal(err)
		}
		if n := len(times); n > 0 && times[n-1] > clock {
			t.Fatalf("time %d is younger than the clock, %d", times[n-1], clock)
		}
	}
	if err := m.drain(math.MaxUint64, deliver); err != nil {
		t.Fatal(err)
	}
	if got != written {
		t.Errorf("%d records of %d", got, written)
	}
	if !slices.IsSorted(times) || m.late != 0 {
		t.Errorf("not sorted, %d late", m.late)
	}
	for i := range kernels {
		if kernels[i].head != kernels[i].tail {
			t.Errorf("ring %d: head %d, tail %d", i, kernels[i].head, kernels[i].tail)
		}
	}
}

func TestMergeHoldsBackWhatIsYoungerThanTheHorizon(t *testing.T) {
	k := fakeKernel{data: make([]byte, 256)}
	m := newMerger(timeFormat, []ring{k.ring()}, []int{0})
	var got []uint64
	deliver := func(r Record) error { got = append(got, checkTimed(t, r).ID); return nil }
	k.write(timed(30, 1, 0))
	k.write(timed(10, 2, 0))
	first := k.head
	k.write(timed(20, 3, 0))

	if err := m.drain(10, deliver); err != nil || !slices.Equal(got, []uint64{2}) {
		t.Fatalf("%v, %v", got, err)
	}
	if k.tail != 0 {
		t.Errorf("tail %d: the first record was released, though it waits", k.tail)
	}
	if err := m.drain(20, deliver); err != nil || !slices.Equal(got, []uint64{2, 3}) {
		t.Fatalf("%v, %v", got, err)
	}
	if err := m.drain(30, deliver); err != nil || !slices.Equal(got, []uint64{2, 3, 1}) {
		t.Fatalf("%v, %v", got, err)
	}
	if k.tail != k.head || first == 0 {
		t.Errorf("tail %d, head %d", k.tail, k.head)
	}
}

func TestMergeStopsAtAnErrorAndGoesOnBehindIt(t *testing.T) {
	k := fakeKernel{data: make([]byte, 256)}
	m := newMerger(timeFormat, []ring{k.ring()}, []int{0})
	for id := range uint64(3) {
		k.write(timed(id, id, 0))
	}
	stop := errors.New("stop")
	var got []uint64
	deliver := func(r Record) error {
		got = append(got, checkTimed(t, r).ID)
		if len(got) == 2 {
			return stop
		}
		return nil
	}
	if err := m.drain(9, deliver); err != stop {
		t.Fatal(err)
	}
	if err := m.drain(9, deliver); err != nil || !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Fatal(got, err)
	}
}

func FuzzDrain(f *testing.F) {
	two := append(timed(2, 1, 3), timed(1, 2, 0)...)
	f.Add(two, uint64(0), uint64(len(two)))
	f.Add(two, uint64(40), uint64(40+len(two)))
	f.Add(two, uint64(math.MaxUint64-7), uint64(64))
	f.Fuzz(inputs.Many(f, func(t *testing.T, content []byte, tail, head uint64) {
		defer costs.For(len(content)).Check(t)()
		k := fakeKernel{data: make([]byte, 512), head: head, tail: tail}
		for i, c := range content[:min(len(content), 512)] {
			k.data[(tail+uint64(i))%512] = c
		}
		m := newMerger(timeFormat, []ring{k.ring()}, []int{0})
		n := 0
		for _, horizon := range []uint64{1 << 20, math.MaxUint64} {
			err := m.drain(horizon, func(r Record) error {
				if n++; len(r) != r.Size() {
					t.Fatalf("record of %d bytes says %d", len(r), r.Size())
				}
				return nil
			})
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
		if n > 512/headerSize || k.tail != head {
			t.Fatalf("%d records, tail %d, head %d", n, k.tail, head)
		}
	}))
}

func TestMergeAllocatesNothing(t *testing.T) {
	k := [2]fakeKernel{{data: make([]byte, 1<<16)}, {data: make([]byte, 1<<16)}}
	m := newMerger(timeFormat, []ring{k[0].ring(), k[1].ring()}, []int{0, 1})
	b := timed(0, 1, 10)
	clock, n := uint64(0), 0
	fn := func(Record) error { n++; return nil }
	round := func() {
		for range 500 {
			clock += 1000
			binary.LittleEndian.PutUint64(b[len(b)-16:], clock)
			k[clock/1000%2].write(b)
		}
		if err := m.drain(clock-100_000, fn); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		round()
	}
	if a := testing.AllocsPerRun(100, round); a != 0 {
		t.Errorf("%v allocations in a round of 500 records", a)
	}
	if n < 50_000 {
		t.Errorf("%d records", n)
	}
}

// BenchmarkDrain measures one sample with a full callchain and a stack copy of 32 KiB: it is merged from
// two rings in memory that the benchmark wrote, and decoded.
func BenchmarkDrain(b *testing.B) {
	for _, bc := range []struct {
		name  string
		stack int
	}{{"NoStack", 0}, {"Stack8K", 8 << 10}, {"Stack32K", 32 << 10}} {
		b.Run(bc.name, func(b *testing.B) {
			le := binary.LittleEndian
			rec := appendHeader(nil, RecordSample, unix.PERF_RECORD_MISC_USER)
			for range 6 { // IDENTIFIER, IP, TID, TIME, CPU, PERIOD
				rec = le.AppendUint64(rec, 1)
			}
			rec = append(le.AppendUint64(rec, 10), make([]byte, 80)...)
			rec = append(le.AppendUint64(rec, unix.PERF_SAMPLE_REGS_ABI_64), make([]byte, 20*8)...)
			if rec = le.AppendUint64(rec, uint64(bc.stack)); bc.stack > 0 {
				rec = le.AppendUint64(append(rec, make([]byte, bc.stack)...), uint64(bc.stack))
			}
			rec, _ = finishRecord(rec, 0)
			k := [2]fakeKernel{{data: make([]byte, 8<<20)}, {data: make([]byte, 8<<20)}}
			m := newMerger(liveFormat, []ring{k[0].ring(), k[1].ring()}, []int{0, 1})
			var s Sample
			var clock uint64
			deliver := func(r Record) error { return liveFormat.Sample(r, &s) }
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; {
				b.StopTimer()
				for full := false; !full && done < b.N; done++ {
					clock += 1e6 // 1 kHz
					le.PutUint64(rec[headerSize+24:], clock)
					if full = !k[done%2].write(rec); full {
						break
					}
				}
				b.StartTimer()
				if err := m.drain(math.MaxUint64, deliver); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestHalfFull writes to the second of two rings, and takes what was written.
func TestHalfFull(t *testing.T) {
	t.Parallel()
	kernels := []*fakeKernel{{data: make([]byte, 1024)}, {data: make([]byte, 1024)}}
	s := &Source{merger: newMerger(timeFormat, []ring{kernels[0].ring(), kernels[1].ring()}, []int{0, 1})}
	rec := timed(1, 1, 10)
	for n := len(rec); n < 512; n += len(rec) {
		kernels[1].write(rec)
		if s.HalfFull() || s.NearlyFull() {
			t.Fatalf("half full with %d of 1024 bytes", n)
		}
	}
	kernels[1].write(rec)
	if !s.HalfFull() || s.NearlyFull() {
		t.Error("not half full")
	}
	if err := s.merger.drain(math.MaxUint64, func(Record) error { return nil }); err != nil || s.HalfFull() {
		t.Errorf("half full when it is empty, %v", err)
	}
}
