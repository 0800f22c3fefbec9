package profile

// rebuild replaces the frames of all stacks: frame f becomes the frames that expand returns, outermost first, at least one. It returns, for each
// node that was, the node that it is now.
func (p *Profile) rebuild(expand func(f int32) []int32) []int32 {
	b := builder{p: p, children: make(map[edge]int32, len(p.Nodes)), weights: make(map[weightKey]int32, len(p.Samples))}
	nodes, samples := p.Nodes, p.Samples
	p.Nodes, p.Samples = []Node{{-1, -1}}, nil
	now := make([]int32, len(nodes))
	for i, n := range nodes[1:] {
		at := now[n.Parent]
		for _, f := range expand(n.Frame) {
			at = b.child(at, f)
		}
		now[i+1] = at
	}
	for _, s := range samples {
		s.Node = now[s.Node]
		b.add(s)
	}
	return now
}

// ByFunction returns the profile with one frame for each function, however many places of it were sampled: frames have no PC and no line. p stays as it is.
func (p *Profile) ByFunction() *Profile {
	type key struct {
		name    string
		image   int32
		kind    Kind
		inlined bool
		addr    uint64
	}
	q := *p
	q.Frames = nil
	known := make(map[key]int32)
	now := make([][1]int32, len(p.Frames))
	for i, f := range p.Frames {
		k := key{f.Name, f.Image, f.Kind, f.Inlined, f.Addr}
		j, ok := known[k]
		if !ok {
			j = int32(len(q.Frames))
			known[k] = j
			f.PC, f.Line, f.Column = 0, 0, 0
			q.Frames = append(q.Frames, f)
		}
		now[i][0] = j
	}
	q.rebuild(func(f int32) []int32 { return now[f][:] })
	return &q
}
