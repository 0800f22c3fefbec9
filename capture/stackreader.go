package capture

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
	"unspool/vmas"
	"unspool/vmas/process"
)

// A stackReader reads the stacks that copies have cut off, where they go on, while the processes run: see
// package link for what the sightings of a stack are good for. What it reads is one, at the time of the read
// and at no other.
//
// It has a goroutine of its own, as the memory of a process may take its time. Nothing is ever written to a
// process, and no thread is stopped. A read can hang, behind a page that a user's file server or
// userfaultfd(2) does not give: then another goroutine goes on with the other processes.
//
//	session ─cut stacks, after each drain─▶ goroutine ─stackReads─▶ session, in order of time with the samples
type stackReader struct {
	memory process.Memory
	// What the session has seen since the last drain.
	cut     []cutStack
	cutGaps []stackGap
	newGaps bool               // of these some were not known, since the session last asked
	settled map[uint64]settled // by address space

	misses misses // the session's
	wake   chan struct{}
	stop   chan struct{}
	begun  bool // the goroutine

	first atomic.Uint64 // time of the first of ready, or noRead

	mu      sync.Mutex
	watched map[uint32]*watchedStack // by TID
	ready   []*stackRead             // in order of time
	spare   []*stackRead
	bytes   int // of ready
	budget  readBudget
	account readAccounts
	gaps    gaps
	slow    map[uint32]uint64 // by PID, until when a process is not read
	reading *readUnderWay     // the one that is not given up
	hanging int               // those that are
}

// A readUnderWay is a read that has begun.
type readUnderWay struct {
	pid     uint32
	began   uint64
	givenUp bool
}

// A cutStack is where a stack goes on of which a sample has a part.
type cutStack struct {
	pid, tid uint32
	space    uint64
	from     unwind.OpenFrame
	samples  int // with this frame, one after the other
}

// A watchedStack is one that is read over and over, as long as it is cut off in samples.
type watchedStack struct {
	pid    uint32
	space  uint64
	frames []unwind.OpenFrame // of the last samples, any of which may be there still; the last one's last
	root   uint64             // SP of the outermost frame, 0 if it is not known
	size   int                // bytes to be read as long as it is not
	missed int                // how often none of the frames was there, one time after the other
	since  uint64             // it has been there
	due    uint64             // is the next read
	cut    uint64             // was the last sample
	cuts   int                // samples, with less than watchedFor from each to the next
}

// A stackRead is a part of a stack with frames that seem to be there still.
type stackRead struct {
	pid, tid   uint32
	space      uint64
	frames     []unwind.OpenFrame // the innermost first
	time       uint64
	below      memoryPart // what is below a large frame, and its SP
	memoryPart            // from above that on, or all
	full       bool       // there is more of it
	buf        []byte
	gap        stackGap // this one, if it has a length
	price      uint64   // of the wake-up, for the first read of several
	under      *readUnderWay
}

// A memoryPart is memory that was read.
type memoryPart struct {
	start  uint64
	memory []byte
}

const (
	noRead = ^uint64(0)

	// A stack is read again after an eighth of the time that it has been there, as link.Log asks for eight
	// sightings, and for a time that is long compared with that between two of them.
	soonestRead = uint64(10 * time.Millisecond)
	latestRead  = uint64(40 * time.Millisecond)
	readShare   = 8

	// A process whose read took slowRead or longer is not read again for so many times as long. The goroutine
	// may have waited for a CPU for less than that.
	slowRead  = uint64(10 * time.Millisecond)
	slowShare = 16
	// hangsAfter is how long a read is waited for, and maxHanging how many are waited for beside the others.
	hangsAfter = uint64(50 * time.Millisecond)
	maxHanging = 8

	// watchedFor is how long after the last sample that was cut off a stack is read.
	watchedFor = uint64(200 * time.Millisecond)
	// cutOften is how many samples of a thread are cut off within that time from each to the next before its
	// stack is read. A read completes only what is seen before it and after it, so one of a stack that is cut
	// now and then completes nothing.
	cutOften = 3
	// soon is how long before its time a stack is read if another one is read now.
	soon = uint64(5 * time.Millisecond)

	maxWatched       = 64 // threads
	maxWatchedFrames = 8  // of each
	mostMissed       = 3
	mostSpare        = 8
	maxCut           = 512

	firstReadSize = 16 << 10 // bytes
	maxReadSize   = 1 << 20
	aboveRoot     = 1 << 10 // what a program begins with, by which its root is known
	maxReadyBytes = 8 << 20 // which the session has not taken yet
)

func newStackReader(memory process.Memory) *stackReader {
	r := &stackReader{
		memory: memory, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		watched: make(map[uint32]*watchedStack), slow: make(map[uint32]uint64),
		settled: make(map[uint64]settled), misses: make(misses),
	}
	r.first.Store(noRead)
	return r
}

// note takes in a stack that was cut off.
func (r *stackReader) note(c cutStack) {
	if n := len(r.cut); n > 0 {
		last := &r.cut[n-1]
		if c.samples = last.samples; c == *last {
			last.samples++
			return
		}
	}
	if c.samples = 1; len(r.cut) < maxCut {
		r.cut = append(r.cut, c)
	}
}

// noteGap takes in a gap.
func (r *stackReader) noteGap(g stackGap) {
	if n := len(r.cutGaps); n < maxCut && (n == 0 || r.cutGaps[n-1] != g) {
		r.cutGaps = append(r.cutGaps, g)
	}
}

// completed takes in what has become of a stack of an address space that was cut off.
func (r *stackReader) completed(space uint64, tid uint32, outcome link.Outcome) {
	r.misses.count(tid, outcome != link.Joined)
	if outcome == link.Joined {
		return
	}
	s := r.settled[space]
	s.count(outcome)
	r.settled[space] = s
}

// errReadsHang is about stacks that somebody keeps from being read.
var errReadsHang = fmt.Errorf("memory of %d processes: reads of it hang, and until one of them ends, the "+
	"stacks of "+
	"other processes that were cut off are not read either", maxHanging+1)

// watch hands the goroutine what was noted since the last time. The error is errReadsHang while it is so.
func (r *stackReader) watch(now uint64) (err error) {
	if r.giveUp(perfring.Now()) {
		err = errReadsHang
	}
	if len(r.cut) == 0 && len(r.cutGaps) == 0 && len(r.settled) == 0 {
		return err
	}
	r.mu.Lock()
	for space, s := range r.settled {
		r.account.earn(space, s)
	}
	for i := range r.cut {
		r.watchOne(&r.cut[i], now)
	}
	for _, g := range r.cutGaps {
		r.newGaps = r.gaps.note(g, now) || r.newGaps
	}
	due := r.isDue(now)
	r.mu.Unlock()
	r.cut, r.cutGaps = r.cut[:0], r.cutGaps[:0]
	clear(r.settled)
	if !due {
		return err
	}
	if !r.begun {
		r.begun = true
		go r.run()
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return err
}

// isDue says whether it is the turn of any stack.
func (r *stackReader) isDue(now uint64) bool {
	if _, over := r.budget.over(now); over {
		return false
	}
	if len(r.gaps.waiting) > 0 {
		return true
	}
	for _, w := range r.watched {
		if w.due <= now+soon {
			return true
		}
	}
	return false
}

func (r *stackReader) watchOne(c *cutStack, now uint64) {
	w := r.watched[c.tid]
	if w == nil || w.pid != c.pid || w.space != c.space {
		if w == nil && !r.hasRoom(now) {
			return
		}
		size := max(r.account.open(c.space).size, firstReadSize)
		w = &watchedStack{pid: c.pid, space: c.space, size: size, since: now, due: noRead}
		r.watched[c.tid] = w
	}
	if now > w.cut+watchedFor {
		w.cuts = 0
	}
	w.cuts, w.cut, w.missed = min(w.cuts+c.samples, cutOften), now, 0
	if w.cuts == cutOften {
		if !r.account.mayRead(c.space, now) {
			delete(r.watched, c.tid)
			return
		}
		w.due = min(w.due, now) // Its frames are most likely to be there now.
	}
	i := slices.IndexFunc(w.frames, func(f unwind.OpenFrame) bool { return f.IsAt(&c.from) })
	isNew := i < 0
	if isNew && len(w.frames) >= maxWatchedFrames {
		i = 0
	}
	if i >= 0 {
		w.frames = slices.Delete(w.frames, i, i+1)
	}
	if w.frames = append(w.frames, c.from); isNew {
		r.leaveTo(c.tid)
	}
}

// hasRoom says whether one more thread can be watched, and forgets those that are not cut off any more if
// there is no room otherwise.
func (r *stackReader) hasRoom(now uint64) bool {
	if len(r.watched) >= maxWatched {
		maps.DeleteFunc(r.watched, func(_ uint32, w *watchedStack) bool { return now > w.cut+watchedFor })
	}
	return len(r.watched) < maxWatched
}

// leaveTo has a stack read for the thread only that was seen on it last: others have ended, and a new one got
// their stack, or a coroutine has moved. Read for each of them, a frame that is there once would be seen
// often.
func (r *stackReader) leaveTo(tid uint32) {
	last := r.watched[tid]
	low, high := last.extent()
	for other, w := range r.watched {
		if l, h := w.extent(); other != tid && w.space == last.space && l < high && low < h {
			delete(r.watched, other)
		}
	}
}

// extent is the part of the stack that is read.
func (w *watchedStack) extent() (low, high uint64) {
	low = w.frames[0].SP
	for i := range w.frames {
		low = min(low, w.frames[i].SP)
	}
	if w.root != 0 {
		return low, w.root
	}
	return low, low + uint64(w.size)
}

// end ends the goroutine, which nobody waits for.
func (r *stackReader) end() { close(r.stop) }

// next gives the next read up to a time, nil where there is none.
func (r *stackReader) next(until uint64) *stackRead {
	if r.first.Load() > until {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rd := r.ready[0]
	r.ready = slices.Delete(r.ready, 0, 1)
	r.bytes -= rd.bytes()
	r.first.Store(noRead)
	if len(r.ready) > 0 {
		r.first.Store(r.ready[0].time)
	}
	return rd
}

// done gives a read back. What it has shown of the stack's end, as takeRead returns it, says how much to read
// the next time.
func (r *stackReader) done(rd *stackRead, root uint64, tooShort bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watched[rd.tid]; w != nil && w.space == rd.space {
		switch {
		case root != 0:
			w.root = root
			w.size = min(int(root-rd.start)+aboveRoot, maxReadSize)
		case tooShort && rd.full:
			w.root, w.size = 0, min(2*len(rd.memory), maxReadSize)
		}
		r.account.open(rd.space).size = w.size
	}
	if len(r.spare) < mostSpare {
		r.spare = append(r.spare, rd)
	}
}

// run is the goroutine.
func (r *stackReader) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		price := priceAlone
		select {
		case <-r.stop:
			return
		case <-r.wake:
			price = priceAtDrain
		case <-timer.C:
		}
		due, over := r.readDue(perfring.Now(), price)
		if over {
			return
		}
		if due != noRead {
			timer.Reset(time.Duration(due - min(due, perfring.Now())))
		}
	}
}

// giveUp leaves a read that hangs to its goroutine, and begins another one for the other processes, unless
// too many hang already.
func (r *stackReader) giveUp(now uint64) (tooMany bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.reading
	switch {
	case u == nil || now-min(now, u.began) < hangsAfter:
		return false
	case r.hanging == maxHanging:
		return true
	}
	u.givenUp, r.reading = true, nil
	r.hanging++
	r.postpone(u.pid, noRead)
	go r.run()
	return false
}

// postpone has a process not read until a time.
func (r *stackReader) postpone(pid uint32, until uint64) {
	if _, known := r.slow[pid]; !known && len(r.slow) >= 2*maxWatched {
		clear(r.slow)
	}
	r.slow[pid] = until
}

// readDue reads the stacks whose turn it is, and returns when the next one's is. It is over if another
// goroutine goes on. price is what it cost to wake up.
func (r *stackReader) readDue(now, price uint64) (due uint64, over bool) {
	for {
		rd, w, next := r.pick(now, price)
		if rd == nil {
			return next, false
		}
		price = 0
		there := false
		if rd.gap.end > rd.gap.start {
			rd.closeGap(r.memory)
		} else {
			there = rd.read(r.memory, &w)
		}
		if r.finish(rd, there, perfring.Now()) {
			return 0, true
		}
	}
}

// pick gives the next stack whose turn it is, and otherwise when the next one's is. As waking up costs more
// than a read, the budget holds for the first of several, which has a price.
func (r *stackReader) pick(now, price uint64) (rd *stackRead, w watchedStack, due uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, over := r.budget.over(now)
	if over && price > 0 {
		return nil, w, until
	}
	if g, ok := r.gaps.take(); ok {
		rd = r.begin(g.pid, price)
		rd.gap = g
		return rd, w, 0
	}
	due = noRead
	for tid, w := range r.watched {
		switch {
		case now > w.cut+watchedFor:
			delete(r.watched, tid)
		case w.due == noRead: // until it is cut off often
		case !r.account.mayRead(w.space, now):
			delete(r.watched, tid)
		case w.missed >= mostMissed: // until there is a new frame
		case w.due > now+soon || r.bytes+w.size > maxReadyBytes:
			due = min(due, max(w.due, now+soonestRead))
		case r.slow[w.pid] > now:
			due = min(due, r.slow[w.pid])
		default:
			in := min(max((now-w.since)/readShare, soonestRead), latestRead)
			w.due = now + in/2 + rand.Uint64N(in) // not in step with what a program does every so often
			rd = r.begin(w.pid, price)
			rd.tid, rd.space = tid, w.space
			copied := *w
			copied.frames = slices.Clone(w.frames)
			return rd, copied, 0
		}
	}
	if due != noRead {
		due = max(due, until)
	}
	return nil, watchedStack{}, due
}

// begin begins a read.
func (r *stackReader) begin(pid uint32, price uint64) *stackRead {
	rd := new(stackRead)
	if n := len(r.spare); n > 0 {
		rd, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	*rd = stackRead{pid: pid, price: price, time: perfring.Now(), frames: rd.frames[:0], buf: rd.buf}
	rd.under = &readUnderWay{pid: pid, began: rd.time}
	r.reading = rd.under
	return rd
}

// finish takes in a read, if a frame was there. over says that the read was given up.
func (r *stackReader) finish(rd *stackRead, there bool, now uint64) (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := rd.under
	took := now - u.began
	if there = there && took < longestRead; took >= slowRead || u.givenUp {
		r.postpone(u.pid, now+slowShare*took)
	}
	if u.givenUp {
		r.hanging--
		return true
	}
	r.reading = nil
	price := min(took, longestRead) + rd.price
	r.budget.spend(now, price)
	if rd.gap != (stackGap{}) {
		return false
	}
	r.account.spend(rd.space, price)
	if w := r.watched[rd.tid]; w != nil && there {
		w.missed = 0
	} else if w != nil {
		w.missed++
		w.since = now
	}
	if !there {
		return false
	}
	if len(r.ready) == 0 {
		r.first.Store(rd.time)
	}
	r.ready = append(r.ready, rd)
	r.bytes += rd.bytes()
	return false
}

func (rd *stackRead) bytes() int { return len(rd.below.memory) + len(rd.memory) }

// longestRead is how long a read may take: of what was read piece by piece for longer, nobody knows when the
// pieces were there together.
const longestRead = uint64(time.Millisecond)

const (
	word = 8 // bytes
	// A frame of at least largeFrame bytes is not read, but for the savedRegs bytes below its CFA, where the
	// registers of its caller are.
	largeFrame = 16 << 10
	savedRegs  = 256
)

// read reads from the innermost frame on, and finds those that are there, with the return addresses in their
// places.
func (rd *stackRead) read(memory process.Memory, w *watchedStack) (there bool) {
	slices.SortFunc(w.frames, func(a, b unwind.OpenFrame) int { return cmp.Compare(a.SP, b.SP) })
	rd.frames, rd.below = rd.frames[:0], memoryPart{}
	above := w.frames
	start := above[0].SP - word
	if n := uptoLarge(above); n > 0 && above[n-1].SP-start <= uint64(w.size) {
		rd.below = rd.readPart(memory, start, int(above[n-1].SP-start))
		rd.find(&rd.below, above[:n])
		start, above = above[n-1].CFA-savedRegs, above[n:]
	}
	size := w.size
	if w.root > start && w.root-start < maxReadSize-aboveRoot {
		size = int(w.root-start) + aboveRoot
	}
	rd.memoryPart = rd.readPart(memory, start, size)
	rd.full = len(rd.memory) == size
	rd.find(&rd.memoryPart, above)
	return len(rd.frames) > 0
}

// uptoLarge is how many of the frames, in order of SP, come up to the first large one, which may be there
// with more than one SP: that depends on what it has pushed for a call. It is 0 if there is none.
func uptoLarge(frames []unwind.OpenFrame) (n int) {
	n = slices.IndexFunc(frames, func(f unwind.OpenFrame) bool {
		return f.CFA > f.SP && f.CFA-f.SP >= largeFrame
	})
	if n < 0 {
		return 0
	}
	for cfa := frames[n].CFA; n < len(frames) && frames[n].CFA == cfa; {
		n++
	}
	return n
}

// readPart reads so many bytes, or those of them that can be read.
func (rd *stackRead) readPart(memory process.Memory, start uint64, size int) memoryPart {
	from := len(rd.below.memory)
	rd.buf = slices.Grow(rd.buf[:from], size)[:from+size]
	buf := rd.buf[from:]
	return memoryPart{start, buf[:memory.ReadMemory(rd.pid, buf, start)]}
}

// find takes in those of the frames that are in a part, if there is a return address of theirs in its place.
func (rd *stackRead) find(p *memoryPart, frames []unwind.OpenFrame) {
	for _, f := range frames {
		at := f.SP - p.start
		if at > uint64(len(p.memory)) || at < word {
			continue
		}
		if pc := binary.LittleEndian.Uint64(p.memory[at-word:]); f.Returns(pc) {
			f.PC = pc
			rd.frames = append(rd.frames, f)
		}
	}
}

// watch notes a sample whose stack goes on beyond its copy, so that the rest is read, if samples do not show
// it, as far as is known by now. A read wakes two processes.
func (s *Session) watch(pid, tid uint32, space uint64) {
	if n, known := s.reader.misses[tid]; known && n < manyMisses {
		return
	}
	if from, ok := s.result.OpenFrame(); ok {
		s.reader.note(cutStack{pid: pid, tid: tid, space: space, from: from})
	}
}

// takeReads walks over what was read of stacks up to a time, of which all records before have been taken.
func (s *Session) takeReads(until uint64) {
	for rd := s.reader.next(until); rd != nil; rd = s.reader.next(until) {
		root, tooShort := s.takeRead(rd)
		s.reader.done(rd, root, tooShort)
	}
}

// takeRead adds a read to the sightings of its stack. root is the SP of the stack's outermost frame, 0 if the
// read does not show that, and tooShort says that it ends below it.
func (s *Session) takeRead(rd *stackRead) (root uint64, tooShort bool) {
	space := s.table.Space(rd.pid)
	if space == nil || space.ID() != rd.space {
		return 0, false // of a process that has gone since
	}
	s.images.Walks(rd.pid)
	var from *unwind.OpenFrame
	for i := range rd.frames {
		f := &rd.frames[i]
		switch res := s.walkRead(space, rd, f); res.End {
		case unwind.Root:
			s.seenByRead(rd, &res)
			root = res.Frames[len(res.Frames)-1].SP
		case unwind.DumpTooShort:
			if from == nil {
				from = f
			}
		}
		if root != 0 {
			break
		}
		// Otherwise the frame has been left, and what was read is what others have left there since.
	}
	if from == nil || root != 0 && !rd.isBelow(from) {
		return root, false
	}
	res := s.walkRead(space, rd, from)
	s.seenByRead(rd, &res)
	return root, root == 0
}

// isBelow says whether a frame is in the part that ends at a large frame, which it is not.
func (rd *stackRead) isBelow(f *unwind.OpenFrame) bool {
	return f.SP < rd.start && f.CFA != rd.start+savedRegs
}

// walkRead walks over a read from one of its frames on.
func (s *Session) walkRead(space *vmas.Space, rd *stackRead, f *unwind.OpenFrame) unwind.Result {
	p, base := &rd.memoryPart, max(f.SP, rd.start)
	if rd.isBelow(f) {
		p, base = &rd.below, f.SP
	}
	data := p.memory[base-p.start:]
	return s.walker.WalkOn(space, *f, &unwind.Stack{Base: base, Data: data, Asked: uint64(len(data))})
}

// seenByRead takes in what a walk over a read shows.
func (s *Session) seenByRead(rd *stackRead, res *unwind.Result) {
	j := s.joiner
	j.frames = res.LinksOfRead(&j.log, rd.space, rd.time, j.frames)
}
