package rule

import "unspool/dwarfcfi/elf"

// DWARF numbers of the x86-64 registers that the walk names (System V ABI,
// AMD64 supplement, figure 3.36). Number 16 is the return address column.
const (
	AX = 0
	DX = 1
	CX = 2
	BX = 3
	BP = 6
	SP = 7
	IP = 16

	NumRegs = 17 // of which rows are evaluated
)

// AMD64 is x86-64, whose rows are compiled to rules.
var AMD64 = &Arch{
	Machine:  elf.EM_X86_64,
	Names:    []string{"x86_64", "amd64"},
	SP:       SP,
	BP:       BP,
	IP:       IP,
	NumRegs:  NumRegs,
	WordSize: 8,
	Mask:     1<<64 - 1,
	// AX DX CX SI DI R8 to R11 (System V ABI, AMD64 supplement, figure 3.4)
	Scratch: 1<<0 | 1<<1 | 1<<2 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<10 | 1<<11,
	// enum perf_event_x86_regs (arch/x86/include/uapi/asm/perf_regs.h): AX BX CX DX
	// SI DI BP SP IP FLAGS CS SS DS ES FS GS R8 … R15
	PerfOrder: []int8{0, 3, 2, 1, 4, 5, 6, 7, 16, -1, -1, -1, -1, -1, -1, -1,
		8, 9, 10, 11, 12, 13, 14, 15},
	StartWords: 1,
}
