package rule

import "unspool/dwarfcfi/elf"

// An Arch is what a walk has to know of an architecture. Registers have their DWARF numbers.
type Arch struct {
	Machine elf.Machine // of its ELF files
	Names   []string    // of its machines, as uname -m gives them

	SP, BP, IP int    // stack pointer, frame pointer, and the return address column of its CFI
	NumRegs    int    // of which rows are evaluated: those from 0 on, at most MaxRegs
	WordSize   int    // of an address and of a register, in bytes
	Mask       uint64 // of the bits that an address and a register have

	// PerfOrder has the number of each register in the order of the kernel's enum of them, as far as CFI
	// needs them; -1 where it has no use for one.
	PerfOrder []int8
	// StartWords is how many words there may be between SP and argc in the start code of a program, which has
	// aligned SP and pushed arguments.
	StartWords int
}

// MaxRegs is the largest NumRegs of an architecture.
const MaxRegs = NumRegs

// Arches are the architectures whose stacks can be unwound.
var Arches = [...]*Arch{AMD64, I386}

// ArchOf gives the architecture of an ELF file, nil when it is none of Arches.
func ArchOf(m elf.Machine) *Arch {
	for _, a := range Arches {
		if a.Machine == m {
			return a
		}
	}
	return nil
}
