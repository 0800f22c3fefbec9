package rule

// DWARF numbers of the x86-64 registers that the walk names (System V ABI,
// AMD64 supplement, figure 3.36). Number 16 is the return address column.
const (
	AX = 0
	BX = 3
	BP = 6
	SP = 7
	IP = 16

	NumRegs = 17 // of which rows are evaluated
)

// DWARF numbers of the i386 registers that the walk names (System V ABI,
// Intel386 supplement 1.1, table 2.14). Number 8 is the return address column.
const (
	SP386 = 4
	BP386 = 5
	IP386 = 8

	NumRegs386 = 9
)
