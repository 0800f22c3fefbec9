package profile

// tree interns the nodes of a Profile and its samples.
type tree struct {
	p        *Profile
	children *index[edge]      // of p.Nodes
	recent   []int32           // by node: the child that was looked up last; 0 for none
	paths    [64]threadPath    // of the last samples, by thread
	weights  *index[weightKey] // of p.Samples

	nodeRoom room           // for those of stacks
	made     map[uint32]int // nodes by process
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
	t.grown(-1, -1) // the root
	t.paths = [len(t.paths)]threadPath{}
}

// within bounds the nodes of stacks.
func (t *tree) within(nodes int) {
	t.nodeRoom, t.made = room{nodes}, make(map[uint32]int)
}

// StackSet are stacks of a Watcher's own, of the frames that it is called with. They are bounded as those of a
// Profile are.
type StackSet struct{ tree }

// NewStacks returns an empty Stacks, which can have so many nodes.
func NewStacks(nodes int) *StackSet {
	s := &StackSet{tree{p: &Profile{}}}
	s.grow(0, 0)
	s.within(nodes)
	return s
}

// Leaf returns the node at the end of a stack of a thread, whose frames are given leaf first; ok is false if there is
// no room for it.
func (s *StackSet) Leaf(pid uint32, thread int32, frames []int32) (leaf int32, ok bool) {
	return s.stack(pid, thread, 0, frames)
}

// Nodes returns the nodes, as a Profile has them.
func (s *StackSet) Nodes() []Node { return s.p.Nodes }

// stack returns the node at the end of the path of a thread's frames below a root, given leaf first. If there is
// no room for all of it, whole is false, and the node is that of the frames for which there was room.
func (t *tree) stack(pid uint32, thread, root int32, frames []int32) (node int32, whole bool) {
	at, same := &t.paths[int(thread)%len(t.paths)], 0
	node, whole = root, true
	if at.thread == thread && at.root == root {
		for n := min(len(frames), len(at.frames)); same < n && at.frames[same] == frames[len(frames)-1-same]; {
			node = at.nodes[same]
			same++
		}
	}
	at.thread, at.root, at.frames, at.nodes = thread, root, at.frames[:same], at.nodes[:same]
	made := -1 // by the process, once that is needed
	for i := len(frames) - 1 - same; i >= 0; i-- {
		next, ok := t.find(node, frames[i])
		if !ok {
			if made < 0 {
				made = t.made[pid]
			}
			if whole = t.nodeRoom.take(&made, 1); !whole {
				break
			}
			next = t.grown(node, frames[i])
		}
		node = next
		at.frames, at.nodes = append(at.frames, frames[i]), append(at.nodes, node)
	}
	if made > 0 {
		t.made[pid] = made
	}
	return node, whole
}

// child returns the node of a frame below a parent.
func (t *tree) child(parent, frame int32) int32 {
	if node, ok := t.find(parent, frame); ok {
		return node
	}
	return t.grown(parent, frame)
}

// find returns the node of a frame below a parent if there is one.
func (t *tree) find(parent, frame int32) (int32, bool) {
	if last := t.recent[parent]; last != 0 && t.p.Nodes[last].Frame == frame {
		return last, true
	}
	node, ok := t.children.find(edge{parent, frame})
	if ok {
		t.recent[parent] = node
	}
	return node, ok
}

// grown adds a node.
func (t *tree) grown(parent, frame int32) int32 {
	node := int32(len(t.p.Nodes))
	t.p.Nodes = append(t.p.Nodes, Node{parent, frame})
	t.recent = append(t.recent, 0)
	t.children.add(edge{parent, frame})
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
