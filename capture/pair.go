package capture

import (
	"os"
	"strconv"
	"strings"

	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// Where recordings are compared, each sample with a walk is followed by a second one: its pair, with the callchain that frame
// pointers give for it. Its last entry is no address but says how that was found. Such recordings are for package compare
// alone, and temporary.

// Pair is what the last entry of a pair's callchain says.
type Pair struct {
	End    unwind.FrameWalkEnd
	Kernel bool // the kernel's own chain; otherwise its walk was repeated on the copy
	Agrees bool // with Kernel: the repeated walk came to the same, as far as the copy went
	Reach  int  // bytes of stack, from SP up, in which the walk by CFI found everything; 0 when unknown
}

// NotCode stands in a pair for a word that frame pointers led to and that is no address of code: it is a piece of somebody's memory.
const NotCode = 1

func (p Pair) encode() uint64 {
	w := uint64(1) | uint64(p.End)<<1 | uint64(p.Reach)<<8
	if p.Kernel {
		w |= 1 << 4
	}
	if p.Agrees {
		w |= 1 << 5
	}
	return w
}

// DecodePair reads the last entry of a pair's callchain.
func DecodePair(w uint64) Pair {
	return Pair{End: unwind.FrameWalkEnd(w >> 1 & 7), Kernel: w>>4&1 != 0, Agrees: w>>5&1 != 0, Reach: int(w >> 8)}
}

// kernelLimit is how many entries the kernel's callchains have at most.
func kernelLimit() int {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_max_stack")
	if n, perr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && perr == nil && n > 0 {
		return n
	}
	return 127
}

// reach is how much of the stack a walk needed to come to its root.
func reach(res *unwind.Result, stack *unwind.Stack) int {
	sp := res.Frames[len(res.Frames)-1].SP
	if res.End != unwind.Root || sp-stack.Base > uint64(len(stack.Data)) {
		return 0
	}
	return int(sp - stack.Base)
}

// writePair hands on the pair of the sample that has just been unwound.
func (s *Session) writePair(rec perfring.Record, f *perfring.Format) error {
	sm := &s.sample
	if s.limit == 0 {
		s.limit = kernelLimit()
	}
	kernel, first := 0, sm.Callchain.Len() // entries before the user part, and where that begins
	for i := range sm.Callchain.Len() {
		ip := sm.Callchain.At(i)
		if ip == perfring.ContextUser {
			first = i + 1
			break
		}
		if ip < perfring.ContextMax {
			kernel++
		}
	}
	size := 8
	if sm.RegsABI == unix.PERF_SAMPLE_REGS_ABI_32 {
		size = 4
	}
	walk := s.walker.FollowFramePointers(&s.regs, &s.stack, s.limit-kernel, size)
	pair := Pair{End: walk.End, Reach: s.reach}
	if pair.End == unwind.CopyEnds && s.reach > 0 {
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
			ips[i] = NotCode
		}
	}
	s.chain = unwind.Splice(s.chain[:0], sm.Callchain.Len(), sm.Callchain.At, ips)
	s.chain = append(s.chain, pair.encode())
	out, err := f.AppendUnwound(s.buf[:0], rec, sm, s.chain)
	if err != nil {
		return nil // the chain is at most as long as the kernel's
	}
	s.buf = out
	return s.sink.Write(out)
}

// agree says whether the kernel's chain is what the repeated walk came to.
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
