package profile

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
	b := builder{p: &q}
	b.grow(len(p.Nodes), len(p.Samples))
	at := make([]int32, len(p.Nodes)) // by node of p: that of q
	for i, n := range p.Nodes[1:] {
		at[i+1] = b.child(at[n.Parent], now[n.Frame])
	}
	for _, s := range p.Samples {
		s.Node = at[s.Node]
		b.add(s)
	}
	return &q
}
