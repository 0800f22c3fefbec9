package profile

// tree interns the nodes of a Profile and its samples.
type tree struct {
	p        *Profile
	children *index[edge]      // of p.Nodes
	recent   []int32           // by node: the child that was looked up last; 0 for none
	paths    [64]threadPath    // of the last samples, by thread
	weights  *index[weightKey] // of p.Samples
}

// A threadPath is where a thread's last sample is in the tree. Of a thread's stacks, the next one mostly
// begins in the same way.
type threadPath struct {
	thread, root  int32
	frames, nodes []int32 // the root's child first
}

// edge is the key of a node.
type edge struct{ parent, frame int32 }

func (n *Node) edge() edge { return edge{n.Parent, n.Frame} }

// weightKey is the key of a sample.
type weightKey struct {
	thread, node, event, cpu int32
	end                      End
}

func (s *Sample) key() weightKey { return weightKey{s.Thread, s.Node, s.Event, s.CPU, s.End} }

// grow begins the tree and its weights, with room for so many nodes and samples.
func (t *tree) grow(nodes, samples int) {
	p := t.p
	p.Nodes, p.Samples = make([]Node, 0, nodes), make([]Sample, 0, samples)
	t.children = newIndex(nodes, func(i int32) edge { return p.Nodes[i].edge() })
	t.weights = newIndex(samples, func(i int32) weightKey { return p.Samples[i].key() })
	t.recent = make([]int32, 0, nodes)
	t.child(-1, -1) // the root
	t.paths = [len(t.paths)]threadPath{}
}

// stack returns the node at the end of the path of a thread's frames below a root, given leaf first.
func (t *tree) stack(thread, root int32, frames []int32) int32 {
	at, node, same := &t.paths[int(thread)%len(t.paths)], root, 0
	if at.thread == thread && at.root == root {
		for n := min(len(frames), len(at.frames)); same < n && at.frames[same] == frames[len(frames)-1-same]; {
			node = at.nodes[same]
			same++
		}
	}
	at.thread, at.root, at.frames, at.nodes = thread, root, at.frames[:same], at.nodes[:same]
	for i := len(frames) - 1 - same; i >= 0; i-- {
		node = t.child(node, frames[i])
		at.frames, at.nodes = append(at.frames, frames[i]), append(at.nodes, node)
	}
	return node
}

// child returns the node of a frame below a parent.
func (t *tree) child(parent, frame int32) int32 {
	if parent >= 0 {
		if last := t.recent[parent]; last != 0 && t.p.Nodes[last].Frame == frame {
			return last
		}
	}
	e := edge{parent, frame}
	node, ok := t.children.find(e)
	if !ok {
		node = int32(len(t.p.Nodes))
		t.p.Nodes = append(t.p.Nodes, Node{parent, frame})
		t.recent = append(t.recent, 0)
		t.children.add(e)
	}
	if parent >= 0 {
		t.recent[parent] = node
	}
	return node
}

func (t *tree) add(s Sample) {
	k := s.key()
	i, ok := t.weights.find(k)
	if !ok {
		t.p.Samples = append(t.p.Samples, s)
		t.weights.add(k)
		return
	}
	sum := &t.p.Samples[i]
	sum.Count += s.Count
	sum.Period += s.Period
}
