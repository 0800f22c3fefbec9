package rule

import "unspool/dwarfcfi/elf"

// DWARF numbers of the i386 registers that the walk names (System V ABI,
// Intel386 supplement 1.1, table 2.14). Number 8 is the return address column.
const (
	SP386 = 4
	BP386 = 5
	IP386 = 8

	NumRegs386 = 9
)

// I386 is the architecture of 32-bit programs on x86-64. They are rare, so their stacks are walked by
// rows, without rules.
var I386 = &Arch{
	Machine:  elf.EM_386,
	Names:    []string{"i386", "i486", "i586", "i686"},
	SP:       SP386,
	BP:       BP386,
	IP:       IP386,
	NumRegs:  NumRegs386,
	WordSize: 4,
	Mask:     1<<32 - 1,
	// AX CX DX (System V ABI, Intel386 supplement 1.1, § 2.2.1)
	Scratch: 1<<0 | 1<<1 | 1<<2,
	// enum perf_event_x86_regs: AX BX CX DX SI DI BP SP IP, and no other that matters
	PerfOrder:  []int8{0, 3, 1, 2, 6, 7, 5, 4, 8},
	StartWords: 12, // the dynamic linker has eight
}
