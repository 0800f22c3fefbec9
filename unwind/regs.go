package unwind

import (
	"encoding/binary"
	"math/bits"
	"unspool/unwind/rule"
)

// Regs is a set of register values by DWARF number, with a bit for each one
// whose value is known. It has room for those of any architecture.
type Regs struct {
	Value [rule.MaxRegs]uint64
	Known uint32
}

func (r *Regs) set(n int, v uint64) {
	r.Value[n] = v
	r.Known |= 1 << n
}

func (r *Regs) has(n int) bool { return r.Known>>n&1 != 0 }

// Get gives the value of the register with DWARF number n.
func (r *Regs) Get(n int) (v uint64, known bool) {
	if n < 0 || n >= rule.MaxRegs {
		return 0, false
	}
	return r.Value[n], r.has(n)
}

// SetPerf fills r from the user registers of a sample of code of arch: regs are the values of those
// that mask (perf_event_attr.sample_regs_user) selects, as little-endian words of eight bytes. It
// does not allocate.
func (r *Regs) SetPerf(arch *rule.Arch, mask uint64, regs []byte) {
	r.Known = 0
	order := arch.PerfOrder
	for mask &= 1<<len(order) - 1; mask != 0 && len(regs) >= 8; mask &= mask - 1 {
		if d := order[bits.TrailingZeros64(mask)]; d >= 0 {
			r.set(int(d), binary.LittleEndian.Uint64(regs)&arch.Mask)
		}
		regs = regs[8:]
	}
}

// SP is the DWARF number of the stack pointer of x86-64, for [Regs.Get].
const SP = rule.SP

// DropUnsaved forgets the registers of x86-64 that the kernel had not saved when an
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
