package profile

import (
	"cmp"
	"fmt"
	"slices"

	"unspool/capture/output/human"
)

// Notes are the problems for people to read.
type Notes struct {
	Recording []string // what is wrong with the recording as a whole: few
	Names     []string // why names are missing: one for each kind, the most frequent kind first
}

// Notes puts problems of the same kind together: the first one stands for all of its kind.
func (p *Profile) Notes() (n Notes) {
	type group struct {
		first string
		count uint64
	}
	var groups []*group
	of := make(map[string]*group)
	for _, problem := range p.Problems {
		kind, ok := p.Kinds[problem]
		if !ok {
			n.Recording = append(n.Recording, problem)
			continue
		}
		g := of[kind]
		if g == nil {
			g = &group{first: problem}
			of[kind] = g
			groups = append(groups, g)
		}
		g.count++
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(b.count, a.count) })
	for _, g := range groups {
		text := g.first
		if g.count > 1 {
			text = fmt.Sprintf("%s (and %s more)", text, human.Number(g.count-1))
		}
		n.Names = append(n.Names, text)
	}
	return n
}

// MostNotes is how many notes of a list are shown to who has not asked for all.
const MostNotes = 5

// Few are the first notes of a list, and in place of the others how many these are; all says where all are,
// such as "-v lists them".
func Few(notes []string, all string) []string {
	if len(notes) <= MostNotes {
		return notes
	}
	left := uint64(len(notes) - MostNotes + 1)
	return append(slices.Clone(notes[:MostNotes-1]),
		fmt.Sprintf("… and %s of other kinds (%s)", human.Plural(left, "note"), all))
}
