package report

import (
	"cmp"
	"slices"
	"strings"

	"unspool/capture/profile"
)

// view has the samples of one event, added up by node. Its tree is that of the profile without frames that
// are not shown, and with one node for each run of unknown functions of an image.
type view struct {
	p       *profile.Profile
	event   int32
	shown   []int32 // for each node of the profile, the node of the view
	samples uint64  // of the event
	period  uint64
	nodes   []profile.Node
	self    []uint64 // by node: samples that end there
	total   []uint64 // by node: samples that pass through
	hidden  uint64   // samples that have no frame to show
}

// newView makes a view without processes, which are no functions.
func newView(p *profile.Profile, event int32, noKernel bool) *view {
	return newViewWithout(p, event, func(k profile.Kind) bool {
		return k == profile.Process || noKernel && k == profile.Kernel
	})
}

// newTreeView makes the view for the tree of calls, with processes as its first level if the profile has
// them.
func newTreeView(p *profile.Profile, event int32, noKernel bool) *view {
	return newViewWithout(p, event, func(k profile.Kind) bool { return noKernel && k == profile.Kernel })
}

func newViewWithout(p *profile.Profile, event int32, without func(profile.Kind) bool) *view {
	shown := make([]int32, len(p.Nodes)) // at first, the node itself or the one above it that is shown
	gains := make([]bool, len(p.Nodes))  // by node: children of nodes that are not shown
	for i := 1; i < len(p.Nodes); i++ {
		node := p.Nodes[i]
		parent := shown[node.Parent]
		if f := &p.Frames[node.Frame]; without(f.Kind) || !f.Known && node.Frame == p.Nodes[parent].Frame {
			shown[i], gains[parent] = parent, true
		} else {
			shown[i] = int32(i)
		}
	}
	v := &view{p: p, event: event, shown: shown, nodes: make([]profile.Node, 1, len(p.Nodes))}
	v.nodes[0] = profile.Node{Parent: -1, Frame: -1}
	// Only below a node that gains children there can be several of one frame, which become one. The map has
	// the nodes below such ones.
	merges := make([]bool, 1, len(p.Nodes))
	merges[0] = gains[0]
	ids := make(map[profile.Node]int32)
	for i := 1; i < len(p.Nodes); i++ {
		parent := shown[p.Nodes[i].Parent]
		if shown[i] != int32(i) {
			shown[i] = parent
			continue
		}
		n := profile.Node{Parent: parent, Frame: p.Nodes[i].Frame}
		if merges[parent] {
			if id, ok := ids[n]; ok {
				shown[i] = id
				continue
			}
			ids[n] = int32(len(v.nodes))
		}
		shown[i] = int32(len(v.nodes))
		v.nodes = append(v.nodes, n)
		merges = append(merges, gains[i] || merges[parent])
	}
	v.count()
	return v
}

// of is the same view of another event.
func (v *view) of(event int32) *view {
	other := &view{p: v.p, event: event, shown: v.shown, nodes: v.nodes}
	other.count()
	return other
}

// count adds the samples up.
func (v *view) count() {
	p, n := v.p, len(v.nodes)
	v.self, v.total = make([]uint64, n), make([]uint64, n)
	for i := range p.Samples {
		if s := &p.Samples[i]; s.Event == v.event {
			v.samples += s.Count
			v.period += s.Period
			v.self[v.shown[s.Node]] += s.Count
		}
	}
	v.hidden = v.self[0]
	for i := n - 1; i >= 0; i-- { // children come after their parents
		v.total[i] += v.self[i]
		if parent := v.nodes[i].Parent; parent >= 0 {
			v.total[parent] += v.total[i]
		}
	}
}

// children are those of the nodes that have at least so many percent of the samples, those with most samples
// first.
func (v *view) children(percent float64) map[int32][]int32 {
	childs := make(map[int32][]int32)
	for i, n := range v.nodes {
		if v.total[i] > 0 && n.Parent >= 0 && v.percent(v.total[n.Parent]) >= percent {
			childs[n.Parent] = append(childs[n.Parent], int32(i))
		}
	}
	for _, c := range childs {
		slices.SortFunc(c, func(a, b int32) int {
			return cmp.Or(cmp.Compare(v.total[b], v.total[a]), strings.Compare(v.frame(a).Name, v.frame(b).Name),
				cmp.Compare(a, b))
		})
	}
	return childs
}

func (v *view) frame(node int32) *profile.Frame { return &v.p.Frames[v.nodes[node].Frame] }

func (v *view) percent(n uint64) float64 { return 100 * float64(n) / float64(v.samples) }
