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
	first, last int // the entries from first on, before last
}

// userPart returns the user part of a callchain with n entries: all that follows its marker.
func userPart(n int, at func(i int) uint64) kernelChain {
	for i := range n {
		if at(i) == contextUser {
			return kernelChain{at, i + 1, n}
		}
	}
	return kernelChain{at, n, n}
}

// Continue adds to the result of the last walk, which reached the end of the copy or left its stack, the
// callers that the kernel's walk found further on. at(i) is the i-th of the n entries of the sample's
// callchain.
//
// The kernel's callchain has no frame addresses and leaves out functions that have no frame pointer; under
// recursion, its return addresses alone show neither. So its walk is repeated on the copy, which gives for
// each entry the address that it was read from. Then an entry of the kernel is the caller of the last frame
// when
//   - the last entry within the copy is a frame of the walk, by frame address
//     and return address: the chain is anchored;
//   - the walk and the kernel have the same BP at the end of the copy;
//   - BP is the frame pointer of the last frame, as its rule says.
//
// If the copy is empty or ends within the sampled frame, the last frame is the sampled one, where both walks
// begin. Then CFI has to state the last condition: it is not assumed of code without CFI.
//
// Every further entry must be the caller of the one before by the last condition. The walk is complete if
// that leads to the root; otherwise it ended for the reason that it had before.
func (u *Unwinder) Continue(space *vmas.Space, regs *Regs, stack *Stack, res Result, n int,
	at func(i int) uint64) Result {
	switch res.End {
	case DumpTooShort, NotCopied, NoCFI:
	default:
		return res
	}
	if u.Strict || res.At == nil || u.walk.moves.isPartial() {
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
	if len(w.ips) == 1 && !byCFI(w.rule(&p, &w.last)) {
		return res
	}
	callee := w.last.lookup()
	for sp := fp + 16; next < chain.last; next++ {
		pc, at, generated := chain.at(next), p.m, p.jit != nil
		if w.contradicts(&p, callee, pc, false) || !w.locate(&p, pc-1) {
			return w.goesOn(&res, at)
		}
		r := w.rule(&p, &frame{pc: pc})
		// Interpreters that are generated code push return addresses themselves: see credible.
		if !w.isReturn(r, pc) && !(generated && p.jit != nil && next+1 < chain.last) {
			return w.goesOn(&res, at)
		}
		if len(w.ips) >= w.MaxFrames {
			return w.end(DepthLimit, at)
		}
		w.push(&frame{pc: pc, sp: sp}, ByKernel)
		callee = pc - 1
		sp = 0 // beyond the copy, so unknown
		switch {
		case r.Kind() == rule.EndOfStack, r.Kind() == rule.EntryCode && next+1 == chain.last:
			return w.end(Root, p.m)
		case !p.keepsBP(r, pc-1):
			return w.goesOn(&res, p.m)
		}
	}
	return w.goesOn(&res, p.m)
}

// goesOn is the result of a walk after frames were added to it that do not lead to the root.
func (w *walk) goesOn(res *Result, at *vmas.Mapping) Result {
	more := w.end(res.End, at)
	more.Open, more.Within, more.CFA, more.SavedCFA = res.Open, res.Within, res.CFA, res.SavedCFA
	more.Elsewhere = res.Elsewhere
	return more
}

// anchor repeats the kernel's walk on the copy, as far as that goes. It returns
// the index of the first entry that was read from beyond the copy, the address of
// its frame, and whether the entry before is a frame of the walk, or the sampled PC.
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
	if next == chain.first+1 && len(w.ips) == 1 {
		return next, fp, true
	}
	for i := len(w.ips) - 1; i > 0; i-- {
		if w.frames[i].SP == sp && w.ips[i] == pc && w.frames[i].Source != ByLive {
			return next, fp, true
		}
	}
	return 0, 0, false
}

// linked reports whether BP is the frame pointer of f, which lies at p: whether its
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

// byCFI reports whether r comes from CFI and tells where the caller's BP is.
func byCFI(r rule.Rule) bool {
	switch r.Kind() {
	case rule.FromSP, rule.FromBP, rule.Realigned:
		return true
	}
	return false
}

// keepsBP reports whether the code at pc, which lies at p and has the rule r, uses BP as its frame pointer. This
// is assumed of code without CFI, as in [walk.framePointer].
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

// inGo reports whether pc is in a Go function. These keep BP as a frame pointer whatever
// their CFA is computed from.
func (p *place) inGo(pc uint64) bool {
	if p.module == nil {
		return false
	}
	table, addr := p.module.GoTable(p.m, pc)
	if table == nil {
		return false
	}
	_, _, ok := table.Function(addr)
	return ok && !p.module.State().Late
}

// rule gives the rule for f, which lies at p.
func (w *walk) rule(p *place, f *frame) rule.Rule {
	switch {
	case p.jit != nil:
		return w.generatedRule(p, f)
	case p.module == nil:
		return rule.Uncovered
	}
	return p.rule(f.lookup())
}

// isReturn reports whether pc, which has the rule r, can be a return address: it follows a call, or the code
// cannot be read. Entry code and signal trampolines are exempt: nothing calls them.
func (w *walk) isReturn(r rule.Rule, pc uint64) bool {
	if r.Kind() == rule.EndOfStack || r.Kind() == rule.Sigframe {
		return true
	}
	call, known := w.callBefore(pc)
	return call || !known
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

// A FrameWalk is the stack as the kernel's walk along frame pointers shows it.
type FrameWalk struct {
	// IPs holds the sampled PC, then what the walk took for return addresses. It is valid until the next walk.
	IPs []uint64
	End FrameWalkEnd
}

// FrameWalkEnd is why a walk along frame pointers ended.
type FrameWalkEnd uint8

const (
	// NoFrame: BP was 0 or no address that the kernel would read, or there is no stack where it points to.
	// A walk that reaches the root ends like this, and so does one that is lost.
	NoFrame FrameWalkEnd = iota
	// OffStack: BP points to memory outside of the copied stack, and what the kernel would have read there is
	// not known.
	OffStack
	// CopyEnds: the stack goes on beyond its copy.
	CopyEnds
	// KernelLimit: the callchain was full.
	KernelLimit
)

// FollowFramePointers repeats on the copy what the kernel does for the user part of a callchain
// (perf_callchain_user, arch/x86/events/core.c): it believes every frame pointer that can be read,
// wherever it leads. room is how many entries the callchain has left, the sampled PC included; size is
// that of an address, 8 or 4 bytes.
func (u *Unwinder) FollowFramePointers(regs *Regs, stack *Stack, room, size int) FrameWalk {
	w := FrameWalk{IPs: u.framePointers[:0], End: KernelLimit}
	// These are the user's registers as the kernel has them, whatever the CFI of a system call says about
	// them.
	bp, ra := regs.Value[rule.BP], regs.Value[rule.IP]
	for len(w.IPs) < room {
		w.IPs = append(w.IPs, ra)
		next, ok := stack.uint(bp, size)
		if ok {
			ra, ok = stack.uint(bp+uint64(size), size)
		}
		if !ok {
			w.End = stack.beyond(bp)
			break
		}
		bp = next
	}
	u.framePointers = w.IPs
	return w
}

// beyond returns why the 16 bytes at a frame pointer are not in the copy.
func (s *Stack) beyond(bp uint64) FrameWalkEnd {
	const (
		page    = 4096
		userEnd = 1<<47 - page // TASK_SIZE_MAX
		largest = 8 << 20      // the usual limit of a stack
	)
	end := s.Base + uint64(len(s.Data))
	switch {
	case bp < 1<<16 || bp > userEnd-16: // mmap_min_addr: nothing is mapped below
		return NoFrame
	case bp < s.Base || bp-s.Base > largest:
		return OffStack
	case uint64(len(s.Data)) < s.Asked && bp < end&^(page-1)+page:
		return NoFrame // in a page that the kernel could not read when it copied, either
	}
	return CopyEnds
}
