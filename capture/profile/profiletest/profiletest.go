// Package profiletest makes profiles for the tests of what writes them.
package profiletest

import (
	"slices"

	"unspool/capture/profile"
)

// Stacks is a profile that is made sample by sample. Its first node is the root, {Parent: -1, Frame: -1}.
type Stacks struct{ *profile.Profile }

// Add adds a sample of count occurrences with frames from the outermost to the leaf.
func (p Stacks) Add(t profile.Thread, event int32, count uint64, frames ...int32) {
	thread := slices.Index(p.Threads, t)
	if thread < 0 {
		thread = len(p.Threads)
		p.Threads = append(p.Threads, t)
	}
	var node int32
	for _, f := range frames {
		n := profile.Node{Parent: node, Frame: f}
		i := slices.Index(p.Nodes, n)
		if i < 0 {
			i = len(p.Nodes)
			p.Nodes = append(p.Nodes, n)
		}
		node = int32(i)
	}
	p.Samples = append(p.Samples, profile.Sample{
		Thread: int32(thread), Node: node, Event: event, CPU: -1, Count: count, Period: count})
}
