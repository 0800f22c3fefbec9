package capture

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
	"unspool/vmas/process"
)

// cutAt is a stack of a thread that goes on at an SP; a process has the address space of its number.
func cutAt(pid, tid uint32, sp uint64) cutStack {
	return cutStack{pid: pid, tid: tid, space: uint64(pid), from: unwind.OpenFrame{PC: 0x1010, SP: sp}}
}

// cutOften is how many samples in a row have to be cut off before a stack is read.
const cutOften = 3

// drain has stacks cut in samples, often enough, and ends a drain.
func (r *stackReader) drain(t *testing.T, now uint64, stacks ...cutStack) {
	t.Helper()
	r.now = func() uint64 { return now }
	for i := range stacks {
		for range cutOften {
			r.note(&stacks[i], now)
		}
	}
	if err := r.watch(now); err != nil {
		t.Fatal(err)
	}
}

// haveCome has the first of the readings under way taken.
func (r *stackReader) haveCome() {
	for _, u := range r.under {
		u.some = true
	}
}

// readingAt is one of parts with a return address in its place at the beginning of each.
func readingAt(time uint64, parts int) (r process.Reading) {
	r.Began, r.Ended = time, time+1000
	for range parts {
		r.Memory = append(r.Memory, binary.LittleEndian.AppendUint64(nil, 0x1010))
	}
	return r
}

// Readings of several processes are taken in order of time, up to a time, those that come between two drains,
// too, and a reading that has come when later walks are known already says nothing.
func TestReadingsAreTakenInOrder(t *testing.T) {
	t.Parallel()
	const begin = uint64(time.Hour)
	fake := &fakeWatcher{}
	s := NewSession(Config{Format: new(perfring.Format), Sink: discard{}, MaxStack: 100, Live: true, Join: true,
		JoinAfter: time.Second})
	s.reader = newStackReader(fake)
	r := s.reader
	r.drain(t, begin, cutAt(1, 1, 0x10008), cutAt(2, 2, 0x20008), cutAt(2, 3, 0x80008))
	if len(fake.watches) != 2 {
		t.Fatalf("%d processes are read", len(fake.watches))
	}
	for _, w := range fake.watches {
		w.over = true
		for i := range uint64(4) {
			at := begin + 10*i + uint64(w.pid)
			w.readings = append(w.readings, readingAt(at, len(w.parts)))
		}
	}
	var got, want []uint64
	for u := r.next(begin + 22); u != nil; u = r.next(begin + 22) {
		got = append(got, u.next.Began-begin)
		r.taken(u)
	}
	if want = []uint64{1, 2, 11, 12, 21, 22}; !slices.Equal(got, want) {
		t.Errorf("readings at %d, want %d", got, want)
	}
	missed := func() [3]int { return [3]int{r.watched[1].missed, r.watched[2].missed, r.watched[3].missed} }
	before := missed()
	s.joiner.log.Add(9, begin+32, []link.Frame{{SP: 8, PC: 1}, {SP: 16, PC: 2}}, true)
	for tid := range uint32(3) {
		r.watched[1+tid].frames[0].PC = 1 // what is read is another frame
	}
	s.takeReads(noRead - 1)
	after := missed()
	after[1], after[2] = after[1]-1, after[2]-1
	if after != before {
		t.Errorf("frames that were looked for in vain: %d before, %d after", before, missed())
	}
	if len(r.under) > 0 || r.first != noRead || r.watched[1].under != nil {
		t.Errorf("%d processes are read still", len(r.under))
	}
}

// A process whose readings are of use is asked for once at a time, for no more readings than its burst is
// worth, and again when they are over.
func TestReadingsFollowTheBurst(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	r.account.see(1, false)
	now := uint64(time.Hour)
	cut := cutAt(1, 1, 0x10008)
	for range 3 {
		r.drain(t, now, cut)
		r.haveCome()
		now += uint64(100 * time.Millisecond)
	}
	if n := len(fake.watches); n != maxOfOne {
		t.Fatalf("asked %d times", n)
	}
	const burst = int(burstPrice/int64(priceOfReading)) + 1
	first, second := fake.watches[0], fake.watches[1]
	if first.plan.Times != int(readFor/soonestRead) || first.plan.Apart != soonestRead {
		t.Errorf("planned %+v", first.plan)
	}
	if second.plan.After != readFor-wakeEvery || first.plan.Times+second.plan.Times > burst {
		t.Errorf("planned %+v, and then %+v; the burst has %d readings", first.plan, second.plan, burst)
	}
	// Nothing is there, so it is read no more until there is a new sample.
	for i := range uint64(burst) {
		w := first
		if int(i) >= first.plan.Times {
			w = second
		}
		none := process.Reading{Began: now + i, Ended: now + i, Memory: [][]byte{nil}}
		w.readings = append(w.readings, none)
	}
	first.over, second.over = true, true
	for u := r.next(noRead - 1); u != nil; u = r.next(noRead - 1) {
		r.spend(u)
		r.done(&stackRead{tid: 1, space: 1, parts: make([]memoryPart, 1)}, 0, nil)
		r.taken(u)
	}
	if left := r.account.open(1).left; left > int64(priceOfReading) {
		t.Errorf("%v of the burst are left", time.Duration(left))
	}
	for range 2 * burstPrice / missWorth {
		r.completed(1, 1, link.Doubtful)
	}
	now += uint64(90 * time.Millisecond)
	if r.drain(t, now); len(fake.watches) != 2 {
		t.Error("asked again though its frames have gone")
	}
	if r.drain(t, now, cut); len(fake.watches) != 3 {
		t.Errorf("asked %d times, with a new burst", len(fake.watches))
	}
	// A reading that took long costs its process time.
	slow := fake.watches[2]
	slow.readings = []process.Reading{{Began: now, Ended: now + slowRead, Memory: [][]byte{nil}}}
	slow.over = true
	u := r.next(noRead - 1)
	if u == nil || r.spend(u) {
		t.Fatal("pieces of a slow reading count as read together")
	}
	r.taken(u)
	r.account.earn(1, settled{read: 1000})
	for _, step := range []struct {
		after uint64
		asked int
	}{{slowRead, 3}, {slowShare*slowRead + slowRead + 1, 4}} {
		if r.drain(t, now+step.after, cut); len(fake.watches) != step.asked {
			t.Errorf("%d ns after a slow reading: asked %d times, want %d", step.after, len(fake.watches), step.asked)
		}
	}
}

// As long as a stack is cut, and reading it is of use, it is read all the time: each reading follows the one
// before, also the first one of those that are asked for anew, however often the rings are drained.
func TestReadingsFollowOneAnother(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{10 * time.Millisecond, 70 * time.Millisecond, wakeEvery} {
		fake := &fakeWatcher{}
		r := newStackReader(fake)
		r.account.earn(1, settled{missed: 1 << 20})
		r.account.see(1, false)
		begin := uint64(time.Hour)
		cut, until, asked := cutAt(1, 1, 0x10008), begin, 0
		for now := begin; now < begin+uint64(2*time.Second); now += uint64(every) {
			r.now = func() uint64 { return now }
			for _, w := range fake.watches {
				w.over = now >= w.until
			}
			r.account.earn(1, settled{missed: 1 << 20})
			r.drain(t, now, cut)
			r.haveCome()
			for _, w := range fake.watches[asked:] {
				from := now + uint64(w.plan.After)
				w.until = from + uint64(w.plan.Times)*uint64(w.plan.Apart)
				if from/uint64(time.Microsecond) != until/uint64(time.Microsecond) {
					t.Errorf("drained every %v: read up to %v, and then from %v on", every,
						time.Duration(until-begin), time.Duration(from-begin))
				}
				until = w.until
			}
			asked = len(fake.watches)
		}
		if most := 2 * int(2*time.Second/readFor) * 2; asked < 2 || asked > most {
			t.Errorf("drained every %v: asked %d times", every, asked)
		}
	}
}

// What is asked for anew has only what the readings under way leave of the burst.
func TestReadingsUnderWayCount(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	r.account.see(1, false)
	now, cut := uint64(time.Hour), cutAt(1, 1, 0x10008)
	r.drain(t, now, cut)
	if r.drain(t, now+uint64(wakeEvery), cut); len(fake.watches) != 1 {
		t.Error("others follow though none has come")
	}
	r.haveCome()
	r.account.spend(1, uint64(burstPrice)-40*priceOfReading)
	now += uint64(wakeEvery)
	if r.drain(t, now, cut); len(fake.watches) != 2 || fake.watches[1].plan.Times != 40-32+1 {
		t.Errorf("%d watches, the last one %+v", len(fake.watches), fake.watches[len(fake.watches)-1].plan)
	}
	fake.watches[0].over = true
	r.haveCome()
	r.account.spend(1, 32*priceOfReading)
	now += uint64(wakeEvery) / 2
	if r.drain(t, now, cut); len(fake.watches) != 2 {
		t.Error("others follow though there is no credit for them")
	}
	r.account.earn(1, settled{read: 1})
	if r.drain(t, now, cut); len(fake.watches) != 3 {
		t.Error("no others follow though there is credit for them again")
	}
}

// A process is read until the next drain at first, and no more if that is futile again and again: the thread
// is sampled elsewhere, or with a stack that the copy holds. Where no sample says so, or a frame is there now
// and then, the burst goes on.
func TestFutileReadings(t *testing.T) {
	t.Parallel()
	cut, elsewhere := cutAt(1, 1, 0x10008), cutAt(1, 1, 0x11008)
	for _, c := range []struct {
		name    string
		between func(r *stackReader, n int, now uint64) // a reading and the next one, each 5 ms
		there   func(n int) bool                        // cut is
		goesOn  bool
	}{
		{"cut elsewhere", func(r *stackReader, _ int, now uint64) { r.note(&elsewhere, now) },
			func(int) bool { return true }, false},
		{"cut where a frame has gone", func(r *stackReader, _ int, now uint64) { r.note(&cut, now) },
			func(int) bool { return false }, false},
		{"copied whole", func(r *stackReader, _ int, now uint64) { r.noteRoot(1, 1, 0x10000, 0x12000, now) },
			func(int) bool { return true }, false},
		{"not sampled", func(*stackReader, int, uint64) {}, func(int) bool { return false }, true},
		{"cut where a frame is", func(r *stackReader, _ int, now uint64) { r.note(&cut, now) },
			func(int) bool { return true }, true},
		{"cut by turns where a frame is and elsewhere", func(r *stackReader, n int, now uint64) {
			r.note(&elsewhere, now)
			if n%mostFutile == 0 {
				r.note(&cut, now)
			}
		}, func(int) bool { return true }, true},
	} {
		fake := &fakeWatcher{}
		r := newStackReader(fake)
		now := uint64(time.Hour)
		r.drain(t, now, cut)
		if most := int(mostPlanned) + 1; len(fake.watches) != 1 || fake.watches[0].plan.Times != most {
			t.Fatalf("%s: asked for %+v", c.name, fake.watches)
		}
		r.done(&stackRead{tid: 1, space: 1, time: now, parts: make([]memoryPart, 1)}, 0, nil)
		for n := range mostFutile {
			now += uint64(soonestRead)
			c.between(r, n, now-1)
			rd := &stackRead{tid: 1, space: 1, time: now, parts: make([]memoryPart, 1)}
			if c.there(n) {
				rd.frames = []unwind.OpenFrame{cut.from}
			}
			r.done(rd, 0, nil)
		}
		if a := r.account.open(1); a.left > 0 != c.goesOn || a.vain.bursts() == 1 == c.goesOn {
			t.Errorf("%s: %v of the burst are left, %d were in vain", c.name, time.Duration(a.left), a.vain.bursts())
		}
	}
}

// Completed stacks make up for futile readings, but not for any number of them.
func TestCompletedStacksMakeUpForFutileReadings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ completed, goesOn int64 }{
		{0, mostFutile}, {1, mostFutile + madeUpFor}, {2, 2 * mostFutile}, {1000, 2 * mostFutile},
	} {
		a := &readAccount{left: burstPrice}
		a.earn(settled{read: c.completed})
		n := int64(1)
		for !a.see(true) {
			n++
		}
		if n != c.goesOn {
			t.Errorf("%d completed stacks: the burst is over after %d readings, want %d", c.completed, n, c.goesOn)
		}
		for range 2 * mostFutile { // that were planned before it was over
			a.see(true)
		}
		a.left = burstPrice
		for n = 1; !a.see(true); n++ {
		}
		if n != mostFutile {
			t.Errorf("%d completed stacks: the next burst is over after %d readings", c.completed, n)
		}
	}
}

// A large frame at which a reading ends is passed over by the next ones, which are asked for at the next
// drain, as long as it is there.
func TestReadingThatEndsAtALargeFrame(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	now := uint64(time.Hour)
	r.drain(t, now, cutAt(1, 1, 0x10008))
	large := unwind.OpenFrame{PC: 2, SP: 0x12008, CFA: 0x90000}
	end := func(there ...unwind.OpenFrame) {
		rd := stackRead{tid: 1, space: 1, time: now, frames: there, full: true}
		rd.parts = []memoryPart{{start: 0x10000}}
		r.done(&rd, 0, &large)
	}
	end(cutAt(1, 1, 0x10008).from)
	for range 2 {
		now += uint64(10 * time.Millisecond)
		r.drain(t, now)
		end(cutAt(1, 1, 0x10008).from) // of the readings that were planned before
	}
	if len(fake.watches) != 2 {
		t.Fatalf("asked %d times", len(fake.watches))
	}
	if w := fake.watches[1]; w.plan.After != 0 || len(w.parts) != 2 || w.parts[0].Start != 0x10000 ||
		w.parts[0].Size != 0x2008 || w.parts[1].Start != large.CFA-savedRegs {
		t.Errorf("planned %+v of %#x", w.plan, w.parts)
	}
	r.drain(t, now, cutAt(1, 1, 0x10008))
	for _, there := range [][]unwind.OpenFrame{{large}, nil, {cutAt(1, 1, 0x10008).from}} {
		rd := stackRead{tid: 1, space: 1, time: now, frames: there}
		rd.parts = []memoryPart{{start: 0x10000}}
		r.done(&rd, 0, nil)
		isGone := len(there) > 0 && there[0] != large // nothing says so where nothing is there
		if known := slices.Contains(r.watched[1].frames, large); known == isGone {
			t.Errorf("%+v is there: known: %v", there, known)
		}
	}
	// Another one that is not there, as a sample has shown it, is not passed over in its place.
	other := cutAt(1, 1, 0x14008)
	other.from.CFA = 0x20000
	r.note(&other, now)
	rd := stackRead{tid: 1, space: 1, time: now, frames: []unwind.OpenFrame{cutAt(1, 1, 0x10008).from}}
	rd.parts = []memoryPart{{start: 0x10000}}
	r.watched[1].under = r.under[0]
	r.done(&rd, 0, new(unwind.OpenFrame))
	if w := r.watched[1]; w.under != nil || slices.Contains(w.frames, other.from) {
		t.Errorf("read on as planned, of %+v", w.frames)
	}
}

// A thread whose stack is cut for the first time does not wait for the readings of others to end.
func TestReadingsOfANewThread(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	now := uint64(time.Hour)
	r.account.earn(1, settled{missed: 1 << 20})
	old, other := cutAt(1, 1, 0x100008), cutAt(1, 2, 0x800008)
	r.drain(t, now, old)
	now += uint64(wakeEvery)
	r.drain(t, now, old, other)
	if len(fake.watches) != maxOfOne {
		t.Fatalf("asked %d times", len(fake.watches))
	}
	if w := fake.watches[1]; w.plan.After != 0 || len(w.parts) != 1 || w.parts[0].Start != other.from.SP-word {
		t.Errorf("planned %+v of %+v", w.plan, w.parts)
	}
}

// Of many processes, few are read at a time, and none when the time for that is spent.
func TestFewProcessesAreReadAtATime(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	var stacks []cutStack
	for pid := range uint32(3 * maxUnder) {
		r.account.earn(uint64(pid), settled{read: 100})
		stacks = append(stacks, cutAt(pid, pid, 0x10008))
	}
	now := uint64(time.Hour)
	if r.drain(t, now, stacks...); len(fake.watches) != maxUnder {
		t.Fatalf("%d processes are read at a time", len(fake.watches))
	}
	// Those that follow are no others.
	r.haveCome()
	if r.drain(t, now+uint64(wakeEvery), stacks...); len(fake.watches) != 2*maxUnder {
		t.Fatalf("%d watches, with those that follow", len(fake.watches))
	}
	for _, w := range fake.watches[maxUnder:] {
		isRead := slices.ContainsFunc(fake.watches[:maxUnder], func(f *fakeWatch) bool { return f.pid == w.pid })
		if w.plan.After == 0 || !isRead {
			t.Errorf("process %d is read: %+v", w.pid, w.plan)
		}
		w.over = true
	}
	r.look()
	fake.watches = fake.watches[:maxUnder]
	fake.watches[0].over = true
	r.look()
	r.budget.Spend(now, 120*priceOfReading) // less than hangsAfter
	if r.drain(t, now, stacks...); len(fake.watches) != maxUnder {
		t.Error("another one is read though the time for that is spent")
	}
	if r.drain(t, r.budget.Until(), stacks...); len(fake.watches) != maxUnder+1 {
		t.Errorf("%d processes are read where one was done", len(fake.watches)-maxUnder)
	}
}

// A process whose readings hang is not asked for others until they come, or end, or while they have taken
// long.
func TestReadingsThatCome(t *testing.T) {
	t.Parallel()
	for how, slow := range map[string]uint64{"come": 0, "end": 0, "come slowly": slowRead} {
		fake := &fakeWatcher{}
		r := newStackReader(fake)
		now := uint64(time.Hour)
		r.drain(t, now, cutAt(1, 1, 0x10008))
		now += hangsAfter
		r.drain(t, now, cutAt(1, 2, 0x80008))
		r.noteGap(stackGap{pid: 1, start: 0x90000, end: 0x91000}, now)
		now += hangsAfter
		r.drain(t, now)
		if len(fake.watches) != 1 || r.slow[1] != noRead || r.hanging() != 1 {
			t.Errorf("a process that hangs is asked for %d readings", len(fake.watches))
		}
		w := fake.watches[0]
		w.over = true
		if how != "end" {
			w.readings = append(w.readings, readingAt(now, 1))
			w.readings[0].Ended += slow
		}
		for u := r.next(noRead - 1); u != nil; u = r.next(noRead - 1) {
			r.spend(u)
			r.taken(u)
		}
		now += slowRead + watchedFor
		r.account.earn(1, settled{read: 100})
		asked := 2
		if slow > 0 {
			asked = 1
			r.slow[1]++ // what is before that time is not asked for
			if r.slow[1] < slowShare*slow {
				t.Errorf("%s: not read for %d ns", how, r.slow[1])
			}
			r.slow[1] = noRead
		}
		if r.drain(t, now, cutAt(1, 2, 0x80008)); len(fake.watches) != asked {
			t.Errorf("%s: asked for %d readings, want %d", how, len(fake.watches), asked)
		}
	}
}

// A process none of whose memory can be read is not asked for it at each drain.
func TestNoReadingComes(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	now := uint64(time.Hour)
	for range 100 {
		r.drain(t, now, cutAt(1, 1, 0x10008))
		for _, w := range fake.watches {
			w.over = true
		}
		now += uint64(100 * time.Millisecond)
	}
	if n := len(fake.watches); n < 2 || n > int(burstPrice/int64(priceOfReading))+1 {
		t.Errorf("asked %d times in ten seconds", n)
	}
	if left := r.account.open(1).left; left > 0 {
		t.Errorf("%v of the burst are left", time.Duration(left))
	}
}

// However many pages of a process never come, there is one reading of gaps, and few of stacks.
func TestGapsOfOneProcess(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	now := uint64(time.Hour)
	for i := range uint64(100) {
		r.noteGap(stackGap{pid: 1, start: i << 16, end: i<<16 + 4096}, now)
		r.drain(t, now, cutAt(1, 1, 0x10008), cutAt(1, 2, 0x80008))
		now += uint64(10 * time.Millisecond)
	}
	if n := len(fake.watches); n < 2 || n > 1+maxOfOne {
		t.Errorf("%d readings of a process that hangs", len(fake.watches))
	}
	for i := range uint64(maxGaps) {
		r.noteGap(stackGap{pid: 1, start: i << 20, end: i<<20 + 4096}, now)
	}
	if r.drain(t, now, cutAt(2, 3, 0x10008)); fake.watches[len(fake.watches)-1].pid != 2 {
		t.Error("another process is not read")
	}
}

// The gaps of a process's threads are read together, as many as can be, and the others after them.
func TestGapsOfThreads(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	now := uint64(time.Hour)
	for i := range uint64(maxGaps) {
		r.noteGap(stackGap{pid: 1, start: i << 20, end: i<<20 + 4096, sp: i<<20 - 64}, now)
	}
	read := make(map[uint64]bool)
	drains := 0
	for ; len(read) < maxGaps && drains < 10; drains++ {
		r.drain(t, now)
		for _, w := range fake.watches {
			for _, p := range w.parts {
				if p.Size == 4096 {
					read[p.Start] = true
				}
			}
			w.over = true
		}
		now += uint64(100 * time.Millisecond)
	}
	if len(read) != maxGaps || drains > 4 {
		t.Errorf("%d of %d gaps are read in %d drains", len(read), maxGaps, drains)
	}
	// They take as much of the time for reads as they cost.
	r = newStackReader(fake)
	for i := range uint64(4) {
		r.noteGap(stackGap{pid: 1, start: i << 20, end: i<<20 + 4096, sp: i<<20 - 64}, now)
	}
	if r.drain(t, now); !r.budget.IsSpent(now + 4*priceOfGap*budgetShare - budgetSlack - 1) {
		t.Error("gaps cost nothing")
	}
}

// A stack that ends below what was asked for is shorter, or the rest cannot be read: there is no more of it.
func TestReadingThatIsShorter(t *testing.T) {
	t.Parallel()
	planned := []process.Part{{Start: 100, Size: 50}, {Start: 200, Size: 50}}
	for n, full := range map[int]bool{0: false, 49: false, 50: true} {
		var rd stackRead
		rd.set(planned, [][]byte{make([]byte, 50), make([]byte, n)})
		if rd.full != full || len(rd.last().memory) != n || rd.last().start != 200 || rd.parts[0].start != 100 {
			t.Errorf("%d bytes of 50 above: full %v; %+v", n, rd.full, rd)
		}
		rd.set(planned[1:], [][]byte{make([]byte, n)})
		if rd.full != full || len(rd.parts) != 1 {
			t.Errorf("%d bytes of 50: full %v; %+v", n, rd.full, rd)
		}
	}
}

// Of a thread whose stack was copied whole before, it is known how much there is to read.
func TestReadingGoesToTheKnownRoot(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	const sp, root = 0x10008, 0x13000
	for _, c := range []struct {
		name  string
		tid   uint32
		space uint64
		low   uint64
		root  uint64
		size  int
	}{
		{"none", 5, 0, 0, 0, firstReadSize},
		{"known", 6, 6, sp - 100, root, root - sp + word + aboveRoot},
		{"of a copy not far above", 11, 11, sp + nearRoot/2, root + nearRoot,
			nearRoot + root - sp + word + aboveRoot},
		{"of another program of the thread", 7, 100, sp, root, firstReadSize},
		{"of another thread", 8 + uint32(len(r.roots)), 8, sp, root, firstReadSize},
		{"below", 9, 9, sp - 100, sp - 16, firstReadSize},
		{"of another stack far above", 10, 10, 1<<40 - 100, 1 << 40, firstReadSize},
		{"of another stack not so far above", 12, 12, sp + 2*nearRoot, sp + 3*nearRoot, firstReadSize},
	} {
		if c.root != 0 {
			r.noteRoot(c.tid, c.space, c.low, c.root, 1)
		}
		pid := c.tid % uint32(len(r.roots))
		fake.watches, r.under = nil, nil
		r.account = readAccounts{}
		r.drain(t, uint64(time.Hour), cutAt(pid, pid, sp))
		if len(fake.watches) != 1 || fake.watches[0].parts[0].Size != c.size {
			t.Errorf("%s: %+v, want %d bytes", c.name, fake.watches[0].parts, c.size)
		}
	}
}

// A gap is read once, for its pages.
func TestGapIsAskedFor(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	r.noteGap(stackGap{pid: 1, start: 0x7000_3000, end: 0x7000_5000, sp: 0x7000_0000}, uint64(time.Hour))
	r.drain(t, uint64(time.Hour))
	r.drain(t, uint64(time.Hour)+1)
	want := []process.Part{{Start: 0x7000_0000 - belowSize, Size: belowSize},
		{Start: 0x7000_0000 - 2*belowSize, Size: belowSize}, {Start: 0x7000_3000, Size: 0x2000}}
	if len(fake.watches) != 1 || fake.watches[0].plan != (process.Plan{}) ||
		!slices.Equal(fake.watches[0].parts, want) {
		t.Errorf("asked for %+v", fake.watches)
	}
}

// The longer a stack has been there, the less often it is read.
func TestReadingsOfAStackThatStays(t *testing.T) {
	t.Parallel()
	now := uint64(time.Hour)
	for since, apart := range map[time.Duration]time.Duration{
		0: soonestRead, readShare * 7 * time.Millisecond: 7 * time.Millisecond, time.Minute: latestRead,
	} {
		fake := &fakeWatcher{}
		r := newStackReader(fake)
		r.note(&cutStack{pid: 1, tid: 1, space: 1, from: unwind.OpenFrame{PC: 1, SP: 0x10008}}, now-uint64(since))
		r.drain(t, now, cutAt(1, 1, 0x10008))
		if plan := fake.watches[0].plan; plan.Apart != apart || plan.Times > int(readFor/apart) {
			t.Errorf("there for %v: %+v", since, plan)
		}
		rd := stackRead{tid: 1, space: 1, time: now, parts: make([]memoryPart, 1)}
		if r.done(&rd, 0, nil); r.watched[1].since != now {
			t.Errorf("there for %v: it has been there since %d, and was not at %d", since, r.watched[1].since, now)
		}
	}
}

// With the stack of one thread, those of others of its process are read that were cut lately, and no others.
func TestStacksAreReadTogether(t *testing.T) {
	t.Parallel()
	fake := &fakeWatcher{}
	r := newStackReader(fake)
	now := uint64(time.Hour)
	for _, c := range []cutStack{cutAt(1, 1, 0x100008), cutAt(2, 2, 0x100008)} {
		r.note(&c, now-2*watchedFor)
	}
	lately, other := cutAt(1, 3, 0x200008), cutAt(2, 4, 0x200008)
	r.note(&lately, now-watchedFor/2)
	r.note(&other, now-watchedFor/2)
	due := cutAt(1, 5, 0x300008)
	r.note(&due, now-uint64(time.Minute))
	r.drain(t, now, due)
	if len(fake.watches) != 1 {
		t.Fatalf("%d processes are read", len(fake.watches))
	}
	if apart := fake.watches[0].plan.Apart; apart != latestRead {
		t.Errorf("read every %v: as often as a stack that is not due asks for", apart)
	}
	var starts []uint64
	for _, p := range fake.watches[0].parts {
		starts = append(starts, p.Start)
	}
	slices.Sort(starts)
	if want := []uint64{0x200000, 0x300000}; fake.watches[0].pid != 1 || !slices.Equal(starts, want) {
		t.Errorf("process %d is read at %#x, want %#x", fake.watches[0].pid, starts, want)
	}
}

// A stack of a thread that is silent is read on, less and less often, if its samples were cut off at a frame
// that stays: samples that come one by one are completed, too.
func TestSteadyStackIsReadOn(t *testing.T) {
	t.Parallel()
	const every = uint64(wakeEvery)
	stays, other := cutAt(1, 1, 0x10008), cutAt(1, 1, 0x12008)
	for _, c := range []struct {
		name  string
		there bool     // readings show the frame
		also  cutStack // is cut off, too
		until uint64   // it is read, after the last sample
		apart time.Duration
	}{
		{"a frame that stays", true, stays, steadyFor, silentRead},
		{"others that come and go", true, other, watchedFor, latestRead},
		{"a frame that has gone", false, stays, watchedFor, soonestRead},
	} {
		fake := &fakeWatcher{}
		r := newStackReader(fake)
		now, last := uint64(time.Hour), uint64(0)
		for at := uint64(0); at < 3*steadyFor; at += every {
			now += every
			for i, w := range fake.watches { // each has one reading, and ends
				if w.over = true; i < len(fake.watches)-1 {
					continue
				}
				rd := stackRead{tid: 1, space: 1, time: now, parts: make([]memoryPart, 1)}
				if c.there {
					rd.frames = []unwind.OpenFrame{stays.from}
				}
				r.haveCome()
				r.done(&rd, 0, nil)
			}
			r.look()
			r.account.earn(1, settled{missed: 1 << 20})
			asked := len(fake.watches)
			if at < steadyFor {
				r.drain(t, now, stays, c.also)
				last = now
				continue
			}
			r.drain(t, now)
			silent := now - last
			if isAsked := len(fake.watches) > asked; isAsked != (silent <= c.until) {
				t.Errorf("%s: read %v after the last sample: %v", c.name, time.Duration(silent), isAsked)
			} else if isAsked && silent > watchedFor/2 && fake.watches[asked].plan.Apart < min(c.apart,
				time.Duration(silent)/silentShare) {
				t.Errorf("%s: %v after the last sample: %+v", c.name, time.Duration(silent), fake.watches[asked].plan)
			}
		}
	}
}
