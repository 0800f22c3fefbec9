package profile

import (
	"cmp"
	"maps"
	"slices"

	"unspool/capture/symbols/srcline"
)

// frameRun is n frames from first on: those inlined into another one, outermost first.
type frameRun struct{ first, n int32 }

// lines gives the frames their source lines and adds the frames of inlined functions. It returns the new
// node for each old node.
func (l *loader) lines() []int32 {
	p := l.p
	inlined := make([]frameRun, len(p.Frames))
	paths := make(map[string]string)
	images := slices.SortedFunc(maps.Values(l.opened), func(a, b *image) int {
		return cmp.Compare(a.index, b.index)
	})
	left := room{l.bounds.inlined}
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
		has := 0 // frames of inlined functions
		im.Lines(pcs, func(i int, found []srcline.Frame) {
			f := frames[i]
			if inner := len(found) - 1; !left.take(&has, inner) {
				l.flattened++
				found = found[inner:]
			}
			for n, at := range slices.Backward(found) {
				path, ok := paths[at.File]
				if !ok {
					path = at.File
					paths[path] = path
				}
				if n < len(found)-1 {
					outer := &p.Frames[f]
					f = int32(len(p.Frames))
					if in := &inlined[frames[i]]; in.n == 0 {
						*in = frameRun{f, 1}
					} else {
						in.n++
					}
					p.Frames = append(p.Frames, Frame{Name: "[inlined]", Image: outer.Image, Kind: outer.Kind, Inlined: true,
						PC: outer.PC})
				}
				frame := &p.Frames[f]
				if !frame.Known {
					if n, ok := l.named(at.Func, &im.shares); ok {
						frame.Name, frame.Symbol, frame.Known = n.text, n.symbol, true
					}
				}
				frame.File, frame.Line, frame.Column, frame.Start = path, int32(at.Line), int32(at.Column), int32(at.Start)
			}
		})
	}
	l.fitInlined(inlined)
	return p.insert(inlined)
}

// fitInlined leaves out the innermost of the inlined functions of those images with which the profile would have
// too many nodes.
func (l *loader) fitInlined(inlined []frameRun) {
	p := l.p
	nodes := make(map[int32][]int) // by image, by the number of frames inlined there
	for _, n := range p.Nodes[1:] {
		if in := inlined[n.Frame]; in.n > 0 {
			image := p.Frames[n.Frame].Image
			for int(in.n) >= len(nodes[image]) {
				nodes[image] = append(nodes[image], 0)
			}
			nodes[image][in.n]++
		}
	}
	count := func(image int32, deepest int) (sum int) {
		for depth, n := range nodes[image] {
			sum += n * min(depth, deepest)
		}
		return sum
	}
	left := room{l.bounds.withInlined - len(p.Nodes)}
	least := slices.SortedFunc(maps.Keys(nodes), func(a, b int32) int {
		return cmp.Or(cmp.Compare(count(a, len(nodes[a])), count(b, len(nodes[b]))), cmp.Compare(a, b))
	})
	deepest := make(map[int32]int32)
	for _, image := range least {
		most := len(nodes[image]) - 1
		deep, has := most, 0
		for deep > 0 && !left.take(&has, count(image, deep)) {
			deep--
		}
		if deep < most {
			deepest[image] = int32(deep)
		}
	}
	if len(deepest) == 0 {
		return
	}
	for i := range inlined {
		in := &inlined[i]
		if deep, cut := deepest[p.Frames[i].Image]; cut && in.n > deep {
			in.n = deep
			l.flattened++
		}
	}
}

// insert puts the frames of inlined functions below those that they are inlined into. They are new, so stacks that
// were different still are. It returns the new node for each old node.
func (p *Profile) insert(inlined []frameRun) []int32 {
	nodes := make([]Node, 1, len(p.Nodes))
	nodes[0] = p.Nodes[0]
	now := make([]int32, len(p.Nodes))
	for i, n := range p.Nodes[1:] {
		in := inlined[n.Frame]
		nodes = append(nodes, Node{now[n.Parent], n.Frame})
		for f := in.first; f < in.first+in.n; f++ {
			nodes = append(nodes, Node{int32(len(nodes) - 1), f})
		}
		now[i+1] = int32(len(nodes) - 1)
	}
	p.Nodes = nodes
	for i := range p.Samples {
		p.Samples[i].Node = now[p.Samples[i].Node]
	}
	return now
}
