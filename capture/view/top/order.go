package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An order is what rows are sorted by.
type order uint8

const (
	bySelf order = iota
	byTotal
	byName
	orders
)

func (o order) String() string {
	switch o {
	case bySelf:
		return "self"
	case byTotal:
		return "total"
	case byName:
		return "name"
	}
	return fmt.Sprintf("order %d", uint8(o))
}

// weight is what a row with these samples and this name is sorted by: the largest first, then by name.
func (o order) weight(self, total uint64, name string) weight {
	switch o {
	case bySelf:
		return weight{self, total, name}
	case byTotal:
		return weight{total, self, name}
	}
	return weight{name: name}
}

type weight struct {
	first, second uint64
	name          string
}

// sortBy sorts indices by weight.
func sortBy(rows []int32, weightOf func(int32) weight) []int32 {
	slices.SortFunc(rows, func(a, b int32) int {
		x, y := weightOf(a), weightOf(b)
		return cmp.Or(cmp.Compare(y.first, x.first), cmp.Compare(y.second, x.second),
			strings.Compare(x.name, y.name), cmp.Compare(a, b))
	})
	return rows
}

// sorted returns the indices of the functions with samples, in an order.
func (s *snapshot) sorted(o order) []int32 {
	var rows []int32
	for i := range s.functions {
		if s.functions[i].total > 0 {
			rows = append(rows, int32(i))
		}
	}
	return sortBy(rows, func(i int32) weight {
		f := &s.functions[i]
		return o.weight(f.self, f.total, f.name)
	})
}

// sortedOf returns the given nodes in an order.
func (s *snapshot) sortedOf(nodes []int32, o order) []int32 {
	return sortBy(slices.Clone(nodes), func(i int32) weight {
		n := &s.nodes[i]
		return o.weight(n.self, n.total, n.name)
	})
}
