package capture

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"unspool/capture/rest"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
	"unspool/vmas/process"
)

// A stackReader has stacks read that copies have cut off, where they go on, while the processes run: see
// package link for what the sightings of a stack are good for. What is read is one, at the time of the
// reading and at no other.
//
// After a drain of the rings it asks for readings of the stacks that were cut, and after the next one it
// finds what has come of them. Meanwhile nobody waits. Nothing is ever written to a process, and no thread is
// stopped. A reading can hang, as long as the process keeps its mappings locked: then it is left alone, and the
// others are read.
//
//	session ─cut stacks─▶ stackReader ─parts of stacks─▶ process.Watcher ─readings─▶ session, in order of time
//	with the samples
type stackReader struct {
	memory process.Watcher
	now    func() uint64 // CLOCK_MONOTONIC
	most   int           // how many processes are read at a time beside those whose reads hang

	newGaps bool               // gaps were seen that were not known, since the session last asked
	settled map[uint64]settled // by address space, since the last drain
	misses  misses
	watched map[uint32]*watchedStack // by TID
	under   []*readings              // under way
	looked  bool                     // for what has come of them, since the last drain
	first   uint64                   // time of the next reading, or noRead
	budget  rest.Share
	account readAccounts
	gaps    gaps
	slow    map[uint32]uint64 // by PID, until when a process is not read
	roots   [64]knownRoot     // by the remainder of the TID
	read    stackRead         // scratch
}

// A knownRoot is where the stack of a thread ended that was copied whole.
type knownRoot struct {
	tid            uint32
	space, low, sp uint64 // low is SP of the sample
}

// A cutStack is where a stack goes on of which a sample has a part.
type cutStack struct {
	pid, tid uint32
	space    uint64
	from     unwind.OpenFrame
}

// A watchedStack is one that is read over and over, as long as it is cut off in samples.
type watchedStack struct {
	pid    uint32
	space  uint64
	frames []unwind.OpenFrame // of the last samples, any of which may be there still; the last one's last
	root   uint64             // SP of the outermost frame, 0 if it is not known
	size   int                // bytes to be read as long as it is not
	missed int                // in how many readings none of the frames was there, one after the other
	since  uint64             // it has been there
	cut    uint64             // was the last sample
	whole  uint64             // was the last one that was not
	cuts   often              // samples were cut off; begins anew after a time in which it was not read
	there  []unwind.OpenFrame // those of the frames that the last reading has shown
	read   uint64             // when that was
	astray uint64             // was the last sample that was cut off at another frame
	under  *readings          // is read with these, or nil
}

// readings are those of the stacks of a process, or of gaps in one.
type readings struct {
	watch  process.Watch
	pid    uint32
	space  uint64
	stacks []plannedStack
	gaps   int           // or so many of these
	apart  time.Duration // from one to the next
	begins uint64        // when others that are under way will be over, or now
	until  uint64        // they are over
	left   int           // readings to come
	next   process.Reading
	came   bool   // next
	some   bool   // readings have come
	latest uint64 // when the last one came, or they began
	hang   bool
	over   bool
}

// A plannedStack is which parts of a thread's stack are read.
type plannedStack struct {
	tid   uint32
	parts []process.Part // one, or what is below a large frame and what is above
}

const (
	noRead = ^uint64(0)

	// A stack is read again after a sixteenth of the time that it has been there, as link.Log asks for twelve
	// sightings, and for a time that is long compared with that between two of them. After readFor, what is to
	// be read is looked at anew: by then the rings have been drained. Readings that will be over before the next
	// drain, which comes within nextLook, are followed by others: a stack that is not read for a while is not
	// completed in it, nor are samples that come soon after.
	soonestRead = 5 * time.Millisecond
	latestRead  = 20 * time.Millisecond
	readShare   = 16
	readFor     = 160 * time.Millisecond
	nextLook    = uint64(wakeEvery + 10*time.Millisecond)
	// maxUnder is how many readings there are at a time, and maxTried how many for the trial of a size of
	// copies, beside those that hang. A process has maxOfOne of stacks and one of gaps.
	maxUnder = 4
	maxTried = 1
	maxOfOne = 2
	// longestRead is how long a reading may take: of what was read piece by piece for longer, nobody knows when
	// the pieces were there together. A process one of whose readings took slowRead or longer is not read again
	// for so many times as long. Whoever reads may have waited for a CPU for less than that.
	longestRead = uint64(time.Millisecond)
	slowRead    = uint64(process.SlowReading)
	slowShare   = 16
	// mostPlanned is how many readings of a process are planned before any was of use: as many as there can be
	// until the next drain.
	mostPlanned = int64(wakeEvery / soonestRead)
	// hangsAfter is how long a reading may be late. With so many that hang the user is told, and with
	// mostHanging nothing else is read.
	hangsAfter  = uint64(500 * time.Millisecond)
	maxHanging  = 8
	mostHanging = 16

	// watchedFor is how long after the last sample that was cut off a stack is read. It is steady if for so
	// long all of them were cut off at frames that stay, as those of a thread are that mostly waits for others
	// in a function with a large frame. Then it is read for steadyFor, as long as a reading can be of use, and
	// after half of the time that the thread has been silent, but so soon that a sample, which waits for
	// JoinAfter, does not wait in vain.
	watchedFor  = uint64(200 * time.Millisecond)
	steadyFor   = uint64(joinBefore)
	silentShare = 2
	silentRead  = 60 * time.Millisecond

	maxWatched       = 64 // threads
	maxWatchedFrames = 8  // of each
	mostMissed       = 3

	// firstReadSize is how many bytes are read of a stack as long as it is not known where that ends. A read
	// ends with the stack's mapping, so of most stacks it is no more than there is.
	firstReadSize = 128 << 10
	maxReadSize   = process.MostWatched
	aboveRoot     = 1 << 10  // what a program begins with, by which its root is known
	nearRoot      = 64 << 10 // of frames that count as being on one stack
)

func newStackReader(memory process.Watcher) *stackReader {
	return &stackReader{
		memory: memory, now: perfring.Now, most: maxUnder, first: noRead,
		watched: make(map[uint32]*watchedStack), slow: make(map[uint32]uint64),
		settled: make(map[uint64]settled), misses: make(misses),
		budget: rest.Share{Part: budgetShare, Slack: budgetSlack},
	}
}

// noteRoot remembers where a stack ends that was copied whole at a time, from low on.
func (r *stackReader) noteRoot(tid uint32, space, low, sp, now uint64) {
	r.roots[tid%uint32(len(r.roots))] = knownRoot{tid, space, low, sp}
	if len(r.watched) == 0 {
		return
	}
	if w := r.watched[tid]; w != nil && w.space == space {
		w.cuts.count(false)
		w.whole = now
	}
}

// noteGap keeps a gap that was seen at a time.
func (r *stackReader) noteGap(g stackGap, now uint64) {
	r.newGaps = r.gaps.note(g, now) || r.newGaps
}

// completed notes what has become of a stack of an address space that was cut off.
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
var errReadsHang = fmt.Errorf("memory: %d reads or more hang, and until they end, stacks of other processes "+
	"that were cut off may not be read either", maxHanging)

// watch ends a drain: it asks for readings of what is to be read. The error is errReadsHang while it is so.
func (r *stackReader) watch(now uint64) (err error) {
	for space, s := range r.settled {
		r.account.earn(space, s)
	}
	clear(r.settled)
	r.look() // what has come during a long drain does not hang
	r.looked = false
	hang := r.hanging()
	if hang >= maxHanging {
		err = errReadsHang
	}
	if hang < mostHanging {
		r.begin(now)
	}
	return err
}

// note keeps a stack that was cut off in a sample of a time.
func (r *stackReader) note(c *cutStack, now uint64) {
	w := r.watched[c.tid]
	if w == nil || w.pid != c.pid || w.space != c.space {
		if w == nil && !r.hasRoom(now) {
			return
		}
		size := max(r.account.open(c.space).size, firstReadSize)
		w = &watchedStack{pid: c.pid, space: c.space, size: size, root: r.rootFor(c), since: now}
		r.watched[c.tid] = w
	}
	if now > w.until() {
		w.cuts = 0
	}
	if indexOf(w.there, &c.from) < 0 {
		w.astray = now
	}
	w.cuts.count(true)
	w.cut, w.missed = now, 0
	if w.add(&c.from) {
		r.leaveTo(c.tid)
	}
}

// isSteady reports whether the stack is steady as of a time.
func (w *watchedStack) isSteady(now uint64) bool {
	return len(w.there) > 0 && now > w.astray+watchedFor
}

// until is how long the stack is read.
func (w *watchedStack) until() uint64 {
	if w.isSteady(w.cut) {
		return w.cut + steadyFor
	}
	return w.cut + watchedFor
}

// apart is the time from one reading to the next.
func (w *watchedStack) apart(now uint64) time.Duration {
	most := latestRead
	if w.isSteady(now) {
		most = min(max(time.Duration(now-min(now, w.cut))/silentShare, latestRead), silentRead)
	}
	return min(most, max(soonestRead, time.Duration(now-min(now, w.since))/readShare))
}

// add adds a frame as the newest, for the oldest one if there are many, and reports whether it was not there.
func (w *watchedStack) add(f *unwind.OpenFrame) (isNew bool) {
	i := indexOf(w.frames, f)
	isNew = i < 0
	if isNew && len(w.frames) >= maxWatchedFrames {
		i = 0
	}
	if i >= 0 {
		w.frames = slices.Delete(w.frames, i, i+1)
	}
	w.frames = append(w.frames, *f)
	return isNew
}

// indexOf is where the frame of the same function at the same place is among frames, or -1.
func indexOf(frames []unwind.OpenFrame, f *unwind.OpenFrame) int {
	return slices.IndexFunc(frames, func(g unwind.OpenFrame) bool { return g.IsAt(f) })
}

// forget forgets frames, and reports whether there were such.
func (w *watchedStack) forget(which func(*unwind.OpenFrame) bool) bool {
	n := len(w.frames)
	w.frames = slices.DeleteFunc(w.frames, func(f unwind.OpenFrame) bool { return which(&f) })
	return len(w.frames) < n
}

// rootFor is where a stack ended that was copied whole before, if this is the same one as far as that can be
// said, and 0 otherwise: other threads may have been on this one, and coroutines on others.
func (r *stackReader) rootFor(c *cutStack) uint64 {
	k := &r.roots[c.tid%uint32(len(r.roots))]
	if k.tid != c.tid || k.space != c.space || c.from.SP+nearRoot < k.low || c.from.SP > k.sp {
		return 0
	}
	return k.sp
}

// next says from when on the stack can be read.
func (w *watchedStack) next(now uint64) (from uint64, ok bool) {
	switch {
	case w.missed >= mostMissed || w.under != nil && (w.under.until > now+nextLook || w.under.mayHang(now)):
		return 0, false
	case w.under != nil:
		now = max(now, w.under.until)
	}
	return now, true
}

// isDue is next for a stack that is cut often, or whose process has just been read to some use: a reading
// completes only what is seen before it and after it, and most of those of a stack that is cut now and then
// complete nothing.
func (r *stackReader) isDue(w *watchedStack, now uint64) (from uint64, ok bool) {
	if !w.cuts.isMany() && !r.account.open(w.space).isOfUse() {
		return 0, false
	}
	return w.next(now)
}

// mayHang reports whether the readings have begun, and none has come yet.
func (u *readings) mayHang(now uint64) bool { return !u.some && now >= u.begins }

// hasRoom reports whether one more thread can be watched, and forgets those that are not cut off any more if
// there is no room otherwise.
func (r *stackReader) hasRoom(now uint64) bool {
	if len(r.watched) >= maxWatched {
		maps.DeleteFunc(r.watched, func(_ uint32, w *watchedStack) bool { return now > w.until() })
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

// extent is the part of the stack that is read; where it is not known how much that is, what is near.
func (w *watchedStack) extent() (low, high uint64) {
	low = w.frames[0].SP
	for i := range w.frames {
		low = min(low, w.frames[i].SP)
	}
	if w.root != 0 {
		return low, w.root
	}
	return low, low + uint64(min(w.size, nearRoot))
}

// hanging is how many readings hang. Their processes are not asked for others.
func (r *stackReader) hanging() (n int) {
	now := r.now()
	for _, u := range r.under {
		hung := u.hang
		if u.hang = !u.came && now-min(now, u.latest) >= hangsAfter; u.hang {
			r.postpone(u.pid, noRead)
			n++
		} else if hung {
			r.resume(u.pid)
		}
	}
	return n
}

// resume has a process read again that was not as its readings hung.
func (r *stackReader) resume(pid uint32) {
	if r.slow[pid] == noRead {
		delete(r.slow, pid)
	}
}

// postpone has a process not read until a time.
func (r *stackReader) postpone(pid uint32, until uint64) {
	if _, known := r.slow[pid]; !known && len(r.slow) >= 2*maxWatched {
		clear(r.slow)
	}
	r.slow[pid] = until
}

// begin asks for readings of the gaps, and of the stacks whose turn it is, as far as the budget allows.
func (r *stackReader) begin(now uint64) {
	for !r.budget.IsSpent(now) {
		hasRoom := r.active(now) < r.most
		if hasRoom {
			if u, parts := r.planGaps(now); u != nil {
				r.ask(u, parts, process.Plan{})
				r.budget.Spend(now, uint64(u.gaps)*priceOfGap)
				continue
			}
		}
		u, parts := r.plan(now, hasRoom)
		if u == nil {
			return
		}
		r.ask(u, parts, r.planFor(u, now))
	}
}

// active is how many readings neither hang nor wait for others to be over.
func (r *stackReader) active(now uint64) (n int) {
	for _, u := range r.under {
		if !u.hang && u.begins <= now {
			n++
		}
	}
	return n
}

// planFor is how often stacks are read: until readFor is over, unless their process has not enough credit.
func (r *stackReader) planFor(u *readings, now uint64) process.Plan {
	wait := time.Duration(u.begins - now)
	planned := r.mayPlan(u.space)
	most := max(1, int64((readFor-wait)/u.apart))
	u.left = int(min(most, max(planned, 0)+1))
	u.until = u.begins + uint64(u.left)*uint64(u.apart)
	return process.Plan{Times: u.left, After: wait, Apart: u.apart}
}

// mayPlan is how many readings of stacks of an address space there is credit for, beside those under way.
func (r *stackReader) mayPlan(space uint64) int64 {
	a := r.account.open(space)
	n := a.worth() / int64(priceOfReading)
	if !a.isOfUse() {
		n = min(n, mostPlanned)
	}
	for _, u := range r.under {
		if u.space == space && u.gaps == 0 {
			n -= int64(u.left)
		}
	}
	return n
}

// mayAsk reports whether a process may be asked for readings, of a gap or of stacks: there are few at a time,
// and no other ones if they hang or are slow.
func (r *stackReader) mayAsk(pid uint32, now uint64, gap bool) bool {
	more := maxOfOne
	if gap {
		more = 1
	}
	for _, u := range r.under {
		if u.pid == pid && gap == (u.gaps > 0) {
			more--
		}
	}
	return more > 0 && r.slow[pid] <= now
}

// planGaps is what is to be read of a process to close gaps, nil if there is nothing. Gaps of processes that
// hang or are slow are left out; others wait until those before them have been read.
func (r *stackReader) planGaps(now uint64) (u *readings, parts []process.Part) {
	waiting := r.gaps.waiting[:0]
	for i := range r.gaps.waiting {
		g := r.gaps.waiting[i]
		all := append(parts, g.parts()...)
		switch {
		case r.slow[g.pid] > now:
		case u == nil && r.mayAsk(g.pid, now, true):
			u, parts = &readings{pid: g.pid, gaps: 1}, all
		case u != nil && u.pid == g.pid && process.Plan{}.IsValid(all):
			parts = all
			u.gaps++
		default:
			waiting = append(waiting, g)
		}
	}
	r.gaps.waiting = waiting
	return u, parts
}

// plan is what is to be read of a process, nil if it is not any one's turn. With a stack that is due, the
// others of the process are read: that costs little more. Without room, only readings that follow others are
// planned.
func (r *stackReader) plan(now uint64, hasRoom bool) (u *readings, parts []process.Part) {
	first := uint32(0) // the thread whose stack is due
	for tid, w := range r.watched {
		if now > w.until() {
			delete(r.watched, tid)
			continue
		}
		from, isDue := r.isDue(w, now)
		switch {
		case !isDue || u != nil && from >= u.begins || from == now && !hasRoom || !r.mayAsk(w.pid, now, false):
		case from > now && r.mayPlan(w.space) <= 0:
		case r.account.mayRead(w.space, now):
			u = &readings{pid: w.pid, space: w.space, apart: silentRead, begins: from}
			first = tid
		case w.under == nil:
			delete(r.watched, tid)
		}
	}
	if u == nil {
		return nil, nil
	}
	parts = u.add(first, r.watched[first], nil, now)
	for tid, w := range r.watched {
		if from, ok := w.next(now); ok && w.under != u && w.space == u.space && from <= u.begins {
			parts = u.add(tid, w, parts, now)
		}
	}
	return u, parts
}

// add adds a stack and its parts, if these can be read together with the others.
func (u *readings) add(tid uint32, w *watchedStack, parts []process.Part, now uint64) []process.Part {
	its := w.parts()
	all := append(parts, its...)
	if !(process.Plan{}).IsValid(all) {
		return parts
	}
	w.under = u
	if w.cuts.isMany() || len(u.stacks) == 0 {
		u.apart = min(u.apart, w.apart(now))
	}
	u.stacks = append(u.stacks, plannedStack{tid, its})
	return all
}

// ask asks for readings.
func (r *stackReader) ask(u *readings, parts []process.Part, plan process.Plan) {
	u.latest = r.now()
	var err error
	if u.watch, err = r.memory.Watch(u.pid, parts, plan); err == nil {
		r.under = append(r.under, u)
		return
	}
	r.free(u)
	r.postpone(u.pid, u.latest+watchedFor)
}

// free says that nothing is read for these threads any more: where nothing was, not until they are cut again.
func (r *stackReader) free(u *readings) {
	for i := range u.stacks {
		if w := r.watched[u.stacks[i].tid]; w != nil && w.under == u {
			if w.under = nil; !u.some {
				w.missed = mostMissed
			}
		}
	}
}

// next gives readings of which the next one is the earliest of all, and was made up to a time; nil where
// there is none.
func (r *stackReader) next(until uint64) (first *readings) {
	if !r.looked {
		r.look()
	}
	if r.first > until {
		return nil
	}
	for _, u := range r.under {
		if u.came && (first == nil || u.next.Began < first.next.Began) {
			first = u
		}
	}
	return first
}

// look looks for what has come.
func (r *stackReader) look() {
	r.looked = true
	for _, u := range r.under {
		if !u.came {
			r.fetch(u)
		}
	}
	r.forget()
}

// taken says that the next reading of some was taken.
func (r *stackReader) taken(u *readings) {
	r.fetch(u)
	r.forget()
}

// fetch looks for the next reading.
func (r *stackReader) fetch(u *readings) {
	if u.next, u.came, u.over = u.watch.Next(); u.came {
		u.latest, u.some, u.left = r.now(), true, u.left-1
		return
	}
	if !u.over {
		return
	}
	if u.hang {
		r.resume(u.pid)
	}
	if !u.some && u.gaps == 0 { // the threads have ended, or nothing of the process can be read
		r.budget.Spend(r.now(), priceOfReading)
		r.account.spend(u.space, priceOfReading)
	}
	r.free(u)
}

// forget forgets readings that are over, and finds out when the earliest one was made.
func (r *stackReader) forget() {
	r.under = slices.DeleteFunc(r.under, func(u *readings) bool { return u.over })
	r.first = noRead
	for _, u := range r.under {
		if u.came {
			r.first = min(r.first, u.next.Began)
		}
	}
}

// spend takes the price of a reading from what may be read, and reports whether what was read can have been
// there together.
func (r *stackReader) spend(u *readings) (together bool) {
	took := u.next.Ended - min(u.next.Began, u.next.Ended)
	price := min(took, longestRead) + priceOfReading
	r.budget.Spend(u.next.Began, price)
	r.account.spend(u.space, price)
	if took >= slowRead {
		r.postpone(u.pid, u.next.Ended+slowShare*took)
	}
	return took < longestRead
}

// framesOf are the frames of a stack that are looked for in a reading, and whether the last one was sampled
// recently.
func (r *stackReader) framesOf(rd *stackRead) (frames []unwind.OpenFrame, recently bool) {
	if w := r.watched[rd.tid]; w != nil && w.space == rd.space {
		return w.frames, rd.time-min(w.cut, rd.time) <= uint64(latestRead)
	}
	return nil, false // the thread has ended since, or its process has executed another program
}

// done notes what a reading has shown of the end of a stack, as takeRead returns it, and whether any frame
// was there. It says how much to read the next time; a large frame at which a reading ends is passed over.
func (r *stackReader) done(rd *stackRead, root uint64, end *unwind.OpenFrame) {
	w := r.watched[rd.tid]
	if w == nil || w.space != rd.space {
		return
	}
	if max(w.cut, w.whole) > w.read {
		r.account.see(rd.space, w.cut <= w.read || indexOf(rd.frames, &w.frames[len(w.frames)-1]) < 0)
	}
	w.there, w.read = append(w.there[:0], rd.frames...), rd.time
	if w.missed++; len(rd.frames) > 0 {
		w.missed = 0
	} else {
		w.since = rd.time
	}
	// Of a large frame that has gone only what is below would be read, and above what is of no use.
	gone := len(rd.frames) > 0 && w.forget(func(f *unwind.OpenFrame) bool {
		return isLarge(f) && !f.Leaf && indexOf(rd.frames, f) < 0
	})
	last := rd.last()
	switch {
	case root >= last.start:
		w.root = root
		w.size = int(min(root-last.start, maxReadSize-aboveRoot)) + aboveRoot
	case end != nil && isLarge(end):
		if w.add(end) {
			w.under = nil // the readings that were planned without it show no more
		}
	case end != nil && gone:
		w.under = nil // likewise
	case end != nil && rd.full:
		w.root, w.size = 0, min(2*len(last.memory), maxReadSize)
	}
	r.account.open(rd.space).size = w.size
}
