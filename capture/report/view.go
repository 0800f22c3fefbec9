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
	childs  [][]int32
	hidden  uint64 // samples that have no frame to show
}

// newView makes the view for tables, to which processes do not belong: they are no functions.
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
	shown := make([]int32, len(p.Nodes))
	v := &view{p: p, event: event, shown: shown, nodes: []profile.Node{{Parent: -1, Frame: -1}}}
	ids := make(map[profile.Node]int32, len(p.Nodes))
	for i, node := range p.Nodes[1:] {
		parent := shown[node.Parent]
		f := &p.Frames[node.Frame]
		if without(f.Kind) || !f.Known && node.Frame == v.nodes[parent].Frame {
			shown[i+1] = parent
			continue
		}
		n := profile.Node{Parent: parent, Frame: node.Frame}
		id, ok := ids[n]
		if !ok {
			id = int32(len(v.nodes))
			v.nodes = append(v.nodes, n)
			ids[n] = id
		}
		shown[i+1] = id
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
	v.self, v.total, v.childs = make([]uint64, n), make([]uint64, n), make([][]int32, n)
	for _, s := range p.Samples {
		if s.Event == v.event {
			v.samples += s.Count
			v.period += s.Period
			v.self[v.shown[s.Node]] += s.Count
		}
	}
	v.hidden = v.self[0]
	for i := n - 1; i >= 0; i-- { // children come after their parents
		v.total[i] += v.self[i]
		if parent := v.nodes[i].Parent; parent >= 0 && v.total[i] > 0 {
			v.total[parent] += v.total[i]
			v.childs[parent] = append(v.childs[parent], int32(i))
		}
	}
	for _, c := range v.childs {
		slices.SortFunc(c, func(a, b int32) int {
			return cmp.Or(cmp.Compare(v.total[b], v.total[a]), strings.Compare(v.frame(a).Name, v.frame(b).Name),
				cmp.Compare(a, b))
		})
	}
}

func (v *view) frame(node int32) *profile.Frame { return &v.p.Frames[v.nodes[node].Frame] }

func (v *view) percent(n uint64) float64 { return 100 * float64(n) / float64(v.samples) }
