package profile

// ByFunction returns the profile with one frame for each function, even if several addresses in it were
// sampled: the frames have no PC and no line. It is p itself if that was loaded with Options.Functions; p is
// not changed.
func (p *Profile) ByFunction() *Profile {
	if p.byFunction {
		return p
	}
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

// Regroup returns the profile with other frames, which may be nil if they are kept elsewhere: frame f becomes
// frames[now[f]]. Stacks that become equal are added up. p is not changed.
func (p *Profile) Regroup(frames []Frame, now []int32) *Profile {
	q, _ := p.RegroupNodes(frames, now)
	return q
}

// RegroupNodes is Regroup, and tells which node of the new profile each node of p has become.
func (p *Profile) RegroupNodes(frames []Frame, now []int32) (regrouped *Profile, nodes []int32) {
	q := *p
	q.Frames = frames
	b := tree{p: &q}
	b.grow(len(p.Nodes), len(p.Samples))
	at := make([]int32, len(p.Nodes)) // by node of p: the node of q
	for i, n := range p.Nodes[1:] {
		at[i+1] = b.child(at[n.Parent], now[n.Frame])
	}
	for _, s := range p.Samples {
		s.Node = at[s.Node]
		b.add(s)
	}
	return &q, at
}
