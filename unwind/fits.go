package unwind

import (
	"time"

	"unspool/unwind/module"
	"unspool/unwind/rule"
)

// This file compares a walk with the code that it went through. A program can move code to an address where
// other code was, and no record tells that. The walk has then used the rules of another function.

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
	began, ok := w.modules.Begin()
	if !ok {
		return false
	}
	defer w.modules.End(began)
	first := int(w.looks*edges) % (len(w.ips) - 1)
	for i := first; i < min(first+edges, len(w.ips)-1); i++ {
		if w.isEdge(i) && !w.calls(i) {
			return true
		}
	}
	return false
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

// misled reports whether the caller that CFI gives for the sampled function has called another one. Compilers leave
// CFI in place where it is wrong, mostly at the ends of functions. Only return addresses on the stack count: a
// function that has taken its own into a register may be about to go on elsewhere, as longjmp and setcontext are.
//
// While a recording runs, a call is asked about from the second time on that it is seen: half of those of a compiler
// are seen once in a recording, and asking about these took a fifth of the time that a sample takes. Recordings that
// exist are walked by several unwinders, each of which sees a part of the calls, and their results have to be the same.
func (w *walk) misled() bool {
	var p place
	if len(w.ips) < 2 || w.frames[1].Source != ByCFI || w.frames[1].exact || !w.locate(&p, w.ips[0]) ||
		p.module == nil || p.jit != nil {
		return false
	}
	switch p.rule(w.ips[0]).Kind() {
	case rule.FromSP, rule.FromBP, rule.Wide, rule.FromSaved, rule.Realigned:
		if last := &w.called[w.ips[1]*rule.Spread>>(64-calledBits)]; w.Live && *last != w.ips[1] {
			*last = w.ips[1]
			return false
		}
		return w.contradicts(&p, w.ips[0], w.ips[1], w.Live)
	}
	return false
}

// contradicts reports whether the call before pc does not lead to callee, which lies at p: it is a direct call of a
// function from which no jump leads there. It is false if that is not known, with atOnce also where the file would have
// to be waited for, and for generated code: of that no file says who has called it, but [walk.credible] does.
func (w *walk) contradicts(p *place, callee, pc uint64, atOnce bool) bool {
	var from place
	if p.module == nil || p.jit != nil || !w.locate(&from, pc-1) || from.module == nil || from.jit != nil {
		return false
	}
	at := module.Elsewhere
	if from.module == p.module {
		at = callee - p.bias
	}
	return from.module.CallsOther(from.m, pc, at, atOnce)
}
