package flamegraph

import (
	"cmp"
	"hash/fnv"
	"slices"

	"unspool/capture/profile"
)

// function is a function in the graph: rectangles of one name and place belong to it.
type function struct {
	name    string
	image   int32
	kind    profile.Kind
	inlined bool
	addr    uint64
}

// node is a rectangle: a function below its caller. Nodes are in preorder, siblings by falling weight unless
// ranked; node 0 is the root.
type node struct {
	parent, function int32 // -1 for the root
	depth            int32 // 0 for the root
	line             int32 // the most sampled one; 0 if unknown
	end              int32 // index of the first node that is not below this one
}

// weight is a number of samples that end in a node.
type weight struct {
	node, event, thread int32
	count               uint64
}

// graph is a profile's stacks merged by function.
type graph struct {
	p         *profile.Profile
	functions []function
	files     []string // source file of each function; "" when unknown
	nodes     []node
	now       []int32  // the node for each node of the profile
	weights   []weight // by node, event and thread
	events    []int32  // those with samples
}

// newGraph merges the stacks of a valid profile.
func newGraph(p *profile.Profile) *graph { return newRanked(p, nil) }

// newRanked does the same, with siblings sorted by the falling rank of their function first and then by
// falling weight; with nil only by weight.
func newRanked(p *profile.Profile, rank func(name, image string) float64) *graph {
	g := &graph{p: p}
	merged, now := g.merge()
	ranks := make([]float64, len(g.functions))
	if rank != nil {
		for i, f := range g.functions {
			ranks[i] = rank(f.name, p.Images[f.image].Name)
		}
	}
	order := g.sort(merged, ranks)
	for i := range now {
		now[i] = order[now[i]]
	}
	g.now = now
	g.lines(now, p.Totals())
	g.weigh(now)
	return g
}

// merge makes the functions. It returns the profile with these in the place of its frames, and its node for each
// node of the profile.
func (g *graph) merge() (merged *profile.Profile, now []int32) {
	functionOf := make([]int32, len(g.p.Frames))
	known := make(map[function]int32)
	for i, f := range g.p.Frames {
		fn := function{f.Name, f.Image, f.Kind, f.Inlined, f.Addr}
		j, ok := known[fn]
		if !ok {
			j = int32(len(g.functions))
			known[fn] = j
			g.functions = append(g.functions, fn)
			g.files = append(g.files, "")
		}
		functionOf[i] = j
		if g.files[j] == "" {
			g.files[j] = f.File
		}
	}
	return g.p.RegroupNodes(nil, functionOf)
}

// sort makes the nodes from those of the merged profile, in preorder, and returns the index of each.
func (g *graph) sort(merged *profile.Profile, rank []float64) []int32 {
	nodes, total := merged.Nodes, merged.Totals()
	bySibling := make([]int32, len(nodes)-1)
	for i := range bySibling {
		bySibling[i] = int32(i + 1)
	}
	slices.SortFunc(bySibling, func(a, b int32) int {
		x, y := &nodes[a], &nodes[b]
		if c := cmp.Compare(x.Parent, y.Parent); c != 0 {
			return c
		}
		if c := cmp.Compare(rank[y.Frame], rank[x.Frame]); c != 0 {
			return c
		}
		if c := cmp.Compare(total[b], total[a]); c != 0 {
			return c
		}
		if c := cmp.Compare(g.functions[x.Frame].name, g.functions[y.Frame].name); c != 0 {
			return c
		}
		return cmp.Compare(x.Frame, y.Frame)
	})
	first := make([]int32, len(nodes)+1) // of each parent's children, in bySibling
	for _, n := range nodes[1:] {
		first[n.Parent+1]++
	}
	for i := 1; i < len(first); i++ {
		first[i] += first[i-1]
	}
	order := make([]int32, len(nodes))
	sorted := make([]node, 0, len(nodes))
	stack := []int32{0}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		n := node{parent: -1, function: nodes[i].Frame}
		order[i] = int32(len(sorted))
		if i > 0 {
			n.parent = order[nodes[i].Parent]
			n.depth = sorted[n.parent].depth + 1
		}
		sorted = append(sorted, n)
		children := bySibling[first[i]:first[i+1]]
		for k := len(children) - 1; k >= 0; k-- {
			stack = append(stack, children[k])
		}
	}
	for i := len(sorted) - 1; i >= 0; i-- {
		n := &sorted[i]
		n.end = max(n.end, int32(i)+1)
		if i > 0 {
			parent := &sorted[n.parent]
			parent.end = max(parent.end, n.end)
		}
	}
	g.nodes = sorted
	return order
}

// lines finds the most sampled source line of each node.
func (g *graph) lines(now []int32, total []uint64) {
	type place struct {
		node, line int32
		count      uint64
	}
	var places []place
	for i, n := range g.p.Nodes[1:] {
		if line := g.p.Frames[n.Frame].Line; line > 0 {
			places = append(places, place{now[i+1], line, total[i+1]})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.line, b.line))
	})
	most := uint64(0) // of the lines of a node so far
	for i := 0; i < len(places); {
		at := places[i]
		for i++; i < len(places) && places[i].node == at.node && places[i].line == at.line; i++ {
			at.count += places[i].count
		}
		if to := &g.nodes[at.node]; to.line == 0 || at.count > most {
			most, to.line = at.count, at.line
		}
	}
}

// weigh adds up the samples.
func (g *graph) weigh(now []int32) {
	type key struct{ node, event, thread int32 }
	at := make(map[key]int)
	for _, s := range g.p.Samples {
		k := key{now[s.Node], s.Event, s.Thread}
		i, ok := at[k]
		if !ok {
			i = len(g.weights)
			at[k] = i
			g.weights = append(g.weights, weight{node: k.node, event: k.event, thread: k.thread})
		}
		g.weights[i].count += s.Count
	}
	slices.SortFunc(g.weights, func(a, b weight) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.event, b.event), cmp.Compare(a.thread, b.thread))
	})
	g.events = g.p.Sampled()
}

// counts are the numbers of samples of an event that end in each node, and that end in it or below.
func (g *graph) counts(event int32) (self, total []uint64) {
	self, total = make([]uint64, len(g.nodes)), make([]uint64, len(g.nodes))
	for _, w := range g.weights {
		if w.event == event {
			self[w.node] += w.count
		}
	}
	copy(total, self)
	for i := len(total) - 1; i > 0; i-- {
		total[g.nodes[i].parent] += total[i]
	}
	return self, total
}

// colour is the class of a function: its kind, or that it is inlined.
func (g *graph) colour(f *function) int {
	if f.inlined && f.kind == profile.User {
		return inlined
	}
	return int(f.kind)
}

// shade gives images of the same kind different shades.
func (g *graph) shade(f *function) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(g.p.Images[f.image].Name))
	return int(h.Sum32() % shades)
}
