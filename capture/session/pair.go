package session

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"unspool/capture/perfdata"
	"unspool/unwind"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// kernelLimit is the maximum number of entries of the kernel's callchains.
func kernelLimit() int {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_max_stack")
	if n, perr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && perr == nil && n > 0 {
		return n
	}
	return 127
}

// reach is how many bytes of the stack a walk needed to reach its root, 0 if it did not.
func reach(res *unwind.Result, stack *unwind.Stack) int {
	sp := res.Frames[len(res.Frames)-1].SP
	if res.End != unwind.Root || sp-stack.Base > uint64(len(stack.Data)) {
		return 0
	}
	return int(sp - stack.Base)
}

// A pairing makes the pair of a sample: its stack along frame pointers. Its memory is used again.
type pairing struct {
	pair  perfdata.PointerStack
	own   []uint64 // the user part of the kernel's chain
	limit int      // how many entries a callchain of the kernel has at most; 0 before the first pair
}

// pairUp makes the pair of a sample that was walked.
func (w *work) pairUp(walker *unwind.Unwinder) {
	p, sm := &w.pairing, &w.sample
	if p.limit == 0 {
		p.limit = kernelLimit()
	}
	first, kernel := sm.UserPart()
	size := 8
	if sm.RegsABI == unix.PERF_SAMPLE_REGS_ABI_32 {
		size = 4
	}
	walk := walker.FollowFramePointers(&w.regs, &w.stack, p.limit-kernel, size)
	pair := perfdata.PointerStack{Chain: p.pair.Chain[:0], End: walk.End, Reach: reach(&w.result, &w.stack)}
	if pair.End == unwind.CopyEnds && pair.Reach > 0 {
		pair.End = unwind.OffStack // above the outermost frame
	}
	ips := walk.IPs
	if n := sm.Callchain.Len(); first < n {
		pair.Kernel = true
		p.own = p.own[:0]
		for i := first; i < n; i++ {
			p.own = append(p.own, sm.Callchain.At(i))
		}
		pair.Agrees = agree(&walk, p.own)
		pair.End = unwind.NoFrame
		if kernel+len(p.own) >= p.limit {
			pair.End = unwind.KernelLimit
		}
		ips = p.own
	}
	for i, ip := range ips {
		if ip != 0 && !isCode(w.Space, ip) {
			ips[i] = perfdata.NotCode
		}
	}
	pair.Chain = unwind.Splice(pair.Chain, sm.Callchain.Len(), sm.Callchain.At, ips)
	pair.Chain = slices.Grow(pair.Chain, 1) // for the entry that encodes the pair
	p.pair = pair
	w.Pair = &p.pair
}

// agree reports whether the kernel's chain has the entries of the repeated walk.
func agree(w *unwind.FrameWalk, own []uint64) bool {
	if len(own) < len(w.IPs) || w.End == unwind.NoFrame && len(own) > len(w.IPs) {
		return false
	}
	for i, ip := range w.IPs {
		if own[i] != ip {
			return false
		}
	}
	return true
}

func isCode(space *vmas.Space, ip uint64) bool {
	return space != nil && (space.Find(ip) != nil || space.Find(ip-1) != nil)
}
