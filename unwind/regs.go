package unwind

import (
	"encoding/binary"
	"math/bits"
	"unspool/unwind/rule"
)

// Regs is a set of x86-64 register values by DWARF number, with a bit for
// each one whose value is known.
type Regs struct {
	Value [rule.NumRegs]uint64
	Known uint32
}

func (r *Regs) set(n int, v uint64) {
	r.Value[n] = v
	r.Known |= 1 << n
}

func (r *Regs) has(n int) bool { return r.Known>>n&1 != 0 }

// Get gives the value of the register with DWARF number n.
func (r *Regs) Get(n int) (v uint64, known bool) {
	if n < 0 || n >= rule.NumRegs {
		return 0, false
	}
	return r.Value[n], r.has(n)
}

// perfOrder gives the DWARF number of each register of the kernel's enum
// perf_event_x86_regs (arch/x86/include/uapi/asm/perf_regs.h): AX BX CX DX
// SI DI BP SP IP FLAGS CS SS DS ES FS GS R8 … R15; -1 where CFI has no use
// for it.
var perfOrder = [24]int8{0, 3, 2, 1, 4, 5, 6, 7, 16, -1, -1, -1, -1, -1, -1, -1, 8, 9, 10, 11, 12, 13, 14, 15}

// SetPerf fills r from the user registers of a sample: regs are the values of those
// that mask (perf_event_attr.sample_regs_user) selects, as little-endian words. It does not
// allocate.
func (r *Regs) SetPerf(mask uint64, regs []byte) {
	r.Known = 0
	for mask &= 1<<len(perfOrder) - 1; mask != 0 && len(regs) >= 8; mask &= mask - 1 {
		if d := perfOrder[bits.TrailingZeros64(mask)]; d >= 0 {
			r.set(int(d), binary.LittleEndian.Uint64(regs))
		}
		regs = regs[8:]
	}
}

// SP is the DWARF number of the stack pointer, for [Regs.Get].
const SP = rule.SP

// DropUnsaved forgets the registers that the kernel had not saved when an
// NMI sampled it in kernel mode: it then reports RBX and R12 to R15 as -1
// (perf_get_regs_user, arch/x86/kernel/perf_regs.c). It is for samples taken
// in kernel mode; -1 is a value like any other in user mode.
func (r *Regs) DropUnsaved() {
	for _, n := range [...]int{rule.BX, 12, 13, 14, 15} {
		if r.Value[n] == ^uint64(0) {
			r.Known &^= 1 << n
		}
	}
}
