package debugfile

import (
	"slices"

	"unspool/dwarfcfi/elf"
)

// Detail is how much a file has of what strip(1) removes. Several files of one build differ in that.
type Detail int

// The more, the better.
const (
	Stripped  Detail = iota
	Symbols          // a symbol table
	Debugging        // debugging information
)

var debugging = []string{".debug_info", ".debug_frame", ".zdebug_info", ".zdebug_frame"}

// DetailOf returns how much of it f has.
func DetailOf(f *elf.File) Detail {
	detail := Stripped
	for i := range f.Sections {
		s := &f.Sections[i]
		switch {
		case s.Type == elf.SHT_SYMTAB:
			detail = Symbols
		case s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_ALLOC == 0 &&
			slices.ContainsFunc(debugging, func(name string) bool { return f.Named(s, name) }):
			return Debugging
		}
	}
	return detail
}
