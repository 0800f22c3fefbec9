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
	var frames []Frame
	known := make(map[key]int32)
	now := make([]int32, len(p.Frames))
	for i, f := range p.Frames {
		k := key{f.Name, f.Image, f.Kind, f.Inlined, f.Addr}
		j, ok := known[k]
		if !ok {
			j = int32(len(frames))
			known[k] = j
			f.PC, f.Line, f.Column = 0, 0, 0
			frames = append(frames, f)
		}
		now[i] = j
	}
	return p.Regroup(frames, now)
}

// Regroup returns the profile with other frames: what was frame f is frames[now[f]]. Stacks that become the same are added up. p stays as it is.
func (p *Profile) Regroup(frames []Frame, now []int32) *Profile {
	q := *p
	q.Frames = frames
	q.rebuild(func(f int32) []int32 { return now[f : f+1] })
	return &q
}
