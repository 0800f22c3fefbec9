package speedscope

import (
	"cmp"
	"slices"

	"unspool/capture/profile"
)

// ranks numbers the nodes: heavy children, with all below them, before light ones, and those before the node
// itself.
func ranks(nodes []profile.Node, total []uint64) []int32 {
	// The children of a node, as lists.
	first, next := make([]int32, len(nodes)), make([]int32, len(nodes))
	for i := len(nodes) - 1; i > 0; i-- {
		parent := nodes[i].Parent
		next[i], first[parent] = first[parent], int32(i)
	}

	// Numbers are given out from the last one down.
	rank := make([]int32, len(nodes))
	todo := []int32{0}
	for n := int32(len(nodes)) - 1; len(todo) > 0; n-- {
		node := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		rank[node] = n
		begin := len(todo)
		for child := first[node]; child != 0; child = next[child] {
			todo = append(todo, child)
		}
		slices.SortFunc(todo[begin:], func(a, b int32) int {
			return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(nodes[a].Frame, nodes[b].Frame))
		})
	}
	return rank
}
