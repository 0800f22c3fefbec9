package replay

import (
	"fmt"

	"unspool/capture/output/human"
	"unspool/vmas"
)

// ForgottenNotes returns what address spaces had no room for, a line each; nil if there was room for all.
func ForgottenNotes(f vmas.Forgotten) (notes []string) {
	if f.Processes > 0 {
		notes = append(notes, fmt.Sprintf("more than %s processes ran at a time, or their ends are not recorded; "+
			"forgotten: %s, whose later samples have no names", human.Number(vmas.MaxSpaces), human.Number(f.Processes)))
	}
	if f.Threads > 0 {
		notes = append(notes, fmt.Sprintf("more than %s threads ran at a time; the names of %s were not kept",
			human.Number(vmas.MaxThreads), human.Number(f.Threads)))
	}
	if f.Mappings > 0 {
		notes = append(notes, fmt.Sprintf("the processes have too many mappings; forgotten: %s, the older ones of those "+
			"that have most, so later samples in them have no names", human.Number(f.Mappings)))
	}
	return notes
}
