package top

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// A snapshot is what a profile has to show.
type snapshot struct {
	samples   uint64
	span      time.Duration // that the profile is of
	busy      float64       // CPUs, on average
	cpus      int           // that are online; 0 when unknown
	lost      uint64        // since the recording began
	functions []function
	nodes     []node // 0 is the root; parents come before their children
}

// A function is a row of the table. Its texts are safe to print. Functions of the same name in images of the
// same name, which nobody could tell apart, are one.
type function struct {
	name, image string
	programs    []string // that have it on their stacks, the one with most samples first
	self, total uint64
}

// key identifies the function from one snapshot to the next.
func (f *function) key() uint64 { return keyOf(0, f.name, f.image) }

// A node is a program, or a function in the tree of a program's calls. Its texts are safe to print.
type node struct {
	parent      int32
	name, image string
	other       bool // its image is another one than its parent's
	self, total uint64
	children    []int32
	key         uint64 // the same in the next snapshot
}

var seed = maphash.MakeSeed()

// keyOf is the key of what has a name in an image below a parent with a key.
func keyOf(parent uint64, name, image string) uint64 {
	return maphash.Comparable(seed, struct {
		parent      uint64
		name, image string
	}{parent, name, image})
}

// newSnapshot makes the snapshot of a profile by function. span is the time that the samples are from.
func newSnapshot(p *profile.Profile, span time.Duration) *snapshot {
	s := &snapshot{span: span, cpus: p.CPUs, lost: p.Lost(), nodes: []node{{parent: -1}}}
	for i := range p.Samples {
		s.samples += p.Samples[i].Count
	}
	s.busy = busy(p, span)
	a := newAdder(s, p)
	for i := range p.Samples {
		a.add(&p.Samples[i])
	}
	a.finish()
	return s
}

// busy is how many CPUs were in use on average, by the samples' periods or the frequency that was asked for;
// 0 if that is unknown.
func busy(p *profile.Profile, span time.Duration) float64 {
	var seconds float64
	for i := range p.Samples {
		s := &p.Samples[i]
		switch e := &p.Events[s.Event]; {
		case e.Clock:
			seconds += time.Duration(s.Period).Seconds()
		case e.Frequency > 0:
			seconds += float64(s.Count) / float64(e.Frequency)
		}
	}
	if span <= 0 {
		return 0
	}
	return seconds / span.Seconds()
}

// An adder adds up the samples of a profile.
type adder struct {
	*snapshot
	p          *profile.Profile
	programs   []string // by thread, safe to print
	functionOf []int32  // by frame
	known      []bool   // by function: it has a name
	seen       []int    // by function: the last sample with it
	nodeAt     map[place]int32
	by         map[use]uint64
	samples    int
	path       []int32 // functions of a sample, leaf first
}

// place is where a node is in the tree: below another one, and what it is of.
type place struct {
	parent   int32
	function int32 // -1 for a program
	program  string
}

// use is a program's use of a function.
type use struct {
	function int32
	program  string
}

func newAdder(s *snapshot, p *profile.Profile) *adder {
	a := &adder{
		snapshot: s, p: p, nodeAt: make(map[place]int32), by: make(map[use]uint64),
	}
	for i := range p.Threads {
		a.programs = append(a.programs, human.Clean(p.Threads[i].Program))
	}
	type text struct{ name, image string }
	rows := make(map[text]int32)
	for i := range p.Frames {
		f := &p.Frames[i]
		t := text{human.Clean(f.Name), human.Clean(p.Images[f.Image].Name)}
		row, ok := rows[t]
		if !ok {
			row = int32(len(a.functions))
			rows[t] = row
			a.functions = append(a.functions, function{name: t.name, image: t.image})
			a.known = append(a.known, f.Known)
		}
		a.functionOf = append(a.functionOf, row)
	}
	a.seen = make([]int, len(a.functions))
	return a
}

// add adds a sample to the tree and to the table.
func (a *adder) add(s *profile.Sample) {
	program := a.programs[s.Thread]
	a.samples++
	a.path = a.path[:0]
	for n := s.Node; n > 0; n = a.p.Nodes[n].Parent {
		a.path = append(a.path, a.functionOf[a.p.Nodes[n].Frame])
	}
	at := a.child(place{0, -1, program})
	for i, f := range slices.Backward(a.path) {
		if i+1 < len(a.path) && f == a.path[i+1] && !a.known[f] {
			continue // a run of unknown functions of an image
		}
		at = a.child(place{at, f, ""})
		a.count(f, program, s.Count)
	}
	a.nodes[at].self += s.Count
	if len(a.path) > 0 {
		a.functions[a.path[0]].self += s.Count
	}
}

// child returns the node of a place.
func (a *adder) child(p place) int32 {
	at, ok := a.nodeAt[p]
	if !ok {
		at = int32(len(a.nodes))
		a.nodeAt[p] = at
		n := node{parent: p.parent, name: p.program}
		up := &a.nodes[p.parent]
		if p.function >= 0 {
			f := &a.functions[p.function]
			n.name, n.image = f.name, f.image
			n.other = f.image != up.image && a.known[p.function] // the name of an unknown one says it
		}
		n.key = keyOf(up.key, n.name, n.image)
		up.children = append(up.children, at)
		a.nodes = append(a.nodes, n)
	}
	return at
}

// count counts a sample for a function on its stack, once.
func (a *adder) count(function int32, program string, n uint64) {
	if a.seen[function] == a.samples {
		return
	}
	a.seen[function] = a.samples
	a.functions[function].total += n
	a.by[use{function, program}] += n
}

// finish adds up the tree, and orders the programs of each function.
func (a *adder) finish() {
	for i := len(a.nodes) - 1; i >= 0; i-- {
		n := &a.nodes[i]
		n.total += n.self
		if n.parent >= 0 {
			a.nodes[n.parent].total += n.total
		}
	}
	for u := range a.by {
		f := &a.functions[u.function]
		f.programs = append(f.programs, u.program)
	}
	for i := range a.functions {
		of := func(program string) uint64 { return a.by[use{int32(i), program}] }
		slices.SortFunc(a.functions[i].programs, func(x, y string) int {
			return cmp.Or(cmp.Compare(of(y), of(x)), strings.Compare(x, y))
		})
	}
}
