// Package profiletest makes profiles for tests of the packages that read and write them.
package profiletest

import (
	"cmp"
	"slices"

	"unspool/capture/profile"
)

// Builder is a profile that is made sample by sample, from stacks that are given as indices of
// frames, from the outermost to the leaf.
type Builder struct {
	*profile.Profile
	nodes   map[profile.Node]int32
	indexed int                    // number of Nodes that are in nodes
	weights map[profile.Sample]int // index in Samples, by sample without its weight
}

// New returns a builder that adds to a profile, which the caller may still read. A profile without nodes
// gets the root.
func New(p *profile.Profile) *Builder {
	if len(p.Nodes) == 0 {
		p.Nodes = []profile.Node{{Parent: -1, Frame: -1}}
	}
	return &Builder{
		Profile: p, nodes: make(map[profile.Node]int32), weights: make(map[profile.Sample]int),
	}
}

// Frame adds a frame and returns its index.
func (s *Builder) Frame(f profile.Frame) int32 {
	s.Frames = append(s.Frames, f)
	return int32(len(s.Frames) - 1)
}

// Thread returns the index of a thread, which it adds if it is a new one. A thread without a Program is its process's
// only one.
func (s *Builder) Thread(t profile.Thread) int32 {
	t.Program = cmp.Or(t.Program, t.Comm)
	i := slices.Index(s.Threads, t)
	if i < 0 {
		i = len(s.Threads)
		s.Threads = append(s.Threads, t)
	}
	return int32(i)
}

// Stack returns the node of a stack.
func (s *Builder) Stack(frames ...int32) int32 {
	for ; s.indexed < len(s.Nodes); s.indexed++ {
		s.nodes[s.Nodes[s.indexed]] = int32(s.indexed)
	}
	at := int32(0)
	for _, f := range frames {
		n := profile.Node{Parent: at, Frame: f}
		node, ok := s.nodes[n]
		if !ok {
			node = int32(len(s.Nodes))
			s.nodes[n] = node
			s.Nodes = append(s.Nodes, n)
			s.indexed++
		}
		at = node
	}
	return at
}

// Sample adds the weight of a sample to the one of the same stack, thread, event, CPU and end, and
// returns that.
func (s *Builder) Sample(one profile.Sample) *profile.Sample {
	key := one
	key.Count, key.Period = 0, 0
	i, ok := s.weights[key]
	if !ok {
		i = len(s.Samples)
		s.weights[key] = i
		s.Samples = append(s.Samples, key)
	}
	sum := &s.Samples[i]
	sum.Count += one.Count
	sum.Period += one.Period
	return sum
}

// AddComplete adds count samples of a stack that reaches its root, in the first thread for the first event,
// and returns the stack's node.
func (s *Builder) AddComplete(count uint64, frames ...int32) int32 {
	node := s.Stack(frames...)
	s.Sample(profile.Sample{Node: node, CPU: -1, Count: count, Period: count, End: profile.Complete})
	return node
}

// Add adds a sample of count occurrences of a stack, and returns the stack's node.
func (s *Builder) Add(t profile.Thread, event int32, count uint64, frames ...int32) int32 {
	node := s.Stack(frames...)
	s.Sample(profile.Sample{
		Thread: s.Thread(t), Node: node, Event: event, CPU: -1, Count: count, Period: count,
	})
	return node
}
