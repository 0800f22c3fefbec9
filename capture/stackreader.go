package capture

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"unspool/perfring"
	"unspool/unwind"
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
	cut    []cutStack // since the last drain; the session's
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
}

// A watchedStack is one that is read over and over, as long as it is cut off in samples.
type watchedStack struct {
	pid    uint32
	space  uint64
	frames []unwind.OpenFrame // of the last samples, any of which may be there still
	size   int                // bytes to be read
	since  uint64             // it has been there
	due    uint64             // is the next read
	cut    uint64             // was the last sample
}

// A stackRead is a part of a stack, from a frame on that was there.
type stackRead struct {
	cutStack
	time   uint64
	memory []byte // from the frame's SP on
	full   bool   // there is more of it
	buf    []byte
	under  *readUnderWay
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
	watchedFor = uint64(500 * time.Millisecond)

	maxWatched       = 64 // threads
	maxWatchedFrames = 8  // of each
	maxCut           = 512

	firstReadSize = 16 << 10 // bytes
	maxReadSize   = 1 << 20
	maxReadyBytes = 8 << 20 // which the session has not taken yet
)

func newStackReader(memory process.Memory) *stackReader {
	r := &stackReader{
		memory: memory, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		watched: make(map[uint32]*watchedStack), slow: make(map[uint32]uint64),
	}
	r.first.Store(noRead)
	return r
}

// note takes in a stack that was cut off.
func (r *stackReader) note(c cutStack) {
	if n := len(r.cut); n > 0 && r.cut[n-1] == c {
		return
	}
	if len(r.cut) < maxCut {
		r.cut = append(r.cut, c)
	}
}

// errReadsHang is about stacks that somebody keeps from being read.
var errReadsHang = fmt.Errorf("memory of %d processes: reads of it hang, and until one of them ends, the stacks of "+
	"other processes that were cut off are not read either", maxHanging+1)

// watch hands the goroutine what was noted since the last time. The error is errReadsHang while it is so.
func (r *stackReader) watch(now uint64) (err error) {
	if r.giveUp(perfring.Now()) {
		err = errReadsHang
	}
	if len(r.cut) == 0 {
		return err
	}
	r.mu.Lock()
	for i := range r.cut {
		r.watchOne(&r.cut[i], now)
	}
	r.mu.Unlock()
	r.cut = r.cut[:0]
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

func (r *stackReader) watchOne(c *cutStack, now uint64) {
	w := r.watched[c.tid]
	if w == nil || w.pid != c.pid || w.space != c.space {
		if w == nil && len(r.watched) >= maxWatched {
			return
		}
		w = &watchedStack{pid: c.pid, space: c.space, size: firstReadSize, since: now, due: now}
		r.watched[c.tid] = w
	}
	w.cut = now
	if slices.ContainsFunc(w.frames, func(f unwind.OpenFrame) bool { return f.IsAt(&c.from) }) {
		return
	}
	if len(w.frames) >= maxWatchedFrames {
		w.frames = slices.Delete(w.frames, 0, 1)
	}
	w.frames = append(w.frames, c.from)
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
	r.bytes -= len(rd.memory)
	r.first.Store(noRead)
	if len(r.ready) > 0 {
		r.first.Store(r.ready[0].time)
	}
	return rd
}

// done gives a read back, of which more is wanted the next time if it was too short.
func (r *stackReader) done(rd *stackRead, tooShort bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watched[rd.tid]; tooShort && rd.full && w != nil && w.size < maxReadSize {
		w.size = min(2*len(rd.buf), maxReadSize)
	}
	if cap(rd.buf) <= 4*firstReadSize && len(r.spare) < maxWatched {
		r.spare = append(r.spare, rd)
	}
}

// run is the goroutine.
func (r *stackReader) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-r.wake:
		case <-timer.C:
		}
		due, over := r.readDue(perfring.Now())
		if over {
			return
		}
		if due != noRead {
			timer.Reset(time.Duration(due - min(due, perfring.Now())))
		}
	}
}

// giveUp leaves a read that hangs to its goroutine, and begins another one for the other processes, unless too
// many hang already.
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
// goroutine goes on.
func (r *stackReader) readDue(now uint64) (due uint64, over bool) {
	for {
		rd, w, next := r.pick(now)
		if rd == nil {
			return next, false
		}
		there := rd.read(r.memory, w.frames, w.size)
		if r.finish(rd, there, perfring.Now()) {
			return 0, true
		}
	}
}

// pick gives the next stack whose turn it is, and otherwise when the next one's is.
func (r *stackReader) pick(now uint64) (rd *stackRead, w watchedStack, due uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, over := r.budget.over(now); over {
		return nil, w, until
	}
	due = noRead
	for tid, w := range r.watched {
		switch {
		case now > w.cut+watchedFor:
			delete(r.watched, tid)
		case w.due > now || r.bytes+w.size > maxReadyBytes:
			due = min(due, max(w.due, now+soonestRead))
		case r.slow[w.pid] > now:
			due = min(due, r.slow[w.pid])
		default:
			w.due = now + min(max((now-w.since)/readShare, soonestRead), latestRead)
			if rd = new(stackRead); len(r.spare) > 0 {
				rd, r.spare = r.spare[len(r.spare)-1], r.spare[:len(r.spare)-1]
			}
			rd.pid, rd.tid, rd.space = w.pid, tid, w.space
			rd.time = perfring.Now()
			rd.under = &readUnderWay{pid: w.pid, began: rd.time}
			r.reading = rd.under
			copied := *w
			copied.frames = slices.Clone(w.frames)
			return rd, copied, 0
		}
	}
	return nil, watchedStack{}, due
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
	r.budget.spend(min(took, longestRead))
	if !there {
		if w := r.watched[rd.tid]; w != nil {
			w.since = now
		}
		return false
	}
	if len(r.ready) == 0 {
		r.first.Store(rd.time)
	}
	r.ready = append(r.ready, rd)
	r.bytes += len(rd.memory)
	return false
}

// longestRead is how long a read may take: of what was read piece by piece for longer, nobody knows when the
// pieces were there together.
const longestRead = uint64(time.Millisecond)

// read reads from the innermost frame on that is there, with its return address in its place.
func (rd *stackRead) read(memory process.Memory, frames []unwind.OpenFrame, size int) (there bool) {
	const word = 8
	slices.SortFunc(frames, func(a, b unwind.OpenFrame) int { return cmp.Compare(a.SP, b.SP) })
	start := frames[0].SP - word
	if cap(rd.buf) < size {
		rd.buf = make([]byte, size)
	}
	rd.buf = rd.buf[:size]
	got := rd.buf[:memory.ReadMemory(rd.pid, rd.buf, start)]
	rd.full = len(got) == size
	for _, f := range frames {
		at := f.SP - start
		if at > uint64(len(got)) || at < word {
			return false
		}
		if pc := binary.LittleEndian.Uint64(got[at-word:]); f.Returns(pc) {
			rd.from, rd.memory = f, got[at:]
			rd.from.PC = pc
			return true
		}
	}
	return false
}

// A readBudget bounds the time that reading takes to a share of all time.
type readBudget struct{ began, spent uint64 }

const (
	budgetFor  = uint64(100 * time.Millisecond)
	mostBudget = budgetFor / 50
)

func (b *readBudget) spend(ns uint64) { b.spent += ns }

// over says whether there is nothing left, and until when.
func (b *readBudget) over(now uint64) (until uint64, over bool) {
	if now-b.began >= budgetFor {
		b.began, b.spent = now, 0
	}
	return b.began + budgetFor, b.spent >= mostBudget
}

// misses says by TID how many of a thread's last cut stacks were not completed with what samples show alone:
// each counts an eighth less than the one after.
type misses map[uint32]int

const (
	missWeight = 32
	manyMisses = missWeight * 8 / 4 // a quarter of all, or the first three
)

func (m misses) count(tid uint32, missed bool) {
	n := m[tid] * 7 / 8
	if missed {
		n += missWeight
	}
	if _, known := m[tid]; !known && len(m) >= maxCutSpaces {
		clear(m)
	}
	m[tid] = n
}

// watch notes a sample whose stack goes on beyond its copy, so that the rest is read, if samples do not show
// it. A read wakes two processes.
func (s *Session) watch(pid, tid uint32, space uint64) {
	if s.joiner.misses[tid] < manyMisses {
		return
	}
	if from, ok := s.result.OpenFrame(); ok {
		s.reader.note(cutStack{pid: pid, tid: tid, space: space, from: from})
	}
}

// takeReads walks over what was read of stacks up to a time, of which all records before have been taken.
func (s *Session) takeReads(until uint64) {
	for rd := s.reader.next(until); rd != nil; rd = s.reader.next(until) {
		s.reader.done(rd, s.takeRead(rd))
	}
}

// takeRead adds a read to the sightings of its stack. tooShort says that it does not go to the root.
func (s *Session) takeRead(rd *stackRead) (tooShort bool) {
	space := s.table.Space(rd.pid)
	if space == nil || space.ID() != rd.space {
		return false // of a process that has gone since
	}
	s.images.Walks(rd.pid)
	stack := unwind.Stack{Base: rd.from.SP, Data: rd.memory, Asked: uint64(len(rd.memory))}
	res := s.walker.WalkOn(space, rd.from, &stack)
	j := s.joiner
	j.frames = res.LinksOfRead(&j.log, rd.space, rd.time, j.frames)
	return res.End == unwind.DumpTooShort
}
