package unwind

import (
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A kernelChain is the user part of a sample's own callchain: the sampled PC,
// then what the kernel found by following frame pointers through the live
// stack, which may go on beyond the copy (perf_callchain_user,
// arch/x86/events/core.c).
type kernelChain struct {
	at          func(i int) uint64
	first, last int // last is behind the end
}

// userPart finds the part in the n entries of a callchain: all behind its marker.
func userPart(n int, at func(i int) uint64) kernelChain {
	for i := range n {
		if at(i) == contextUser {
			return kernelChain{at, i + 1, n}
		}
	}
	return kernelChain{at, n, n}
}

// Continue adds to the result of the last walk, which has come to the end of
// the copy, what the kernel's walk found further on. at(i) is the i-th of the n
// entries of the sample's callchain.
//
// The kernel tells no frame addresses, and it passes over functions that have
// no frame pointer; under recursion neither shows in its return addresses. So
// its walk is repeated on the copy, which gives each entry the address that it
// was read from. Then a kernel's entry is the caller of the last frame when
//   - the last entry within the copy is a frame of the walk, by frame address
//     and return address: the chain is anchored;
//   - the walk and the kernel have the same BP at the end of the copy;
//   - BP is the frame pointer of the last frame, as its rule says.
//
// Every further entry must be the caller of the one before by the last of these.
// The walk is complete if that leads to the root; otherwise it ended for the reason
// that it had before.
func (u *Unwinder) Continue(space *vmas.Space, regs *Regs, stack *Stack, res Result, n int, at func(i int) uint64) Result {
	if u.Strict || res.End != DumpTooShort && res.End != NoCFI || res.At == nil {
		return res
	}
	chain := userPart(n, at)
	w := &u.walk
	w.space, w.stack = space, stack
	next, fp, anchored := w.anchor(regs, &chain)
	if !anchored || fp == 0 || fp != w.last.bp {
		return res
	}
	var p place
	if !w.locate(&p, w.last.lookup()) || !w.linked(&p, &w.last) {
		return res
	}
	for sp := fp + 16; next < chain.last; next++ {
		pc, at := chain.at(next), p.m
		if !w.locate(&p, pc-1) {
			return w.end(res.End, at)
		}
		r := w.rule(&p, &frame{pc: pc})
		if !w.isReturn(&p, r, pc) {
			return w.end(res.End, at)
		}
		if len(w.ips) >= w.MaxFrames {
			return w.end(DepthLimit, at)
		}
		w.push(&frame{pc: pc, sp: sp}, ByKernel)
		sp = 0 // beyond the copy, so unknown
		switch {
		case r.Kind() == rule.EndOfStack, r.Kind() == rule.EntryCode && next+1 == chain.last:
			return w.end(Root, p.m)
		case !p.keepsBP(r, pc-1):
			return w.end(res.End, p.m)
		}
	}
	return w.end(res.End, p.m)
}

// anchor repeats the kernel's walk on the copy, as far as that goes. It returns
// the index of the first entry that was read from beyond the copy, the address of
// its frame, and whether the entry before is a frame of the walk.
func (w *walk) anchor(regs *Regs, chain *kernelChain) (next int, fp uint64, anchored bool) {
	if chain.last-chain.first < 2 || chain.at(chain.first) != w.ips[0] {
		return 0, 0, false
	}
	next, fp = chain.first+1, regs.Value[rule.BP]
	var pc, sp uint64
	for ; next < chain.last; next++ {
		bp, ok1 := w.stack.word(fp)
		ra, ok2 := w.stack.word(fp + 8)
		if !ok1 || !ok2 {
			break
		}
		if ra != chain.at(next) {
			return 0, 0, false
		}
		pc, sp, fp = ra, fp+16, bp
	}
	for i := len(w.ips) - 1; i > 0; i-- {
		if w.frames[i].SP == sp && w.ips[i] == pc && w.frames[i].Source != ByLive {
			return next, fp, true
		}
	}
	return 0, 0, false
}

// linked says whether BP is the frame pointer of f, which lies at p: whether its
// return address is 8 bytes above where BP points.
func (w *walk) linked(p *place, f *frame) bool {
	r := w.rule(p, f)
	switch r.Kind() {
	case rule.FromSP, rule.GuessSP:
		return f.bp == f.sp+r.CFA()-16 && r.BP() == 16
	case rule.OtherStack:
		return true
	}
	return f.bp >= f.sp && f.bp%8 == 0 && p.keepsBP(r, f.lookup())
}

// keepsBP says whether the code at pc, which lies at p and has the rule r, uses BP as its
// frame pointer. Of code without CFI that is assumed, as in [Unwinder.framePointer].
func (p *place) keepsBP(r rule.Rule, pc uint64) bool {
	switch r.Kind() {
	case rule.FromBP, rule.GuessBP:
		return r.CFA() == 16 && r.BP() == 16
	case rule.FromSP:
		return r.BP() == 16 && p.inGo(pc)
	case rule.Realigned, rule.OtherStack, rule.Uncovered:
		return true
	}
	return false
}

// inGo says whether pc is in a Go function. These keep BP as a frame pointer whatever
// their CFA is computed from.
func (p *place) inGo(pc uint64) bool {
	if p.image == nil {
		return false
	}
	addr, ok := p.image.Address(pc - p.m.Start + p.m.Offset)
	return ok && p.image.InGo(addr)
}

// rule gives the rule for f, which lies at p.
func (w *walk) rule(p *place, f *frame) rule.Rule {
	switch {
	case p.jit != nil:
		return w.generatedRule(p, f)
	case p.image == nil:
		return rule.Uncovered
	}
	return p.image.Rule(p.m, f.lookup())
}

// isReturn says whether pc, which lies at p and has the rule r, can be a return address:
// it follows a call, where there is code to tell. Nothing calls the code that the rules
// for the root and for signal frames stand for.
func (w *walk) isReturn(p *place, r rule.Rule, pc uint64) bool {
	switch {
	case p.jit != nil, p.image == nil || !p.image.HasCode(),
		r.Kind() == rule.EndOfStack, r.Kind() == rule.Sigframe:
		return true
	}
	return w.followsCall(pc)
}

// Markers that the kernel puts into callchains (enum perf_callchain_context,
// include/uapi/linux/perf_event.h).
const (
	contextUser = ^uint64(512 - 1) // PERF_CONTEXT_USER, -512

	// PERF_CONTEXT_USER_DEFERRED, -640: a cookie, for a user part that follows in a record of its own.
	contextDeferred = ^uint64(640 - 1)
)

// Splice appends to dst the kernel's part of a callchain as the kernel gave
// it, then PERF_CONTEXT_USER and the unwound user part, and returns the
// extended slice. at(i) is the i-th of the n entries of the sample's own
// callchain; a user part in it is replaced. With no user frames the marker
// is left out too.
//
// The user part comes last, and nothing behind its marker is taken for another
// marker: it holds words of the stack, of any value.
func Splice(dst []uint64, n int, at func(i int) uint64, user []uint64) []uint64 {
	for i := range n {
		ip := at(i)
		if ip == contextUser || ip == contextDeferred {
			break
		}
		dst = append(dst, ip)
	}
	if len(user) == 0 {
		return dst
	}
	return append(append(dst, contextUser), user...)
}
