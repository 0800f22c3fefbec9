package pprof

import (
	"regexp"
	"slices"
	"strings"

	proto "github.com/google/pprof/profile"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// stacks turns nodes into the locations of their stacks.
type stacks struct {
	p         *profile.Profile
	out       *proto.Profile
	places    []place // by image
	spot      []int32 // by node: the spot that it ends, so far
	spots     []spot
	locations []*proto.Location // by spot
	functions map[function]*proto.Function
	known     map[int32][]*proto.Location // by leaf
	scratch   []*proto.Location
}

// spot is a frame together with those that it is inlined into: this is one location in pprof.
type spot struct {
	outer int32 // spot, -1 for none
	frame int32
}

type function struct {
	name, symbol, file string
	start              int32
}

func newStacks(p *profile.Profile, out *proto.Profile) *stacks {
	s := &stacks{
		p: p, out: out,
		places:    newPlaces(p, out),
		spot:      make([]int32, len(p.Nodes)),
		functions: make(map[function]*proto.Function),
		known:     make(map[int32][]*proto.Location),
	}
	numbers := make(map[spot]int32)
	for i, n := range p.Nodes {
		if i == 0 {
			s.spot[0] = -1
			continue
		}
		at := spot{-1, n.Frame}
		if p.Frames[n.Frame].Inlined {
			at.outer = s.spot[n.Parent]
		}
		number, ok := numbers[at]
		if !ok {
			number = int32(len(s.spots))
			numbers[at] = number
			s.spots = append(s.spots, at)
		}
		s.spot[i] = number
	}
	s.locations = make([]*proto.Location, len(s.spots))
	return s
}

// at returns the stack that ends at a node, leaf first.
func (s *stacks) at(leaf int32) []*proto.Location {
	stack, ok := s.known[leaf]
	if ok {
		return stack
	}
	s.scratch = s.scratch[:0]
	for node := leaf; node > 0; {
		s.scratch = append(s.scratch, s.location(s.spot[node]))
		for s.p.Frames[s.p.Nodes[node].Frame].Inlined {
			node = s.p.Nodes[node].Parent
		}
		node = s.p.Nodes[node].Parent
	}
	stack = slices.Clone(s.scratch)
	s.known[leaf] = stack
	return stack
}

func (s *stacks) location(number int32) *proto.Location {
	if l := s.locations[number]; l != nil {
		return l
	}
	f := &s.p.Frames[s.spots[number].frame]
	l := &proto.Location{ID: uint64(len(s.out.Location) + 1)}
	l.Mapping, l.Address = s.places[f.Image].at(f.PC)
	for i := number; i >= 0; i = s.spots[i].outer {
		f := &s.p.Frames[s.spots[i].frame]
		l.Line = append(l.Line, proto.Line{Function: s.function(f), Line: int64(f.Line), Column: int64(f.Column)})
		if m := l.Mapping; m != nil {
			m.HasFunctions = m.HasFunctions || f.Known
			m.HasFilenames = m.HasFilenames || f.File != ""
			m.HasLineNumbers = m.HasLineNumbers || f.Line != 0
			m.HasInlineFrames = m.HasLineNumbers // both come from debugging information
		}
	}
	s.locations[number] = l
	s.out.Location = append(s.out.Location, l)
	return l
}

func (s *stacks) function(f *profile.Frame) *proto.Function {
	key := function{f.Name, f.Symbol, f.File, f.Start}
	fn := s.functions[key]
	if fn == nil {
		fn = &proto.Function{ID: uint64(len(s.out.Function) + 1), Name: shown(f), SystemName: human.Printable(f.Symbol),
			Filename: human.Printable(f.File), StartLine: int64(f.Start)}
		if fn.SystemName == fn.Name && strings.ContainsAny(fn.Name, "(<") {
			fn.SystemName = "" // pprof would take it for C++ and cut what is in brackets
		}
		s.functions[key] = fn
		s.out.Function = append(s.out.Function, fn)
	}
	return fn
}

// version is what follows the name of a shared library: ".so.6".
var version = regexp.MustCompile(`\.so[.0-9]*`)

// shown is the name of a function. One that has no symbol, as [libcrypto.so.3.1+0x11170], loses its dots:
// where a box is narrow, pprof shows what is behind a dot, here "1+0x11170]". Its mapping has the whole name.
func shown(f *profile.Frame) string {
	if f.Known {
		return human.Printable(f.Name)
	}
	return strings.ReplaceAll(version.ReplaceAllString(human.Printable(f.Name), ""), ".", "_")
}
