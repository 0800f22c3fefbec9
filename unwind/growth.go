package unwind

import "unspool/unwind/gotab"

// This file is about goroutines that get a larger stack. Go's morestack does that on the stack of the
// scheduler, and nothing in the copy says where that of the goroutine is: see [gotab.Growth]. It can be read
// from the process when the stack is sampled.

// A GrownStack tells where to find the stack of a goroutine that is growing: Go copies it to a larger one meanwhile,
// on the stack of the scheduler.
type GrownStack struct {
	// At is SP in morestack, on the stack of the scheduler; 0 if nothing was read.
	At uint64
	// G is the address of the goroutine's g. Then Stack.Above is of the goroutine's stack, and begins with the return
	// address of morestack. G is 0 if the scheduler runs no goroutine at the moment.
	G uint64
}

// growing finds the caller of morestack.
func (w *walk) growing(f *frame) (next frame, source Source, end Reason) {
	g, stack := w.stack.Growth.G, w.stack.Above.Addr
	if w.moves.grown != 0 { // a stack that leads back to where it came from
		return next, ByLive, BadCFI
	}
	if g == 0 {
		w.moves.grown = len(w.ips)
		return next, ByLive, Root
	}
	pc, ok := w.stack.word(stack)
	if !ok || !w.isAboutGoroutine(g, f.sp) || !w.callsMorestack(pc) {
		w.moves.leftGo = true
		return next, ByLive, NotCopied
	}
	w.moves.grown = len(w.ips)
	return frame{pc: pc, sp: stack + 8}, ByLive, stepped
}

// callsMorestack reports whether pc follows a call of morestack. What the scheduler begins to run has called
// something else, unless it had to give up its CPU there.
func (w *walk) callsMorestack(pc uint64) bool {
	var p place
	if !w.locate(&p, pc-1) || p.module == nil || p.jit != nil {
		return false
	}
	began, ok := w.modules.Begin()
	if !ok {
		return false
	}
	defer w.modules.End(began)
	table, addr := p.module.GoTable(p.m, pc)
	return table != nil && table.CallsMorestack(addr) && !p.module.State().Late
}

// isAboutGoroutine reports whether what morestack has called, up to its SP, has the address of a goroutine's g.
// Otherwise the goroutine is another one, which the scheduler has begun to run.
func (w *walk) isAboutGoroutine(g, end uint64) bool {
	const most = 4 << 10
	at := w.frames[max(0, len(w.frames)-3)].SP // of what newstack has called
	if end-at > most {
		return false
	}
	for ; at < end; at += 8 {
		if word, ok := w.stack.word(at); ok && word == g {
			return true
		}
	}
	return false
}

// LeftGo reports whether the walk ended in Go's morestack, on the stack of the scheduler.
func (r *Result) LeftGo() bool { return r.walk.moves.leftGo }

// Growth is [gotab.Table.Growth] for the walk, if it ended in Go's runtime.
func (r *Result) Growth() (g gotab.Growth, ok bool) {
	var p place
	w := r.walk
	if len(w.ips) == 0 {
		return g, false
	}
	pc := w.ips[len(w.ips)-1]
	if !w.locate(&p, pc-1) || p.module == nil || p.jit != nil {
		return g, false
	}
	table, addr := p.module.GoTable(p.m, pc-1)
	if table == nil { // as for most samples that a recording asks about: they cost no more than this
		return g, false
	}
	began, ok := w.modules.Begin()
	if !ok {
		return g, false
	}
	defer w.modules.End(began)
	g, ok = table.Growth(addr)
	g.Return += pc - 1 - addr
	return g, ok && !p.module.State().Late
}
