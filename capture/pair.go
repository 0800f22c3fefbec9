package capture

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"unspool/capture/perfdata"
	"unspool/perfring"
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

// pairOf makes the pair of the sample that was walked last, with the result res.
func (s *Session) pairOf(sm *perfring.Sample, res *unwind.Result) *perfdata.Pair {
	if s.limit == 0 {
		s.limit = kernelLimit()
	}
	first, kernel := sm.UserPart()
	size := 8
	if sm.RegsABI == unix.PERF_SAMPLE_REGS_ABI_32 {
		size = 4
	}
	walk := s.walker.FollowFramePointers(&s.regs, &s.stack, s.limit-kernel, size)
	pair := perfdata.Pair{Chain: s.pair.Chain[:0], End: walk.End, Reach: reach(res, &s.stack)}
	if pair.End == unwind.CopyEnds && pair.Reach > 0 {
		pair.End = unwind.OffStack // above the outermost frame
	}
	ips := walk.IPs
	if n := sm.Callchain.Len(); first < n {
		pair.Kernel = true
		s.own = s.own[:0]
		for i := first; i < n; i++ {
			s.own = append(s.own, sm.Callchain.At(i))
		}
		pair.Agrees = agree(&walk, s.own)
		pair.End = unwind.NoFrame
		if kernel+len(s.own) >= s.limit {
			pair.End = unwind.KernelLimit
		}
		ips = s.own
	}
	space := s.table.Space(sm.PID)
	for i, ip := range ips {
		if ip != 0 && !isCode(space, ip) {
			ips[i] = perfdata.NotCode
		}
	}
	pair.Chain = unwind.Splice(pair.Chain, sm.Callchain.Len(), sm.Callchain.At, ips)
	pair.Chain = slices.Grow(pair.Chain, 1) // for the entry that encodes the pair
	s.pair = pair
	return &s.pair
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
