package unwind

import (
	"unspool/unwind/jit"
	"unspool/unwind/link"
	"unspool/unwind/module"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// An Unwinder walks stack copies. It keeps the buffers of the last walk, so
// one goroutine uses it at a time.
type Unwinder struct {
	// Strict keeps the walk to CFI: no frame pointers, no guesses.
	Strict bool
	// MaxFrames is how many frames a walk has at most. One that has so many ends with DepthLimit.
	MaxFrames int
	// Live means that samples come from a running recording. Their stacks are not in this CPU's caches, as another CPU
	// has just written them: they are fetched before they are walked. And some code is only looked at when that takes
	// little time: see misled. Without it, what is found of a stack does not depend on those before.
	Live bool

	modules module.Source
	jit     *jit.Reader
	slow    bool // every frame through the general evaluator, for tests
	places  places
	memos   memos
	walk    walk // the last one

	fetched uint64
	looked  uint64 // see Astray: when it looked last,
	looks   uint64 // and how often

	called [1 << calledBits]uint64 // return addresses of sampled functions: see misled

	framePointers []uint64 // what FollowFramePointers returned last
	hosts         map[uint64]hostFrame
}

// calledBits is of how many return addresses it is known that they were seen, as a power of 2.
const calledBits = 12

// A walk is what one walk over a stack copy knows.
type walk struct {
	*Unwinder
	space  *vmas.Space
	stack  *Stack
	sample *Regs // the registers of the sample, on x86-64
	moves  stackMoves
	regs   checkpoint
	made   *jit.ProcessCode // what is known of the code that the process has generated; nil until it is asked for

	expressions int // what expressions may still cost, in steps

	ips    []uint64
	frames []Frame
	last   frame // of a walk of x86-64 that ended in a frame
	zero   bool  // it ended because CFI led to a return address of 0
}

// NewUnwinder returns an Unwinder that takes its modules from a store; nil is enough for
// [Unwinder.FollowFramePointers].
func NewUnwinder(modules module.Source) *Unwinder {
	u := &Unwinder{MaxFrames: 2048, modules: modules}
	if modules != nil {
		u.jit = jit.NewReader(modules, modules.Source())
	}
	u.walk.Unwinder = u
	return u
}

// A frame is what the fast rules know of a frame: its PC and the values of
// SP and BP in it.
type frame struct {
	pc, sp, bp uint64
	// exact means that pc is the frame's next instruction, as in the sampled frame and in one that a signal
	// interrupted. Otherwise pc is a return address, and rules are looked up for the call before it.
	exact bool
}

func (f *frame) lookup() uint64 {
	if f.exact {
		return f.pc
	}
	return f.pc - 1
}

// Unwind walks the stack of a sample taken in the process whose mappings are
// space. It does not allocate once its buffers have grown and the rules that
// it meets are known.
//
// Where CFI alone does not lead to the root, it matters what is not known yet: a walk goes no further where
// the caller may be in a file that has not been read. If something comes meanwhile, one part of the walk does
// not know what another one does, and the stack is walked again.
func (u *Unwinder) Unwind(space *vmas.Space, regs *Regs, stack *Stack) Result {
	for range mostWalks {
		before := u.modules.Arrivals()
		if res := u.unwind(space, regs, stack); u.knewAll(before, &res) {
			return res
		}
		u.memos.forget(stack.Thread)
	}
	return u.SampledOnly(regs, NoImage)
}

// mostWalks is how often a stack is walked. Something new may come each time.
const mostWalks = 8

// knewAll reports whether nothing came in a walk that matters for its result. before is what
// [module.Source.Arrivals] was at its beginning.
func (u *Unwinder) knewAll(before uint64, res *Result) bool {
	return u.modules.Arrivals() == before || res.isCertain()
}

// unwind is Unwind for one walk.
func (u *Unwinder) unwind(space *vmas.Space, regs *Regs, stack *Stack) Result {
	f := frame{pc: regs.Value[rule.IP], sp: regs.Value[rule.SP], bp: regs.Value[rule.BP], exact: true}
	w := u.begin(space, stack)
	w.push(&f, BySample)
	w.regs = checkpoint{frame: 0, exact: true, regs: *regs}
	w.sample = regs

	var p place
	if !w.locate(&p, f.lookup()) {
		return w.end(Unmapped, nil)
	}
	m, sampled := u.memos.lookup(stack.Thread, space), p.m
	c := climb{walk: w, words: wordsOf(stack), known: m.frames()}
	if u.Live {
		c.fetch()
	}
	end := c.follow(&p, &f)
	if end == Unmapped && w.isEntered(&p, &f) {
		end = Root
	}
	if end == Unmapped && len(w.ips) < u.MaxFrames {
		next, source := w.subroutine(&p, &f, frame{})
		if source == ByCFI {
			next, source = w.straight(&p, &f, next)
		}
		if source != ByCFI && w.locate(&p, next.lookup()) {
			w.regs.restart(len(w.ips), &next)
			f = next
			w.push(&f, source)
			c.whole = false
			end = c.follow(&p, &f)
		}
	}
	if !w.Strict && w.misled() {
		w.ips, w.frames, c.whole = w.ips[:1], w.frames[:1], false
		m.keep(&c)
		return w.end(BadCFI, sampled)
	}
	w.last = f
	m.keep(&c)
	switch {
	case end == Unmapped && w.beginsStack():
		end = Root
	case end == NoCFI && p.jit != nil && !w.Strict:
		w.resume(&f)
	}
	return w.endOpen(end, p.m)
}

// beginsStack reports whether the walk has reached the first frame of a stack that a runtime made for a
// coroutine, with a return address of 0. The sampled frame alone does not count: its PC may be where its CFI
// does not fit.
func (w *walk) beginsStack() bool { return w.zero && len(w.ips) > 1 }

// follow walks from f, which lies at p, to the last frame, and leaves that in f and p.
func (c *climb) follow(p *place, f *frame) Reason {
	w := c.walk
	w.moves, w.zero = stackMoves{}, false
	for {
		if end := c.run(p, f); end != stepped {
			return w.moves.end(end)
		}
		next, source, end := w.step(p, f)
		if end != stepped {
			return w.moves.end(end)
		}
		if source != ByCFI {
			w.regs.restart(len(w.ips), &next)
		}
		if !w.moves.switched {
			w.frames[len(w.frames)-1].saved = p.slot(f, &next, source)
		}
		if len(w.ips) >= w.MaxFrames {
			return DepthLimit
		}
		if !w.locate(p, next.lookup()) || p.data && !next.exact {
			w.zero = next.pc == 0 && source == ByCFI && !next.exact
			return Unmapped
		}
		*f = next
		w.push(f, source)
		c.whole = false
	}
}

// slot gives what is saved in the [Frame] of f, which lies at p, if its caller next was found without CFI but
// follows as by a fast rule.
func (p *place) slot(f, next *frame, by Source) uint32 {
	if next.sp <= f.sp || next.sp%8 != 0 {
		return noSlot
	}
	switch {
	case by == ByFramePointer && next.sp == f.bp+16:
		if p.module != nil && p.jit == nil && p.rule(f.lookup()) != rule.Uncovered {
			return noSlot // a rule has failed, which may depend on more than what the frame has
		}
		return 16
	case by == ByHeuristic && p.module != nil:
		r := p.rule(f.lookup())
		k := r.Kind()
		if k == rule.GuessSP && next.sp == f.sp+r.CFA() || k == rule.GuessBP && next.sp == f.bp+r.CFA() {
			switch b := r.BP(); {
			case b == 0 || next.sp-b < f.sp:
				return 0
			case b != 8*rule.MaxBP:
				return uint32(b)
			}
		}
	}
	return noSlot
}

// begin starts a walk over a stack, with empty buffers that have room for MaxFrames.
func (u *Unwinder) begin(space *vmas.Space, stack *Stack) *walk {
	w := &u.walk
	w.space, w.stack, w.moves, w.made = space, stack, stackMoves{}, nil
	w.expressions = maxExpressions
	if stack != nil {
		stack.missed = 0
	}
	if cap(w.ips) < u.MaxFrames {
		w.ips, w.frames = make([]uint64, 0, u.MaxFrames), make([]Frame, 0, u.MaxFrames)
	}
	w.ips, w.frames = w.ips[:0], w.frames[:0]
	return w
}

// push adds a frame to the result.
func (w *walk) push(f *frame, by Source) {
	w.ips = append(w.ips, f.pc)
	w.frames = append(w.frames, Frame{SP: f.sp, Source: by, pc: f.pc, bp: f.bp, saved: noSlot, exact: f.exact})
}

func (w *walk) end(r Reason, at *vmas.Mapping) Result {
	return Result{IPs: w.ips, Frames: w.frames, End: r, At: at, grown: w.moves.grown,
		switched: w.moves.switched, walk: w}
}

// endOpen is end for a walk that other walks may complete, if they have seen its last frame and its callers.
func (w *walk) endOpen(r Reason, at *vmas.Mapping) Result {
	if r != DumpTooShort {
		return w.end(r, at)
	}
	return w.endCut(at)
}

// endCut is endOpen for a walk that ends where the copy does.
func (w *walk) endCut(at *vmas.Mapping) Result {
	res := w.end(DumpTooShort, at)
	n := len(w.frames)
	res.Elsewhere = w.moves.switched || w.moves.isPartial() || w.leavesStack(at)
	if !w.moves.switched && !w.moves.isPartial() && !(w.frames[n-1].exact && n > 1) {
		res.Open = n
		res.Within, res.CFA, res.SavedCFA = w.function(at)
	}
	return res
}

// leavesStack reports whether the last frame of the walk, whose mapping is m, leads by BP so far up that no copy has
// both: it is on another stack than its caller, as in split stacks, or larger than what the kernel copies. Where
// nothing was copied, that is why the walk ended.
func (w *walk) leavesStack(m *vmas.Mapping) bool {
	const mostCopied = 1<<16 - 8 // sample_stack_user has 16 bits
	last := &w.frames[len(w.frames)-1]
	if last.bp < last.SP || last.bp-last.SP < mostCopied || len(w.stack.Data) == 0 || m == nil {
		return false
	}
	lookup := last.pc
	if !last.exact {
		lookup--
	}
	var p place
	if !w.locate(&p, lookup) {
		return false
	}
	if p.module == nil || p.jit != nil {
		return p.jit != nil // by its frame pointer: see generated
	}
	switch r := p.rule(lookup); r.Kind() {
	case rule.FromBP, rule.Realigned, rule.GuessBP, rule.Uncovered:
		return true
	case rule.Wide:
		return p.rules.Wide(r).Kind == rule.FromBP
	}
	return false
}

// function is where the function of the last frame lies, whose mapping is m, and the frame's CFA, or where
// that is saved.
func (w *walk) function(m *vmas.Mapping) (f link.Function, cfa, saved uint64) {
	last := &w.frames[len(w.frames)-1]
	lookup := last.pc
	if !last.exact {
		lookup--
	}
	var p place
	if m == nil || !w.locate(&p, lookup) || p.module == nil || p.jit != nil {
		return f, 0, 0
	}
	f.Low, f.High, _ = p.function(lookup)
	switch r := p.rule(lookup); r.Kind() {
	case rule.FromSP:
		cfa = last.SP + r.CFA()
	case rule.FromBP:
		cfa = last.bp + r.CFA()
	case rule.Wide:
		wide := p.rules.Wide(r)
		if cfa = last.SP + wide.CFA; wide.Kind == rule.FromBP {
			cfa = last.bp + wide.CFA
		}
	case rule.FromSaved:
		at, _ := r.Saved()
		saved = last.SP + at
	case rule.Realigned:
		saved = last.bp - r.CFA()
	}
	if cfa <= last.SP {
		cfa = 0
	}
	if saved <= last.SP {
		saved = 0
	}
	return f, cfa, saved
}

// stepped is the reason of a step that did not end the walk.
const stepped = Reason(NumReasons)

// step finds the caller of f, which lies at p.
func (w *walk) step(p *place, f *frame) (next frame, source Source, end Reason) {
	r := rule.Uncovered
	if p.module != nil {
		r = p.rule(f.lookup())
		if w.slow && r.Kind() <= rule.General {
			r = rule.General
		}
	}
	if p.jit != nil && (r == rule.Uncovered || !p.module.State().CFI) {
		r = w.generatedRule(p, f)
	}

	next.exact = false
	var saved uint64 // where BP is saved, 0 when it is not
	switch r.Kind() {
	case rule.FromSP:
		next.sp = f.sp + r.CFA()
		saved = r.BP()
	case rule.FromBP:
		next.sp = f.bp + r.CFA()
		saved = r.BP()
	case rule.Wide:
		w := p.rules.Wide(r)
		next.sp = f.sp + w.CFA
		if w.Kind == rule.FromBP {
			next.sp = f.bp + w.CFA
		}
		saved = w.BP
	case rule.FromSaved:
		at, plus := r.Saved()
		sp, ok := w.stack.word(f.sp + at)
		if !ok {
			return next, ByCFI, w.miss(f.sp + at)
		}
		next.sp = sp + plus
		saved = r.BP()
	case rule.Realigned:
		cfa, ok := w.stack.word(f.bp - r.CFA())
		if !ok {
			return w.despiteCFI(p, f, w.miss(f.bp-r.CFA()))
		}
		next.sp = cfa
		saved = cfa - f.bp
	case rule.Sigframe:
		return w.signal(f)
	case rule.OtherStack:
		return w.otherStack(f)
	case rule.EndOfStack:
		return next, ByCFI, Root
	case rule.Local, rule.General:
		return w.general(p, f, r.Kind() == rule.General)
	case rule.NewThread:
		if w.returnsZero() {
			return next, ByCFI, Root
		}
		return w.general(p, f, false)
	case rule.FromC:
		w.moves.fromC = true
		return w.general(p, f, false)
	case rule.EHReturn:
		return w.throwing(p, f, r)
	case rule.EntryCode:
		if w.isProcessStart(rule.AMD64, f.sp+r.CFA()) || r.CFA() != 0 && w.isProcessStart(rule.AMD64, f.sp) {
			return next, ByCFI, Root
		}
		return w.framePointer(p, f)
	case rule.GuessSP, rule.GuessBP, rule.GuessSaved, rule.GuessReg:
		next, source, end = w.guess(p, f, r)
		if end == NoCFI && p.jit != nil && r == jit.Thunk {
			return w.generated(p, f)
		}
		return next, source, end
	case rule.Uncovered:
		next, source, end = w.framePointer(p, f)
		if end == NoCFI && p.jit != nil {
			return w.generated(p, f)
		}
		return next, source, end
	case rule.Unreadable:
		return next, ByCFI, NoImage
	default:
		return w.despiteCFI(p, f, BadCFI)
	}

	if next.sp <= f.sp {
		return w.despiteCFI(p, f, w.below(next.sp))
	}
	pc, ok := w.stack.word(next.sp - 8)
	if !ok {
		return w.despiteCFI(p, f, w.miss(next.sp-8))
	}
	next.pc = pc
	next.bp = f.bp
	// A slot below SP was popped: compilers leave the rule in place to the
	// end of the epilogue, while the register has its value back.
	if saved != 0 && next.sp-saved >= f.sp {
		if next.bp, ok = w.stack.word(next.sp - saved); !ok {
			return next, ByCFI, w.miss(next.sp - saved)
		}
	}
	return next, ByCFI, stepped
}

// isProcessStart reports whether what the kernel puts on the stack of a new
// program is at SP: argc, argv and a zero (System V ABI, AMD64 supplement,
// § 3.4.1, Intel386 supplement, figure 3-31). Start code may have aligned SP
// and pushed arguments: see [rule.Arch].
func (w *walk) isProcessStart(arch *rule.Arch, sp uint64) bool {
	const mostArgs = 1 << 16
	size, word := arch.WordSize, uint64(arch.WordSize)
	for i := range uint64(arch.StartWords) + 1 {
		at := sp + i*word
		argc, ok := w.stack.uint(at, size)
		if !ok || argc == 0 || argc > mostArgs {
			continue
		}
		first, ok1 := w.stack.uint(at+word, size)
		last, ok2 := w.stack.uint(at+word*(1+argc), size)
		if ok1 && ok2 && first > at && last == 0 {
			return true
		}
	}
	return false
}

// isEntered reports whether f, which lies at p, is the entry point of a program, although its CFI says that it
// was called, as that of a _start in C does. By that CFI, argc is the return address.
func (w *walk) isEntered(p *place, f *frame) bool {
	if p.module == nil || !p.isEntry(f.lookup()) {
		return false
	}
	cfa := w.regs.regs.Value[rule.SP]
	if w.regs.frame != len(w.ips) { // the walk has not evaluated all registers of the caller
		next, _, end := w.step(p, f)
		if end != stepped || next.exact {
			return false
		}
		cfa = next.sp
	}
	return w.isProcessStart(rule.AMD64, cfa-8)
}

// framePointer finds the caller of f, which lies at p and has no CFI, through the saved
// frame pointer. The frame found is credible when its return address follows a
// call that can lead to f. The saved BP need not be a frame pointer: the caller may have CFI,
// and use BP for something else.
func (w *walk) framePointer(p *place, f *frame) (next frame, source Source, end Reason) {
	if w.Strict {
		return next, ByFramePointer, NoCFI
	}
	if caller, ok := w.leafCaller(f); ok {
		return caller, ByHeuristic, stepped
	}
	if f.bp < f.sp || f.bp%8 != 0 {
		return next, ByFramePointer, NoCFI
	}
	bp, ok1 := w.stack.word(f.bp)
	pc, ok2 := w.stack.word(f.bp + 8)
	if !ok1 || !ok2 {
		if w.stack.miss(f.bp+8) == DumpTooShort {
			return next, ByFramePointer, DumpTooShort
		}
		return next, ByFramePointer, NoCFI
	}
	if !w.credible(p, f, pc, bp) {
		return next, ByFramePointer, NoCFI
	}
	next, source = frame{pc: pc, sp: f.bp + 16, bp: bp}, ByFramePointer
	if f.exact {
		switch caller, found, lost := w.passedOver(f, &next); {
		case found:
			next, source = caller, ByHeuristic
		case lost:
			return next, ByFramePointer, NoCFI
		}
	}
	if w.contradicts(p, f.lookup(), next.pc, false) {
		return next, source, NoCFI
	}
	return next, source, stepped
}

// despiteCFI finds the caller of a frame whose CFI led to none. why is the reason, which is returned if
// nothing else leads to a caller. The frame pointer is tried only if the CFI cannot be right: where it leads
// to memory that was not copied, the caller is there.
func (w *walk) despiteCFI(p *place, f *frame, why Reason) (next frame, source Source, end Reason) {
	if why == NotCopied && f.exact && !w.Strict && p.module != nil {
		if next, ok := w.savedSP(p, f); ok {
			return next, ByHeuristic, stepped
		}
	}
	if why == BadCFI {
		if next, source, end = w.framePointer(p, f); end == stepped && w.followsCall(next.pc) {
			return next, source, end
		}
	}
	return frame{}, ByCFI, why
}

// SampledOnly is the result for a sample that cannot be walked at all: the
// sampled PC, and why that is all.
func (u *Unwinder) SampledOnly(regs *Regs, why Reason) Result {
	w := u.begin(nil, nil)
	w.push(&frame{pc: regs.Value[rule.IP], sp: regs.Value[rule.SP]}, BySample)
	return w.end(why, nil)
}
