package elf

import (
	"errors"
	"fmt"
)

// ErrBadELF is wrapped by every error about a file that cannot be read as an ELF file.
var ErrBadELF = errors.New("bad ELF file")

// Error is an error with its place.
type Error struct {
	Section string // ".eh_frame", ".debug_frame", "section headers", ...
	Offset  uint64 // in bytes from the start of Section
	What    string // what is wrong there
	Err     error  // the sentinel, or the cause
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s+%#x: %s: %v", e.Section, e.Offset, e.What, e.Err)
}

// Unwrap returns the sentinel or the cause.
func (e *Error) Unwrap() error { return e.Err }
