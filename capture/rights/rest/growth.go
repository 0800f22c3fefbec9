package rest

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"unsafe"

	"unspool/perfring"
)

// A GrowthOffsets says how to find a goroutine that gets a larger stack, while the stack that was sampled is that of
// Go's scheduler: it is what package gotab has read from the runtime's code, but Return is an address in the
// process, not in the file.
type GrowthOffsets struct {
	Return         uint64
	M, CurG, Sched uint16
}

// A sharedGrowth is one that two processes share.
type sharedGrowth struct{ returns, fields atomic.Uint64 }

func (s *sharedGrowth) store(g GrowthOffsets) {
	set(&s.fields, uint64(g.M)|uint64(g.CurG)<<16|uint64(g.Sched)<<32)
	set(&s.returns, g.Return)
}

func (s *sharedGrowth) load() GrowthOffsets {
	f := s.fields.Load()
	return GrowthOffsets{Return: s.returns.Load(), M: uint16(f), CurG: uint16(f >> 16), Sched: uint16(f >> 32)}
}

func (s *Shared) lastGrowth() *sharedGrowth {
	return (*sharedGrowth)(unsafe.Pointer(&s.words[lastGrowth]))
}

// mostGrowing is how far a copy is searched for morestack: little of the scheduler's stack is used then.
const mostGrowing = 4 << 10

// at is SP in morestack, if that is on the stack of a sample, whose SP is base; otherwise 0.
func (g *GrowthOffsets) at(s *perfring.Sample, base uint64) uint64 {
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

// endOfGoroutine is where the stack ends that SP is on, 0 if that is too far away. ok reports whether a sample
// is in Go, which tells.
func endOfGoroutine(memory *memory, s *perfring.Sample, sp uint64) (end uint64, ok bool) {
	at, ok := s.Reg(r14)
	g := &memory.structure
	if !ok || !g.read(memory, at, gLow, gHigh) {
		return 0, false
	}
	low, high := g.word(gLow), g.word(gHigh)
	if sp < low || sp >= high || high >= userEnd {
		return 0, false
	}
	if high-sp > farthest {
		return 0, true
	}
	return high, true
}

// Offsets in a g of Go, of its stack, and in the registers that it keeps (Sched).
const gLow, gHigh, schedSP, schedPC, schedG = 0, 8, 0, 8, 16

// userEnd is where the addresses of user space end (TASK_SIZE_MAX), with 47 bits of address.
const userEnd = 1 << 47

// goroutine finds the stack of the goroutine for which morestack was called. at is SP in morestack. Each step
// is checked, as all of this is what the process says: it need not be Go that runs there, or it may be
// changing this just now.
func (g *GrowthOffsets) goroutine(memory *memory, s *perfring.Sample, at uint64) (of goroutineStack, ok bool) {
	scheduler, ok := s.Reg(r14)
	if !ok {
		return of, false
	}
	is := &memory.structure
	if !is.read(memory, scheduler, g.Sched+schedSP, g.M) || is.word(g.Sched+schedSP) != at ||
		!is.read(memory, is.word(g.M)+uint64(g.CurG), 0) {
		return of, false
	}
	if of.g = is.word(0); of.g == 0 {
		return of, true
	}
	if !is.read(memory, of.g, gLow, gHigh, g.Sched+schedG) {
		return of, false
	}
	low, high, sp := is.word(gLow), is.word(gHigh), is.word(g.Sched+schedSP)
	of.sp, of.high, of.returns = sp, high, is.word(g.Sched+schedPC)
	isOn := sp > low && sp-low >= 8 && sp <= high && high < userEnd
	return of, isOn && sp%8 == 0 && is.word(g.Sched+schedG) == of.g
}

// A structure is the beginning of one of a process.
type structure [1024]byte

// read reads it as far as the fields at such offsets, of a word each, and reports whether all are there.
func (to *structure) read(memory *memory, addr uint64, offsets ...uint16) bool {
	end := int(slices.Max(offsets)) + 8
	return end <= len(to) && memory.Read(to[:end], addr) == end
}

// word is the field at an offset that was read.
func (to *structure) word(offset uint16) uint64 { return binary.NativeEndian.Uint64(to[offset:]) }
