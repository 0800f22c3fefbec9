package unwind

import (
	"time"

	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// This file compares a walk with the code that it went through. A program can move code to an address where
// other code was, and no record tells that. The walk has then used the rules of another function.

// mostEdges bounds how many pairs of caller and callee of one stack are looked at.
const mostEdges = 64

// Astray reports whether a return address of the walk follows no call. at is the time of the sample in ns:
// it looks at a walk every now and then, and at a few frames of that, at others each time, so that its cost
// does not depend on the sampling rate.
func (r *Result) Astray(at uint64) bool {
	const (
		every = uint64(16 * time.Millisecond)
		edges = 8
	)
	w := r.walk
	if at < w.looked+every || len(w.ips) < 2 {
		return false
	}
	w.looked = at
	w.looks++
	began, ok := w.images.Begin()
	if !ok {
		return false
	}
	defer w.images.End(began)
	first := int(w.looks*edges) % (len(w.ips) - 1)
	for i := first; i < min(first+edges, len(w.ips)-1); i++ {
		if w.isEdge(i) && !w.calls(i) {
			return true
		}
	}
	return false
}

// Alternating returns the first frame at whose address there was other code, too, in the space of the walk.
func (r *Result) Alternating(space *vmas.Space) (frame int, pc uint64, ok bool) {
	for i, ip := range r.IPs {
		if !r.Frames[i].exact {
			ip--
		}
		if space.Others(ip) > 0 {
			return i, ip, true
		}
	}
	return 0, 0, false
}

// Fits reports whether the code of the frame at index first and of its callers permits the walk. ok is false if the
// process has no time left for finding that out.
func (r *Result) Fits(first int) (fits, ok bool) {
	w := r.walk
	switch r.End {
	case Root, DepthLimit, NoImage:
	case DumpTooShort:
		if s := w.stack; uint64(len(s.Data)) < s.Asked {
			return false, true
		}
	case NotCopied:
		if !r.LacksC() {
			return false, true
		}
	default:
		return false, true
	}
	began, ok := w.images.Begin()
	if !ok {
		return false, false
	}
	defer w.images.End(began)
	first = max(first-1, 0)
	for i := first; i < min(first+mostEdges, len(w.ips)-1); i++ {
		if w.isEdge(i) && (!w.calls(i) || w.callsOther(i)) {
			return false, true
		}
	}
	return true, true
}

// CutAt ends the walk at the frame with that index, whose callers cannot be known.
func (r *Result) CutAt(frame int, at *vmas.Mapping) {
	w := r.walk
	w.ips, w.frames = w.ips[:frame+1], w.frames[:frame+1]
	if w.moves.grown > frame {
		w.moves.grown = 0
	}
	*r = w.end(NoImage, at)
}

// isEdge reports whether frame i+1 was found as the caller of frame i.
func (w *walk) isEdge(i int) bool {
	by := w.frames[i+1].Source
	return !w.frames[i+1].exact && by != ByResuming && by != ByLive
}

// calls reports whether the address that frame i returns to follows a call.
func (w *walk) calls(i int) bool {
	var p place
	pc := w.ips[i+1]
	if !w.locate(&p, pc-1) {
		return false
	}
	return w.isReturn(w.rule(&p, &frame{pc: pc}), pc)
}

// callsOther reports whether the call before the return address of frame i+1 does not lead to the function of
// frame i, as far as is known.
func (w *walk) callsOther(i int) bool {
	var to place
	callee := w.ips[i]
	if !w.frames[i].exact {
		callee--
	}
	return !w.frames[i+1].exact && w.locate(&to, callee) && w.contradicts(&to, callee, w.ips[i+1], false)
}

// misled reports whether the caller that CFI gives for the sampled function has called another one. Compilers leave
// CFI in place where it is wrong, mostly at the ends of functions. Only return addresses on the stack count: a
// function that has taken its own into a register may be about to go on elsewhere, as longjmp and setcontext are.
//
// A call is asked about from the second time on that it is seen: half of those of a compiler are seen once in a
// recording, and asking about these took a fifth of the time that a sample takes.
func (w *walk) misled() bool {
	var p place
	if len(w.ips) < 2 || w.frames[1].Source != ByCFI || w.frames[1].exact || !w.locate(&p, w.ips[0]) ||
		p.image == nil || p.jit != nil {
		return false
	}
	switch p.image.Rule(p.m, w.ips[0]).Kind() {
	case rule.FromSP, rule.FromBP, rule.Wide, rule.FromSaved, rule.Realigned:
		if last := &w.called[w.ips[1]*rule.Spread>>(64-calledBits)]; *last != w.ips[1] {
			*last = w.ips[1]
			return false
		}
		return w.contradicts(&p, w.ips[0], w.ips[1], true)
	}
	return false
}

// contradicts reports whether the call before pc does not lead to callee, which lies at p: it is a direct call of a
// function from which no jump leads there. It is false if that is not known, with atOnce also where the file would have
// to be waited for, and for generated code: of that no file says who has called it, but [walk.credible] does.
func (w *walk) contradicts(p *place, callee, pc uint64, atOnce bool) bool {
	var from place
	if p.image == nil || p.jit != nil || !w.locate(&from, pc-1) || from.image == nil || from.jit != nil ||
		from.image.Arch() != rule.AMD64 {
		return false
	}
	at := image.Elsewhere
	if from.image == p.image {
		at = callee - p.bias
	}
	return from.image.CallsOther(from.m, pc, at, atOnce)
}
