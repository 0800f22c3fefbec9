package debugfile

import "unspool/dwarfcfi/elf"

// Detail is how much a file has of what strip(1) removes. Several files of one build differ in that.
type Detail int

// The more, the better.
const (
	Stripped  Detail = iota
	Symbols          // a symbol table
	Debugging        // debugging information
)

// DetailOf says how much of it f has.
func DetailOf(f *elf.File) Detail {
	detail := Stripped
	for i := range f.Sections {
		s := &f.Sections[i]
		switch {
		case s.Type == elf.SHT_SYMTAB:
			detail = Symbols
		case s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_ALLOC == 0 &&
			(f.Named(s, ".debug_info") || f.Named(s, ".debug_frame")):
			return Debugging
		}
	}
	return detail
}
