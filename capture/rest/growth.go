package rest

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/perfring"
)

// A Growth says how to find a goroutine that gets a larger stack, while the stack that was sampled is that of
// Go's scheduler: it is what package gotab has read from the runtime's code, but Return is an address in the
// process, not in the file.
type Growth struct {
	Return         uint64
	M, CurG, Sched uint16
}

// A sharedGrowth is one that two processes share.
type sharedGrowth struct{ returns, fields atomic.Uint64 }

func (s *sharedGrowth) store(g Growth) {
	set(&s.fields, uint64(g.M)|uint64(g.CurG)<<16|uint64(g.Sched)<<32)
	set(&s.returns, g.Return)
}

func (s *sharedGrowth) load() Growth {
	f := s.fields.Load()
	return Growth{Return: s.returns.Load(), M: uint16(f), CurG: uint16(f >> 16), Sched: uint16(f >> 32)}
}

func (s *Shared) lastGrowth() *sharedGrowth {
	return (*sharedGrowth)(unsafe.Pointer(&s.words[lastGrowth]))
}

// mostGrowing is how far a copy is searched for morestack: little of the scheduler's stack is used then.
const mostGrowing = 4 << 10

// at is SP in morestack, if that is on the stack of a sample, whose SP is base; otherwise 0.
func (g *Growth) at(s *perfring.Sample, base uint64) uint64 {
	if g.Return == 0 {
		return 0
	}
	stack := s.Stack[:min(s.DynSize, mostGrowing)&^7]
	for i := 0; i < len(stack); i += 8 {
		if binary.LittleEndian.Uint64(stack[i:]) == g.Return {
			return base + uint64(i) + 8
		}
	}
	return 0
}

// A goroutineStack is that of a goroutine that gets a larger one.
type goroutineStack struct {
	g        uint64 // where its g is, 0 if there is no goroutine any more
	sp, high uint64 // where it is used
	returns  uint64 // where morestack is to return to
}

// r14 has the g whose stack is in use, in code of Go.
const r14 = 22 // PERF_REG_X86_R14 (asm/perf_regs.h)

// endOfGoroutine is where the stack ends that SP is on, 0 if that is too far away. ok says whether a sample
// is in Go, which tells.
func endOfGoroutine(s *perfring.Sample, sp uint64) (end uint64, ok bool) {
	at, ok := s.Reg(r14)
	var stack struct{ low, high uint64 }
	if !ok || !peek(s.PID, unsafe.Pointer(&stack), field(at, 0, 16)) {
		return 0, false
	}
	if sp < stack.low || sp >= stack.high || stack.high >= userEnd {
		return 0, false
	}
	if stack.high-sp > farthest {
		return 0, true
	}
	return stack.high, true
}

// userEnd is where the addresses of user space end (TASK_SIZE_MAX), with 47 bits of address.
const userEnd = 1 << 47

// goroutine finds the stack of the goroutine for which morestack was called. at is SP in morestack. Each step
// is checked, as all of this is what the process says: it need not be Go that runs there, or it may be
// changing this just now.
func (g *Growth) goroutine(s *perfring.Sample, at uint64) (of goroutineStack, ok bool) {
	scheduler, ok := s.Reg(r14)
	if !ok {
		return of, false
	}
	var its struct{ sp, m uint64 } // the scheduler's
	if !peek(s.PID, unsafe.Pointer(&its), field(scheduler, g.Sched, 8), field(scheduler, g.M, 8)) {
		return of, false
	}
	if its.sp != at || !peek(s.PID, unsafe.Pointer(&of.g), field(its.m, g.CurG, 8)) {
		return of, false
	}
	if of.g == 0 {
		return of, true
	}
	var is struct{ low, high, sp, pc, g uint64 }
	if !peek(s.PID, unsafe.Pointer(&is), field(of.g, 0, 16), field(of.g, g.Sched, 24)) {
		return of, false
	}
	of.sp, of.high, of.returns = is.sp, is.high, is.pc
	isOn := is.sp > is.low && is.sp-is.low >= 8 && is.sp <= is.high && is.high < userEnd
	return of, isOn && is.sp%8 == 0 && is.g == of.g
}

// field is a field of a structure of a process.
func field(structure uint64, offset uint16, size int) unix.RemoteIovec {
	return unix.RemoteIovec{Base: uintptr(structure) + uintptr(offset), Len: size}
}

// peek reads fields of a process one behind the other, and says whether all were there.
func peek(pid uint32, to unsafe.Pointer, from ...unix.RemoteIovec) bool {
	size := 0
	for i := range from {
		size += from[i].Len
	}
	local := unix.Iovec{Base: (*byte)(to), Len: uint64(size)}
	n, _, errno := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&from[0])), uintptr(len(from)), 0)
	return errno == 0 && int(n) == size
}
