package runtimes

import (
	"cmp"
	"fmt"
	"slices"
)

// Written is what a process has written about the code that it generated.
type Written uint8

const (
	Nothing Written = iota
	Names           // of this code, or of other code
	Refused         // something that is not used
)

// A Process has generated code.
type Process struct {
	PID     uint32
	Name    string   // for one whose runtime is not known
	Runtime *Runtime // nil if it is not known
	Runs    bool     // it is still there
	Written Written
	Why     string // it is Refused; "" if that is not known

	Samples uint64 // that are concerned
}

// A Group are processes about which the same is to be said.
type Group struct {
	Process   // the one with most samples; Samples are those of all
	Processes int
}

// mostGroups is how many groups are told of.
const mostGroups = 3

// Groups puts processes with the same runtime, in the same state, together: those groups that have most samples, and
// at least so many.
func Groups(processes []Process, least uint64) []Group {
	slices.SortFunc(processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.PID, b.PID))
	})
	var groups []Group
	for _, p := range processes {
		alike := func(g Group) bool {
			return g.Runtime == p.Runtime && (p.Runtime != nil || g.Name == p.Name) && g.Runs == p.Runs &&
				g.Written == p.Written
		}
		i := slices.IndexFunc(groups, alike)
		if i < 0 {
			i = len(groups)
			groups = append(groups, Group{Process: p})
			groups[i].Samples = 0
		}
		groups[i].Samples += p.Samples
		groups[i].Processes++
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(b.Samples, a.Samples) })
	groups = slices.DeleteFunc(groups, func(g Group) bool { return g.Samples < max(least, 1) })
	return groups[:min(len(groups), mostGroups)]
}

// Who are the processes, in words.
func (g *Group) Who() string {
	name := g.Name
	if g.Runtime != nil {
		name = g.Runtime.Name
	}
	if g.Processes > 1 {
		return fmt.Sprintf("%s (%d processes)", name, g.Processes)
	}
	return fmt.Sprintf("%s (process %d)", name, g.PID)
}

// Advice returns what to do for the names of their code.
func (g *Group) Advice() string {
	pid := g.PID
	if !g.Runs {
		pid = 0
	}
	switch {
	case g.Written == Refused && g.Why != "":
		return "the names that it wrote are not used: " + g.Why
	case g.Written == Names:
		return "the names that it wrote are of other code, so they are older, or incomplete: " + g.Runtime.Names(pid)
	}
	return g.Runtime.Names(pid)
}
