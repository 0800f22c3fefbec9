package folded

import (
	"slices"
	"strings"

	"unspool/capture/profile"
)

// vocabulary interns the names of frames. The output is sorted by bytes, so each name has two places in that
// order, one at the end of a line and one before a semicolon: "main" is before "main (2)", and that is before
// "main;", as a space is before a semicolon.
type vocabulary struct {
	profile.StringTable

	leaf  []int32 // by text: its place as the end of a stack
	inner []int32 // by text: its place with a semicolon behind it
}

// sort finds the places of the texts.
func (v *vocabulary) sort() {
	type key struct {
		text  string
		place *int32
	}
	v.leaf, v.inner = make([]int32, len(v.List)), make([]int32, len(v.List))
	keys := make([]key, 0, 2*len(v.List))
	for i, text := range v.List {
		keys = append(keys, key{text, &v.leaf[i]}, key{text + ";", &v.inner[i]})
	}
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.text, b.text) })
	for place, k := range keys {
		*k.place = int32(place)
	}
}

// ranks numbers the nodes of a tree of texts in the order of their stacks' bytes.
func ranks(nodes []profile.Node, words *vocabulary) []int32 {
	// The children of a node, as lists.
	first, next := make([]int32, len(nodes)), make([]int32, len(nodes))
	for i := len(nodes) - 1; i > 0; i-- {
		parent := nodes[i].Parent
		next[i], first[parent] = first[parent], int32(i)
	}

	// The stack of what has to be numbered: a node, or everything below a node.
	type step struct {
		node  int32
		below bool
		place int32
	}
	rank := make([]int32, len(nodes))
	todo := []step{{node: 0, below: true}}
	for n := int32(1); len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !s.below {
			rank[s.node] = n
			n++
			continue
		}
		begin := len(todo)
		for child := first[s.node]; child != 0; child = next[child] {
			word := nodes[child].Frame
			todo = append(todo, step{child, false, words.leaf[word]})
			if first[child] != 0 {
				todo = append(todo, step{child, true, words.inner[word]})
			}
		}
		slices.SortFunc(todo[begin:], func(a, b step) int { return int(b.place - a.place) })
	}
	return rank
}
