package report

import (
	"cmp"
	"slices"
	"strings"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

const (
	leastNameless = 1  // percent of the samples: below that, missing names are not worth a line at the top
	leastIn       = 10 // percent of the samples without names: below that, an image is not named
	mostAdvised   = 3  // files, those with most samples

	// mostEntry is how many frames a stack may begin with before those of the program: what the C library calls a thread's
	// function or main from, which has no name of its own where the library is stripped.
	mostEntry = 3

	theNotes = "see the notes at the end"
)

// A namelessness is what has no names in a profile. Samples whose stacks have several frames without a name belong to
// the innermost of these. Frames with which stacks begin do not count, or all stacks would go through such code.
type namelessness struct {
	all, leaves uint64 // samples, and those of them that end in code without a name
	through     uint64 // those whose stacks go through such code
	images      []uint64
	generated   map[uint32]uint64 // by process; not in images
}

// findNameless adds up what has no names.
func findNameless(p *profile.Profile) *namelessness {
	n := &namelessness{images: make([]uint64, len(p.Images)), generated: make(map[uint32]uint64)}
	without := func(node int32) bool {
		f := &p.Frames[p.Nodes[node].Frame]
		return !f.Known && f.Kind.IsCode()
	}
	innermost := make([]int32, len(p.Nodes)) // the innermost such frame of a stack, 0 for none
	depth := make([]int32, len(p.Nodes))     // frames of code from the root on
	for i := 1; i < len(p.Nodes); i++ {      // parents come before their children
		parent, kind := p.Nodes[i].Parent, p.Frames[p.Nodes[i].Frame].Kind
		if depth[i] = depth[parent]; kind.IsCode() {
			depth[i]++
		}
		innermost[i] = innermost[parent]
		if without(int32(i)) && (kind == profile.JIT || depth[i] > mostEntry) {
			innermost[i] = int32(i)
		}
	}
	for _, s := range p.Samples {
		n.all += s.Count
		at := innermost[s.Node]
		if s.Node > 0 && without(s.Node) {
			at = s.Node
		}
		if at == 0 {
			continue
		}
		n.through += s.Count
		if at == s.Node {
			n.leaves += s.Count
		}
		if f := &p.Frames[p.Nodes[at].Frame]; f.Kind == profile.JIT {
			n.generated[p.Threads[s.Thread].PID] += s.Count
		} else {
			n.images[f.Image] += s.Count
		}
	}
	return n
}

// nameless returns which share of the stacks goes through code without names, where most of that is, and of which files
// and runtimes they can be had and how: a line for the files, and one for each kind of generated code. There are none
// if it is little.
func (out *printer) nameless(p *profile.Profile) (lines []string) {
	n := findNameless(p)
	if n.through == 0 || 100*n.through < leastNameless*n.all {
		return out.interpreted(p)
	}
	text := human.Percent(n.through, n.all) + " of the stacks go through code without names"
	if n.leaves > 0 {
		text += ", " + human.Percent(n.leaves, n.all) + " end in it"
	}
	return slices.Concat([]string{text + out.namelessFiles(p, n)}, out.namelessGenerated(p, n), out.interpreted(p))
}

// namelessFiles says in which files that is.
func (out *printer) namelessFiles(p *profile.Profile, n *namelessness) (text string) {
	var worst []int32
	for i, count := range n.images {
		if count > 0 && 100*count >= leastIn*n.through {
			worst = append(worst, int32(i))
		}
	}
	slices.SortFunc(worst, func(a, b int32) int {
		return cmp.Or(cmp.Compare(n.images[b], n.images[a]), cmp.Compare(a, b))
	})
	how, advised := out.advice(p, worst)
	var of, rest []int32
	for _, i := range worst {
		if slices.Contains(advised, i) {
			of = append(of, i)
		} else {
			rest = append(rest, i)
		}
	}
	in := func(images []int32) string {
		var count uint64
		var names []string
		for _, i := range images {
			count += n.images[i]
			names = append(names, p.Images[i].Name)
		}
		return human.Percent(count, n.all) + " in " + strings.Join(names, ", ")
	}
	if len(rest) > 0 {
		text += "; " + in(rest)
		if slices.ContainsFunc(rest, func(i int32) bool { return out.isNoted(p, p.Images[i].Path) }) {
			text += ": " + theNotes
		}
	}
	if len(of) > 0 { // last, as it may end with a URL
		text += "; " + in(of) + ": " + how
	}
	return text
}

// isNoted reports whether a note at the end is about a file, or one like it about another.
func (out *printer) isNoted(p *profile.Profile, file string) bool {
	noted := p.Notes().Names
	if !out.o.AllNotes && len(noted) > profile.MostNotes {
		noted = noted[:profile.MostNotes-1]
	}
	shown := make(map[string]bool) // kinds
	for _, problem := range p.Problems {
		if slices.ContainsFunc(noted, func(note string) bool { return strings.HasPrefix(note, problem) }) {
			shown[p.Kinds[problem]] = true
		}
	}
	for _, problem := range p.Problems {
		if kind, ok := p.Kinds[problem]; ok && (out.o.AllNotes || shown[kind]) && strings.Contains(problem, file) {
			return true
		}
	}
	return false
}

// advice returns how the names of images are to be had, and of which of them.
func (out *printer) advice(p *profile.Profile, images []int32) (how string, of []int32) {
	var files []profile.Image
	var asked []int32
	for _, i := range images {
		if len(files) < mostAdvised && symbols.IsFile(p.Images[i].Path) {
			files, asked = append(files, p.Images[i]), append(asked, i)
		}
	}
	if out.o.Advice == nil || len(files) == 0 {
		return "", nil
	}
	how, helped := out.o.Advice(files)
	for n, i := range asked {
		if how != "" && helped[n] {
			of = append(of, i)
		}
	}
	return how, of
}
