package dwarfcfi

import (
	"errors"

	"unspool/dwarfcfi/elf"
)

var (
	// ErrNoFDE means that no FDE covers the program counter. It is returned as it is,
	// because it is an everyday answer (JIT code, assembly, Go).
	ErrNoFDE = errors.New("no FDE covers the address")
	// ErrBadCFI is wrapped by every error about malformed or unsupported CFI.
	ErrBadCFI = errors.New("bad CFI")
	// ErrBadExpr is wrapped by every error about a malformed, unsupported or failing
	// DWARF expression.
	ErrBadExpr = errors.New("bad DWARF expression")
	// ErrUnreadable is wrapped by [Eval] when the expression needs memory that its
	// caller could not read. It says nothing against the CFI.
	ErrUnreadable = errors.New("memory not readable")
	// ErrUnknownRegister is wrapped by [Eval] when the expression needs a register
	// whose value is not known.
	ErrUnknownRegister = errors.New("register not known")
)

// Error is an error with its place.
type Error = elf.Error
