package srcline

import (
	"errors"
	"fmt"

	"unspool/dwarfcfi/elf"
)

var (
	// ErrNoDWARF means that a file has no DWARF debugging information.
	ErrNoDWARF = errors.New("no DWARF debugging information")
	// ErrBadELF is wrapped by errors about a file that cannot be read as ELF.
	ErrBadELF = elf.ErrBadELF
	// ErrBadDWARF is wrapped by errors about malformed debugging information.
	ErrBadDWARF = errors.New("bad DWARF")
	// ErrUnsupported is wrapped by errors about data that seems to be well-formed, but is not supported here.
	ErrUnsupported = errors.New("not supported")

	errWork = errors.New("more work than debugging information of this size can ask for")
)

// Error is an error with its place.
type Error struct {
	File    string
	Section string
	Offset  uint64 // in the section, uncompressed
	What    string
	Err     error // the sentinel, or the cause
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s+%#x: %s: %v", e.File, e.Section, e.Offset, e.What, e.Err)
}

// Unwrap returns the sentinel or the cause.
func (e *Error) Unwrap() error { return e.Err }

// maxErrors is how many errors Frames returns; a damaged file may have one for each unit.
const maxErrors = 16

// problems collects errors, the first ones whole and the others by number.
type problems struct {
	errs []error
	more int
}

func (p *problems) add(err error) {
	if len(p.errs) == maxErrors {
		p.more++
		return
	}
	p.errs = append(p.errs, err)
}

func (p *problems) err() error {
	if p.more > 0 {
		return errors.Join(append(p.errs, fmt.Errorf("and %d more", p.more))...)
	}
	return errors.Join(p.errs...)
}
