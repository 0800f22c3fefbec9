package capture

import (
	"testing"
	"time"

	"unspool/unwind"
	"unspool/unwind/link"
)

// A process that alternates between stacks that reads complete and stacks that they do not is read as long as
// that completes them, and little meanwhile.
func TestReadsFollowWhatTheyComplete(t *testing.T) {
	t.Parallel()
	const (
		step   = uint64(100 * time.Millisecond)
		phase  = 300     // steps
		cost   = 1e6     // of the reads in a step, in ns
		missed = 50      // stacks in a step
		little = 2 * 1e6 // ns a second
	)
	var all readAccounts
	for n := range 6 {
		fruitful := n%2 == 1
		spent, read := int64(0), 0
		for i := range phase {
			now := uint64(n*phase+i+1) * step
			a := all.open(1)
			var s settled
			if all.mayRead(1, now) {
				all.spend(1, cost)
				spent += cost
				read++
			}
			for range missed {
				outcome := link.Doubtful
				if fruitful && a.left > 0 {
					outcome = link.JoinedByRead
				}
				s.count(outcome)
			}
			all.earn(1, s)
		}
		if a := all.open(1); fruitful && a.vain.bursts() > 0 {
			t.Errorf("phase %d: %d bursts are taken for vain", n, a.vain.bursts())
		}
		switch seconds := int64(phase * step / 1e9); {
		case fruitful && read < phase*6/10:
			t.Errorf("phase %d: read in %d steps of %d", n, read, phase)
		case !fruitful && spent > little*seconds+mostBursts*burstPrice:
			t.Errorf("phase %d: %v of reading completes nothing", n, time.Duration(spent))
		case !fruitful && read == 0:
			t.Errorf("phase %d: never read", n)
		}
	}
}

// Where few stacks are cut off, reading is worth little; and many processes that have begun lately cannot be
// read at once.
func TestFewCutStacksAreReadLittle(t *testing.T) {
	t.Parallel()
	var all readAccounts
	var spent int64
	const seconds = 60
	for i := range uint64(10 * seconds) {
		for space := range uint64(4) { // new processes each second
			space += i / 10 * 4
			if all.mayRead(space, (i+1)*uint64(100*time.Millisecond)) {
				spent += 1e6
				all.spend(space, 1e6)
			}
			all.earn(space, settled{missed: 1})
		}
	}
	if most := burstPrice + seconds*1e9/reserveShare + 1e6; spent == 0 || spent > most {
		t.Errorf("%v of reading for 2,400 stacks, at most %v", time.Duration(spent), time.Duration(most))
	}
	for space := range uint64(3 * maxCutSpaces) {
		all.open(space)
		if n := len(all.of); n > maxCutSpaces {
			t.Fatalf("accounts of %d processes", n)
		}
	}
}

// Processes that begin all the time are read little when that has completed next to nothing for those before
// them, and more again when it is worthwhile.
func TestProcessesLikeThoseReadInVain(t *testing.T) {
	t.Parallel()
	const (
		seconds = 100
		full    = int64(seconds * time.Second / reserveShare)
	)
	var all readAccounts
	next := uint64(0)
	during := func(completed int64) (spent int64) { // by the reads of a process
		for range 10 * seconds {
			next++
			before := spent
			for now := next * uint64(100*time.Millisecond); all.mayRead(next, now); {
				all.spend(next, 1e6)
				spent += 1e6
			}
			if spent > before {
				all.earn(next, settled{read: completed})
			}
		}
		return spent
	}
	for range 2 {
		for _, phase := range []struct{ completed, least, most int64 }{
			{newBursts * burstPrice / worthwhile, full * 9 / 10, full + mostReserve},
			{1, 0, full>>(2*(mostVain-1)) + mostVain*burstPrice},
			{0, 0, full>>(2*mostVain) + mostReserve + burstPrice},
		} {
			if spent := during(phase.completed); spent < phase.least || spent > phase.most {
				t.Errorf("%d stacks of each process are completed: %v of reading, want %v to %v", phase.completed,
					time.Duration(spent), time.Duration(phase.least), time.Duration(phase.most))
			}
		}
	}
}

// The size of a read follows what the last one has shown.
func TestReadsAreAsLongAsTheStack(t *testing.T) {
	t.Parallel()
	r := newStackReader(nil)
	r.account.earn(1, settled{read: 1000})
	c := cutStack{pid: 1, tid: 2, space: 1}
	c.from.PC, c.from.SP = 1, 0x10008
	r.note(&c, 1)
	w := r.watched[c.tid]
	rd := &stackRead{tid: c.tid, space: c.space, parts: []memoryPart{{start: 0x10000}}, full: true}
	for _, step := range []struct {
		name         string
		root         uint64
		tooShort     bool
		size         int
		wantRoot     uint64
		wantNextSize int
	}{
		{"too short", 0, true, firstReadSize, 0, 2 * firstReadSize},
		{"too short again", 0, true, 2 * firstReadSize, 0, 4 * firstReadSize},
		{"neither", 0, false, 4 * firstReadSize, 0, 4 * firstReadSize},
		{"a root far away", 1<<63 + 0x10000, false, 4 * firstReadSize, 1<<63 + 0x10000, maxReadSize},
		{"to the root", 0x1f000, false, 4 * firstReadSize, 0x1f000, 0xf000 + aboveRoot},
		{"the root has moved", 0, true, 0xf000 + aboveRoot, 0, 2 * (0xf000 + aboveRoot)},
		{"a root below what is above a large frame", 0xf000, false, 4 * firstReadSize, 0, 2 * (0xf000 + aboveRoot)},
		{"as long as a read may be", 0, true, maxReadSize, 0, maxReadSize},
	} {
		rd.last().memory = make([]byte, step.size)
		var end *unwind.OpenFrame
		if step.tooShort {
			end = new(unwind.OpenFrame)
		}
		r.done(rd, step.root, end)
		if w.root != step.wantRoot || w.size != step.wantNextSize {
			t.Errorf("%s: root %#x, size %#x, want %#x, %#x", step.name, w.root, w.size, step.wantRoot,
				step.wantNextSize)
		}
	}
	c.tid++
	if r.note(&c, 1); r.watched[c.tid].size != maxReadSize {
		t.Errorf("a new thread of the process is read with %d bytes", r.watched[c.tid].size)
	}
}

// A new process is read on when its first burst is spent before it is known what that has completed, once.
func TestNewProcessesAreReadOn(t *testing.T) {
	t.Parallel()
	const now, space = uint64(time.Hour), 1
	for _, c := range []struct {
		name   string
		others int // new processes that have had bursts before
		earned int64
		want   int // bursts
	}{
		{"nothing is known of it", 0, 0, 2},
		{"others were read before", 1, 0, 1},
		{"too many others were", int(mostReserve / burstPrice), 0, 0},
		{"it was completed", 0, 1, 1},
	} {
		var all readAccounts
		for i := range c.others {
			all.mayRead(uint64(100+i), now)
		}
		bursts := 0
		for all.mayRead(space, now) && bursts < 2*newBursts {
			bursts++
			if c.earned > 0 {
				all.earn(space, settled{read: c.earned})
			}
			all.spend(space, uint64(all.open(space).left))
		}
		if bursts != c.want {
			t.Errorf("%s: %d bursts, want %d", c.name, bursts, c.want)
		}
	}
}
