package profile

import (
	"cmp"
	"maps"
	"slices"

	"unspool/capture/symbols/srcline"
)

// lines gives the frames their source lines and adds the frames of inlined functions. It returns the new
// node for each old node.
func (l *loader) lines() []int32 {
	p := l.p
	// by frame: the frame itself, and behind it those that are inlined there, outermost first
	below := make([][]int32, len(p.Frames))
	for i := range below {
		below[i] = []int32{int32(i)}
	}
	paths := make(map[string]string)
	images := slices.SortedFunc(maps.Values(l.opened), func(a, b *image) int {
		return cmp.Compare(a.index, b.index)
	})
	for done, im := range images {
		if l.options.Lookup != nil {
			l.options.Lookup(done, len(images))
		}
		frames := im.sampled
		slices.SortFunc(frames, func(a, b int32) int {
			return cmp.Or(cmp.Compare(p.Frames[a].PC, p.Frames[b].PC), cmp.Compare(a, b))
		})
		pcs := make([]uint64, len(frames))
		for i, f := range frames {
			pcs[i] = p.Frames[f].PC
		}
		im.Lines(pcs, func(i int, found []srcline.Frame) {
			f := frames[i]
			for n, at := range slices.Backward(found) {
				path, ok := paths[at.File]
				if !ok {
					path = at.File
					paths[path] = path
				}
				if n < len(found)-1 {
					outer := &p.Frames[f]
					f = int32(len(p.Frames))
					below[frames[i]] = append(below[frames[i]], f)
					p.Frames = append(p.Frames, Frame{Name: "[inlined]", Image: outer.Image, Kind: outer.Kind, Inlined: true,
						PC: outer.PC})
				}
				frame := &p.Frames[f]
				if !frame.Known && at.Func != "" {
					frame.Name, frame.Symbol, frame.Known = l.sym.Name(at.Func), at.Func, true
				}
				frame.File, frame.Line, frame.Column = path, int32(at.Line), int32(at.Column)
			}
		})
	}
	return p.insert(below)
}

// insert puts frames below others: every frame f becomes the frames below[f], the first of which is f. The
// others are new, so stacks that were different still are. It returns the new node for each old node.
func (p *Profile) insert(below [][]int32) []int32 {
	nodes := make([]Node, 1, len(p.Nodes))
	nodes[0] = p.Nodes[0]
	now := make([]int32, len(p.Nodes))
	for i, n := range p.Nodes[1:] {
		at := now[n.Parent]
		for _, f := range below[n.Frame] {
			nodes = append(nodes, Node{at, f})
			at = int32(len(nodes) - 1)
		}
		now[i+1] = at
	}
	p.Nodes = nodes
	for i := range p.Samples {
		p.Samples[i].Node = now[p.Samples[i].Node]
	}
	return now
}
