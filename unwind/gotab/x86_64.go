package gotab

import (
	"encoding/binary"

	"unspool/unwind/x86"
)

// This file has what is x86-64: functions of the runtime whose code is known, and how it is read. Go's tables are the
// same for all machines.

// asmKinds are the functions of the runtime whose code does not show what they do.
var asmKinds = map[string]asmKind{
	"runtime.goexit":              root,
	"runtime.mstart":              root,
	"runtime.rt0_go":              root,
	"_rt0_amd64":                  root,
	"_rt0_amd64_linux":            root,
	"runtime.mcall":               newStack,
	"runtime.clone":               newStack,
	"runtime.switchToCrashStack0": newStack,
	"runtime.cgocallback":         callback,
	"runtime.systemstack":         onward,
	"runtime.morestack":           grow,
	"runtime.asyncPreempt":        injected,
	"runtime.sigpanic":            injected,
	"runtime.sigpanic0":           injected,
	"runtime.debugCallV2":         injected,
}

// sigreturnName is the runtime's signal return trampoline: the return address
// of its signal handlers. sigreturnCode is what it does:
//
//	mov $15 (rt_sigreturn), %rax; syscall
const sigreturnName = "runtime.sigreturn__sigaction"

var sigreturnCode = []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}

// savesBP reports whether code, a function's from its entry, saves BP where its
// frame begins: push %rbp, or since before Go 1.21 mov %rbp, n(%rsp).
func savesBP(code []byte, frameStart uint32) bool {
	k := int(frameStart)
	if k < 1 || k+4 > len(code) {
		return false
	}
	if code[k-1] == 0x55 {
		return true
	}
	store := code[k:]
	return store[0] == 0x48 && store[1] == 0x89 && (store[2] == 0x6c || store[2] == 0xac) && store[3] == 0x24
}

// examine decodes a function from its entry on.
func (t *Table) examine(f *goFunc, code []byte) (a asmFunc) {
	start, framed := t.frameStart(f)
	a.savesBP = framed && savesBP(code, start)
	popEnd := ^uint32(0)
	for s := t.deltas(f); s.next(); {
		if s.value == -8 {
			popEnd = s.from
			break
		}
	}
	var in x86.Insn
	for off := 0; off < len(code); {
		if !in.Decode(code[off:]) {
			// An instruction that the decoder does not know, or data.
			off++
			continue
		}
		off += in.Len
		next := uint32(off)
		if reg, ok := in.Pops(); ok && next == popEnd && reg >= 8 {
			a.popped = reg
		}
		if !framed && a.heldTo == 0 {
			a.hold(&in, next)
		}
		if in.IsSyscall() && a.called == 0 {
			a.called = next
		}
		switch written := in.Writes(); {
		case written&x86.Bit(x86.SP) != 0:
			switch {
			case in.AddsToSP():
			case a.spWritten == 0:
				a.spWritten = next
				a.aligns = in.IsAnd()
			case a.spBack == 0:
				a.spBack = next
			}
		case written&x86.Bit(x86.BP) != 0:
			if !isFramePointer(&in) {
				a.bpWritten = true
			}
		}
	}
	if a.heldTo == 0 {
		a.held = 0
	}
	return a
}

// hold follows the SP of entry into another register, and back. The instruction ends at next.
func (a *asmFunc) hold(in *x86.Insn, next uint32) {
	dst, src, moves := in.Moves()
	switch {
	case a.held == 0:
		if moves && src == x86.SP && a.spWritten == 0 && dst >= 12 { // calls keep these
			a.held, a.heldFrom = dst, next
		}
	case in.Writes()&x86.Bit(a.held) != 0:
		a.held = 0 // it gets something else
	case moves && dst == x86.SP && src == a.held:
		a.heldTo = next
	}
}

// isFramePointer reports whether an instruction that writes BP makes it a frame pointer: an address on the stack, or
// the value that was saved there.
func isFramePointer(in *x86.Insn) bool {
	if _, src, ok := in.Moves(); ok {
		return src == x86.SP
	}
	return (in.IsLoad() || in.IsLEA()) && in.Base == x86.SP
}

// CallsMorestack reports whether a call of morestack, or of a function that only goes on there, ends at an
// address.
func (t *Table) CallsMorestack(addr uint64) bool {
	const size = 5 // call rel32
	code := t.code.at(addr-size, size)
	if len(code) < size || code[0] != 0xe8 {
		return false
	}
	to := addr + uint64(int64(int32(binary.LittleEndian.Uint32(code[1:]))))
	index, ok := t.index(to)
	if !ok || to != t.text+t.start(index) {
		return false
	}
	f, ok := t.entry(index)
	if !ok {
		return false
	}
	name := t.code.name(f.name)
	return name == nameOfMorestack || name == nameOfMorestack+"_noctxt"
}

// readSwitch reads the offsets from the code of systemstack, which begins with a check on which stack it is:
//
//	mov M(%rax),%rbx         from g to m
//	cmp …(%rbx),%rax         is it the g for signals?
//	mov (%rbx),%rdx          the scheduler's g
//	cmp CurG(%rbx),%rax      is it the goroutine's?
//	mov Sched(%rdx),%rsp     to the scheduler's stack
func (g *Growth) readSwitch(code []byte) bool {
	var in x86.Insn
	compared := 0
	for len(code) > 0 {
		if !in.Decode(code) {
			return false
		}
		code = code[in.Len:]
		offset, isField := fieldOf(&in, x86.AX)
		switch {
		case in.IsLoad() && in.Reg == x86.BX && isField && g.M == 0:
			g.M = offset
			continue
		case movesToSP(&in):
			g.Sched, isField = fieldOf(&in, x86.DX)
			return isField && g.M != 0 && compared == 2 && g.CurG != 0 && g.Sched != 0
		}
		if offset, isField = fieldOf(&in, x86.BX); isField && in.IsCompare() {
			compared++
			g.CurG = offset
		}
	}
	return false
}

// movesToSP reports whether an instruction copies a word to SP.
func movesToSP(in *x86.Insn) bool {
	dst, _, moves := in.Moves()
	return moves && dst == x86.SP || in.IsLoad() && in.Reg == x86.SP
}

// fieldOf is the offset in a structure of what an instruction reads, if a register has its address.
func fieldOf(in *x86.Insn, base uint8) (offset uint16, ok bool) {
	const largest = 4096
	if in.Base != base || in.HasIndex || in.Segment || in.Disp < 0 || in.Disp >= largest {
		return 0, false
	}
	return uint16(in.Disp), in.Disp%8 == 0
}

// callOnOtherStack is the offset behind the first call in code after it has switched stacks.
func callOnOtherStack(code []byte) (offset uint64, ok bool) {
	var in x86.Insn
	switched := false
	for off := 0; off < len(code) && in.Decode(code[off:]); {
		off += in.Len
		switched = switched || movesToSP(&in)
		if switched && in.IsCall() {
			return uint64(off), true
		}
	}
	return 0, false
}

// signature has the first eight bytes of a table for x86-64: the magic number, two zeros, the size of
// the shortest instruction, the size of an address.
func (v version) signature() uint64 { return 0x08010000<<32 | uint64(v) }
