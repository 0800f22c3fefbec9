package unwind

import "unspool/unwind/rule"

// A FrameWalk is the stack as the kernel's walk along frame pointers shows it.
type FrameWalk struct {
	// IPs holds the sampled PC, then what the walk took for return addresses. It is valid until the next walk.
	IPs []uint64
	End FrameWalkEnd
}

// FrameWalkEnd says why a walk along frame pointers ended.
type FrameWalkEnd uint8

const (
	// NoFrame: BP was 0 or no address that the kernel would read, or there is no stack where it points to. A walk
	// that reaches the root ends like this, and so does one that is lost.
	NoFrame FrameWalkEnd = iota
	// OffStack: BP points to memory other than the copied stack, of which nobody knows what the kernel would have read there.
	OffStack
	// CopyEnds: the stack goes on, and its copy does not.
	CopyEnds
	// KernelLimit: the callchain was full.
	KernelLimit
)

// FollowFramePointers repeats on the copy what the kernel does for the user part of a callchain (perf_callchain_user,
// arch/x86/events/core.c): it believes every frame pointer that can be read, wherever it leads. room is how many entries the
// callchain has left, the sampled PC included; size is that of an address, 8 or 4 bytes.
func (u *Unwinder) FollowFramePointers(regs *Regs, stack *Stack, room, size int) FrameWalk {
	w := FrameWalk{IPs: u.framePointers[:0], End: KernelLimit}
	// The user's registers in the kernel's hands, whatever the CFI of a system call says of them.
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

// beyond says why the 16 bytes at a frame pointer are not in the copy.
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
