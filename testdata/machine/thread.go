package machine

import (
	"bytes"
	"math/rand/v2"
	"slices"
)

// A thread has a stack, on which its frames are as its functions leave them.
type thread struct {
	tid    uint32
	p      *task
	stack  []byte // its memory, up to top
	top    uint64
	alt    segment // for signal handlers
	frames []frame // outermost first
	sp, bp uint64  // in the body of the innermost one
	bx     uint64
	exited bool
	*turns
}

// A frame is that of a function that has set it up.
type frame struct {
	m   *mapping
	f   *function
	cfa uint64 // the return address is below it
	bp  uint64 // of the caller
	bx  uint64
	sp  uint64 // of the caller, at the call
}

const (
	stackSize = 256 << 10
	firstSize = 8 << 10 // of the memory that a stack has at first
	// secret is what frames are filled with: none of it may be written.
	secret = 0x5ec2e7_5ec2e7_5e
)

// A segment is memory up to top.
type segment struct {
	memory []byte
	top    uint64
}

func (s segment) holds(addr uint64) bool { return addr < s.top && addr >= s.top-uint64(len(s.memory)) }

// from is the memory from an address on.
func (s segment) from(addr uint64) []byte { return s.memory[uint64(len(s.memory))-(s.top-addr):] }

// segment is the stack that an address is on.
func (t *thread) segment(addr uint64) segment {
	if t.alt.holds(addr) {
		return t.alt
	}
	return segment{t.stack, t.top}
}

// untouched is a stack that nothing was written to.
var untouched = bytes.Repeat(le.AppendUint64(nil, secret), stackSize/8)

// begin puts a thread at a function that has no caller.
func (t *thread) begin(m *mapping, f *function, top uint64) {
	t.top, t.sp, t.bp = top, top, 0
	t.stack = slices.Clone(untouched[:firstSize])
	t.frames = append(t.frames[:0], frame{m: m, f: f, cfa: top})
}

// fork copies a thread to another process, at the same addresses.
func (t *thread) fork(to *task, tid uint32) *thread {
	c := *t
	c.tid, c.p, c.turns = tid, to, new(turns)
	c.stack, c.alt.memory = slices.Clone(t.stack), slices.Clone(t.alt.memory)
	c.frames = append([]frame(nil), t.frames...)
	for i := range c.frames {
		c.frames[i].m = to.mappingAt(c.frames[i].m.start)
	}
	return &c
}

// reach makes the stack's memory reach down to an address.
func (t *thread) reach(at uint64) {
	if t.alt.holds(at) {
		return
	}
	size := len(t.stack)
	for uint64(size) < t.top-at {
		size *= 2
	}
	if size > len(t.stack) {
		t.stack = append(slices.Clone(untouched[:size-len(t.stack)]), t.stack...)
	}
}

func (t *thread) put(at, word uint64) {
	t.reach(at)
	le.PutUint64(t.segment(at).from(at), word)
}

// room reports whether another frame fits, however large it is.
func (t *thread) room() bool {
	if t.onAlt() {
		return t.alt.top-t.sp < altSize-8192
	}
	return t.top-t.sp < stackSize-8192
}

func (t *thread) last() *frame { return &t.frames[len(t.frames)-1] }

// choose chooses a call of the innermost function, and what it calls.
func (t *thread) choose(r *rand.Rand) (c *call, m *mapping, f *function) {
	l := t.last()
	c = &l.f.calls[r.IntN(len(l.f.calls))]
	if c.target >= 0 {
		return c, l.m, &l.m.file.image.functions[c.target]
	}
	m = t.p.maps[r.IntN(len(t.p.maps))]
	all := m.file.image.functions
	return c, m, &all[2+r.IntN(len(all)-2)]
}

// enter calls a function and sets up its frame.
func (t *thread) enter(r *rand.Rand) {
	l := t.last()
	c, m, f := t.choose(r)
	t.call(r, l.m.start+c.after, m, f)
}

// call calls a function, which returns to an address.
func (t *thread) call(r *rand.Rand, to uint64, m *mapping, f *function) {
	next := frame{m: m, f: f, cfa: t.sp, bp: t.bp, bx: t.bx, sp: t.sp}
	t.put(t.sp-8, to)
	t.sp -= 8
	switch f.kind {
	case byBP:
		t.put(t.sp-8, t.bp)
		t.bp = t.sp - 8
		t.sp -= 8
	case saves:
		t.put(t.sp-8, t.bx)
		t.bx = r.Uint64()
		t.sp -= 8
	}
	t.sp -= f.frame
	t.reach(t.sp)
	t.frames = append(t.frames, next)
}

// leave returns from the innermost function, and from the handler of a signal to what it has interrupted.
func (t *thread) leave() {
	for again := true; again && len(t.frames) > 1; again = t.last().f.kind == restorer {
		l := t.last()
		t.sp, t.bp, t.bx = l.sp, l.bp, l.bx
		t.frames = t.frames[:len(t.frames)-1]
	}
}

// again returns from some functions and calls the same ones, by other calls where there are some: the stack is as deep
// as before.
func (t *thread) again(r *rand.Rand) {
	kept := max(1, t.handled())
	kept += r.IntN(len(t.frames) - kept + 1)
	if kept == t.handled() {
		kept++ // the handler is not called
	}
	left := slices.Clone(t.frames[kept:])
	for range left {
		t.leave()
	}
	for _, was := range left {
		var some []*call
		l := t.last()
		for i := range l.f.calls {
			c := &l.f.calls[i]
			if c.target < 0 || was.m == l.m && &l.m.file.image.functions[c.target] == was.f {
				some = append(some, c)
			}
		}
		t.call(r, l.m.start+some[r.IntN(len(some))].after, was.m, was.f)
	}
}

// step goes on for a while.
func (t *thread) step(r *rand.Rand, deep int) {
	t.ran, t.count = t.ran+uint64(period), t.count+1
	if r.IntN(8) == 0 {
		t.again(r)
		return
	}
	for range 1 + r.IntN(6) {
		if n := len(t.frames); t.room() && (n < 3 || r.IntN(n+deep) < deep) {
			t.enter(r)
		} else if n > 1 {
			t.leave()
		}
	}
}

// otherwise returns to near the outermost function, and is as deep then as before, by any calls.
func (t *thread) otherwise(r *rand.Rand) {
	n := len(t.frames)
	for kept := 1 + r.IntN(n); len(t.frames) > kept; {
		t.leave()
	}
	for len(t.frames) < n && t.room() {
		t.enter(r)
	}
}

// A state is what a thread's registers are, and its true chain, innermost first.
type state struct {
	pc, sp, bp, bx uint64
	chain          []uint64
}

// now returns the state of the thread at one of the places where it can be sampled.
func (t *thread) now(r *rand.Rand) (s state) {
	l := t.last()
	s = state{sp: t.sp, bp: t.bp, bx: t.bx, chain: make([]uint64, 0, len(t.frames)+1)}
	at := r.IntN(8)
	switch {
	case at == 0 && t.room(): // at the first instruction of a function
		c, m, f := t.choose(r)
		t.put(t.sp-8, l.m.start+c.after)
		s.pc, s.sp = m.start+f.start, t.sp-8
		s.chain = append(s.chain, s.pc, l.m.start+c.after)
		if r.IntN(2) == 0 && (f.kind == byBP || f.kind == saves) { // behind its push
			saved := t.bp
			if f.kind == saves {
				saved = t.bx
			}
			t.put(t.sp-16, saved)
			s.pc, s.sp = s.pc+1, t.sp-16
			s.chain[0] = s.pc
		}
	case at == 1 && l.f.kind != outest: // at the return
		s.pc, s.sp, s.bp, s.bx = l.m.start+l.f.ret, l.cfa-8, l.bp, l.bx
		s.chain = append(s.chain, s.pc)
	default:
		s.pc = l.m.start + l.f.body[r.IntN(len(l.f.body))]
		s.chain = append(s.chain, s.pc)
	}
	for i := len(t.frames) - 1; i > 0; i-- { // the return addresses are on the stack
		s.chain = append(s.chain, t.word(t.frames[i].cfa-8))
	}
	return s
}

func (t *thread) word(at uint64) uint64 {
	return le.Uint64(t.segment(at).from(at))
}

// copy returns what the kernel copies from SP on.
func (t *thread) copy(sp uint64, most int) []byte {
	s := t.segment(sp).from(sp)
	return s[:min(most, len(s))]
}
