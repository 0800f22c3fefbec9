package rule

import "unspool/dwarfcfi/elf"

// An Arch has what a walk needs to know about an architecture. Registers have their DWARF numbers.
type Arch struct {
	Machine elf.Machine // of its ELF files
	Names   []string    // of its machines, as uname -m gives them

	SP, BP, IP int    // stack pointer, frame pointer, and the return address column of its CFI
	NumRegs    int    // how many registers of a row are evaluated, from 0 on: at most MaxRegs
	WordSize   int    // bytes of an address and of a register
	Mask       uint64 // the bits that an address and a register have

	// Scratch has a bit for each register that a function may change as it likes: what it has there is not
	// what its caller had.
	Scratch uint32
	// PerfOrder has the DWARF number of each register in the order of the kernel's enum, or -1 for a
	// register that CFI does not use.
	PerfOrder []int8
	// StartWords is how many words there may be between SP and argc in the start code of a program, after
	// that has aligned SP and pushed arguments.
	StartWords int
}

// MaxRegs is the largest NumRegs of an architecture.
const MaxRegs = NumRegs

// Arches are the architectures whose stacks can be unwound.
var Arches = [...]*Arch{AMD64, I386}

// ArchOf gives the architecture of an ELF file, nil if it is not one of Arches.
func ArchOf(m elf.Machine) *Arch {
	for _, a := range Arches {
		if a.Machine == m {
			return a
		}
	}
	return nil
}
