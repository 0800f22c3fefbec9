package compare

import (
	"cmp"
	"slices"

	"unspool/capture/profile"
)

// Share is how much of the time a function takes, with the functions that it calls, by the stacks of each
// kind.
type Share struct {
	Function  string
	Image     profile.Image
	Kind      profile.Kind
	DWARF, FP uint64 // samples
}

// Difference is how many more samples the function has by frame pointers.
func (s *Share) Difference() int64 { return int64(s.FP) - int64(s.DWARF) }

// Shares returns the functions whose share differs, the largest difference first.
func (c *Comparison) Shares() []Share {
	dwarf, fp := totals(c.DWARF), totals(c.FP)
	var all []Share
	for f := range dwarf {
		if dwarf[f] == fp[f] {
			continue
		}
		frame := &c.DWARF.Frames[f]
		all = append(all, Share{frame.Name, c.DWARF.Images[frame.Image], frame.Kind, dwarf[f], fp[f]})
	}
	slices.SortFunc(all, func(a, b Share) int {
		return cmp.Or(cmp.Compare(abs(b.Difference()), abs(a.Difference())), cmp.Compare(a.Function, b.Function),
			cmp.Compare(a.Image.Path, b.Image.Path))
	})
	return all
}

func abs(n int64) int64 { return max(n, -n) }

// totals counts, for each function, the samples whose stack has it. The count is at the index of the
// function's first frame in the profile.
func totals(p *profile.Profile) []uint64 { return onStacks(p, firsts(p)) }

// onStacks counts, for each frame, the samples whose stack has it, each sample once. Frames that same maps
// to the same frame count as that frame; if same is nil, each counts as itself.
func onStacks(p *profile.Profile, same []int32) []uint64 {
	count := make([]uint64, len(p.Frames))
	seen := make([]int32, len(p.Frames)) // the last sample that was counted, plus one
	for i, s := range p.Samples {
		for n := s.Node; n > 0; n = p.Nodes[n].Parent {
			f := p.Nodes[n].Frame
			if same != nil {
				f = same[f]
			}
			if seen[f] != int32(i+1) {
				seen[f] = int32(i + 1)
				count[f] += s.Count
			}
		}
	}
	return count
}

type function struct {
	name  string
	image int32
}

// firsts maps each frame to the first one of the same function.
func firsts(p *profile.Profile) []int32 {
	known := make(map[function]int32)
	first := make([]int32, len(p.Frames))
	for i, f := range p.Frames {
		k := function{f.Name, f.Image}
		if _, ok := known[k]; !ok {
			known[k] = int32(i)
		}
		first[i] = known[k]
	}
	return first
}

// Edge is a caller and the function that it called, as frame pointers show it.
type Edge struct {
	Caller, Callee string
	Image          profile.Image // of the caller
	Samples        uint64        // samples in which frame pointers show the call, and the stack does not have it

	key call
}

// call is a caller and a callee, as the first frames of the functions.
type call struct{ caller, callee int32 }

// WrongCallers returns calls that frame pointers show and that never were: see PairState.
func (c *Comparison) WrongCallers() []Edge {
	p := c.FP
	count := make(map[call]uint64)
	for i, calls := range c.wrong {
		for _, k := range calls {
			count[k] += c.Groups[i].Count
		}
	}
	var all []Edge
	for k, n := range count {
		caller := &p.Frames[k.caller]
		all = append(all, Edge{caller.Name, p.Frames[k.callee].Name, p.Images[caller.Image], n, k})
	}
	slices.SortFunc(all, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Caller, b.Caller),
			cmp.Compare(a.Callee, b.Callee))
	})
	return all
}

// Sizes are the sizes of copies for which the result is computed, in bytes.
var Sizes = []int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10}

// Size is how many stacks would be complete with a copy of a size.
type Size struct {
	Bytes    int
	Complete uint64 // samples whose stack the copy would hold
}

// StackSizes computes, from the bytes that each walk needed, how many samples would be complete with
// smaller copies. asked is the size of the copies in the recording; larger sizes are left out, as nothing
// is known about them. enough is the smallest multiple of 1 KiB with which 99 % of the samples are
// complete, 0 if there is none.
func (c *Comparison) StackSizes(asked int) (sizes []Size, enough int) {
	upTo := func(kib int) (n uint64) {
		for need, count := range c.Reach {
			if need <= kib {
				n += count
			}
		}
		return n
	}
	for _, bytes := range Sizes {
		if bytes > asked+8 { // the kernel copies 65,528 bytes at most
			break
		}
		sizes = append(sizes, Size{bytes, upTo(bytes >> 10)})
	}
	for kib := 1; kib <= asked>>10+1 && c.Samples > 0; kib++ {
		if upTo(kib)*100 >= c.Samples*99 {
			return sizes, kib << 10
		}
	}
	return sizes, 0
}
