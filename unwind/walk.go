package unwind

import (
	"unspool/unwind/image"
	"unspool/unwind/jit"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// An Unwinder walks stack copies. It keeps the buffers of the last walk, so
// one goroutine uses it at a time.
type Unwinder struct {
	// Strict keeps the walk to CFI: no frame pointers, no guesses.
	Strict bool
	// MaxFrames ends a walk with DepthLimit.
	MaxFrames int
	// Far says that stacks are in no near cache: another CPU has just written them.
	Far bool

	// Memory, if set, reads the memory of a process that may still run: the
	// rest of the stack that a handler on a stack of its own has interrupted.
	// It returns how many bytes it could read. Strict walks do not ask.
	Memory func(pid uint32, buf []byte, addr uint64) int

	images *image.Store
	jit    *jit.Reader
	slow   bool // every frame through the general evaluator, for tests
	places places
	memos  memos
	walk   walk   // the last one
	live   []byte // what Memory read

	fetched uint64

	framePointers []uint64 // what FollowFramePointers returned last
}

// A walk is what one walk over a stack copy knows.
type walk struct {
	*Unwinder
	space  *vmas.Space
	stack  *Stack
	sample *Regs // the registers of the sample, on x86-64
	moves  stackMoves
	regs   checkpoint

	ips    []uint64
	frames []Frame
	last   frame // of a walk of x86-64 that ended in a frame
}

// NewUnwinder returns an Unwinder that takes its images from images.
func NewUnwinder(images *image.Store) *Unwinder {
	u := &Unwinder{MaxFrames: 2048, images: images}
	if images != nil { // nil is enough for [Unwinder.FollowFramePointers]
		u.jit = jit.NewReader(images, generatedFrom(images))
	}
	u.walk.Unwinder = u
	return u
}

// A Result is one unwound stack. Its slices are valid until the next walk.
type Result struct {
	// IPs holds the sampled PC, then the return addresses, unadjusted.
	IPs []uint64
	// Frames says how each of them was found.
	Frames []Frame
	// End says why the walk ended.
	End Reason
	// At is the mapping in which the last frame lies, nil when it lies in none.
	At *vmas.Mapping
}

// SavedBP gives the address that the BP of frame i was loaded from. ok is false where it was not
// loaded, and in frames that were not found by a fast rule.
func (r *Result) SavedBP(i int) (addr uint64, ok bool) {
	if i == 0 {
		return 0, false
	}
	slot := r.Frames[i-1].saved
	if slot == 0 || slot == noSlot {
		return 0, false
	}
	return r.Frames[i].SP - uint64(slot), true
}

// A frame is what the fast rules know of a frame: its PC and the values of
// SP and BP in it.
type frame struct {
	pc, sp, bp uint64
	// exact says that pc is where the frame stands, as in the sampled frame
	// and below a signal frame. Otherwise pc is a return address, and the
	// call that it follows is looked up.
	exact bool
}

func (f *frame) lookup() uint64 {
	if f.exact {
		return f.pc
	}
	return f.pc - 1
}

// A Frame is what is known of a frame beside its IP.
type Frame struct {
	// SP is its stack pointer, which for a caller is the CFA of the frame that it
	// called; 0 where that is unknown.
	SP     uint64
	pc, bp uint64
	// saved says how the caller follows by a rule of the fast kind: its BP is saved
	// that many bytes below the CFA, or is the same if 0. It is noSlot elsewhere.
	saved uint32
	exact bool
	// Source says how the frame was found.
	Source Source
}

const noSlot = ^uint32(0)

// Unwind walks the stack of a sample taken in the process whose mappings are
// space. It does not allocate once its buffers have grown and the rules that
// it meets are known.
func (u *Unwinder) Unwind(space *vmas.Space, regs *Regs, stack *Stack) Result {
	f := frame{pc: regs.Value[rule.IP], sp: regs.Value[rule.SP], bp: regs.Value[rule.BP], exact: true}
	w := u.begin(space, stack)
	w.push(&f, BySample)
	w.regs = checkpoint{frame: 0, exact: true, regs: *regs}
	w.sample = regs

	var p place
	if !w.locate(&p, f.lookup()) {
		return w.end(Unmapped, nil)
	}
	m := u.memos.of(stack.Thread, space)
	c := climb{walk: w, words: wordsOf(stack), known: m.frames()}
	if u.Far {
		c.fetch()
	}
	end := c.follow(&p, &f)
	if end == Unmapped && len(w.ips) < u.MaxFrames {
		next, source := w.subroutine(&p, &f, frame{})
		if source != ByCFI && w.locate(&p, next.lookup()) {
			w.regs.restart(len(w.ips), &next)
			f = next
			w.push(&f, source)
			c.whole = false
			end = c.follow(&p, &f)
		}
	}
	w.last = f
	m.keep(&c)
	return w.end(end, p.m)
}

// follow goes from f, which lies at p, to the last frame, which it leaves there.
func (c *climb) follow(p *place, f *frame) Reason {
	w := c.walk
	w.moves = stackMoves{}
	for {
		if end := c.run(p, f); end != stepped {
			return end
		}
		live := w.moves.live
		next, source, end := w.step(p, f)
		if end != stepped {
			return end
		}
		if source != ByCFI {
			w.regs.restart(len(w.ips), &next)
		}
		if live {
			source = ByLive
		}
		if !w.moves.switched {
			w.frames[len(w.frames)-1].saved = p.slot(f, &next, source)
		}
		if len(w.ips) >= w.MaxFrames {
			return DepthLimit
		}
		if !w.locate(p, next.lookup()) {
			return Unmapped
		}
		*f = next
		w.push(f, source)
		c.whole = false
	}
}

// slot says how next follows from f, which lies at p, where it was found without CFI but could have
// been by a fast rule: see [Frame].
func (p *place) slot(f, next *frame, by Source) uint32 {
	if next.sp <= f.sp || next.sp%8 != 0 {
		return noSlot
	}
	switch {
	case by == ByFramePointer && next.sp == f.bp+16:
		return 16
	case by == ByHeuristic && p.image != nil:
		r := p.image.Rule(p.m, f.lookup())
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

// begin makes the walk of the Unwinder one over a stack, with buffers that are empty and as large
// as they may have to be.
func (u *Unwinder) begin(space *vmas.Space, stack *Stack) *walk {
	w := &u.walk
	w.space, w.stack, w.moves = space, stack, stackMoves{}
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
	return Result{IPs: w.ips, Frames: w.frames, End: r, At: at}
}

// stepped is the reason of a step that did not end the walk.
const stepped = Reason(NumReasons)

// step finds the caller of f, which lies at p.
func (w *walk) step(p *place, f *frame) (next frame, source Source, end Reason) {
	r := rule.Uncovered
	if p.image != nil {
		r = p.image.Rule(p.m, f.lookup())
		if w.slow && r.Kind() <= rule.General {
			r = rule.General
		}
	}
	if p.jit != nil {
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
		w := p.image.Wide(r)
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
			return next, ByCFI, w.miss(f.bp - r.CFA())
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
	case rule.EntryCode:
		if w.isProcessStart(rule.AMD64, f.sp) {
			return next, ByCFI, Root
		}
		return w.framePointer(f)
	case rule.GuessSP, rule.GuessBP, rule.GuessSaved, rule.GuessReg:
		return w.guess(f, r)
	case rule.Uncovered:
		next, source, end = w.framePointer(f)
		if end == NoCFI && p.jit != nil {
			return w.hosted(f)
		}
		return next, source, end
	case rule.Unreadable:
		return next, ByCFI, NoImage
	default:
		return next, ByCFI, BadCFI
	}

	if next.sp <= f.sp {
		return next, ByCFI, BadCFI
	}
	pc, ok := w.stack.word(next.sp - 8)
	if !ok {
		return next, ByCFI, w.miss(next.sp - 8)
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

// isProcessStart says whether what the kernel puts on the stack of a new
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

// framePointer finds the caller of a frame without CFI through the saved
// frame pointer. The frame found is credible when its return address can be
// executed. The saved BP need not be a frame pointer: the caller may have CFI,
// and use BP for something else.
func (w *walk) framePointer(f *frame) (next frame, source Source, end Reason) {
	if w.Strict || f.bp < f.sp || f.bp%8 != 0 {
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
	if w.space.Find(pc-1) == nil {
		return next, ByFramePointer, NoCFI
	}
	return frame{pc: pc, sp: f.bp + 16, bp: bp}, ByFramePointer, stepped
}

// SampledOnly is the result for a sample that cannot be walked at all: the
// sampled PC, and why that is all.
func (u *Unwinder) SampledOnly(regs *Regs, why Reason) Result {
	w := u.begin(nil, nil)
	w.push(&frame{pc: regs.Value[rule.IP], sp: regs.Value[rule.SP]}, BySample)
	return w.end(why, nil)
}
