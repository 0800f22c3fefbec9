package compare

import (
	"slices"

	"unspool/capture/profile"
	"unspool/unwind"
)

// Class is how the two stacks of a sample differ. Each sample is in one class.
type Class uint8

const (
	Same Class = iota // both are equal
	// frame pointers miss, or show otherwise, what lies below main or a thread's start, and nothing else
	StartCode
	LeafCaller // frame pointers miss the caller of the innermost function, and nothing else
	Middle     // they miss others in between, and reach the root
	Early      // they stop before the root
	Astray     // they lead to an address that is not on the stack
	// one of the two was cut by a limit: the copy of the stack, the kernel's callchain, --max-stack
	Cut
	DWARFStops // CFI ends before the root, frame pointers go on
	BothStop   // CFI ends before the root, and frame pointers do not go on
	NumClasses = iota
)

var classKeys = [NumClasses]string{
	"same", "lacks_start_code", "skips_leaf_caller", "skips_middle", "stops_early", "goes_astray", "cut_by_limit",
	"dwarf_stops", "both_stop",
}

var classWords = [NumClasses]string{
	"same",
	"only start code is missing",
	"the leaf's caller is missing",
	"frames in the middle are missing",
	"FP stops early",
	"FP goes astray",
	"cut by a limit",
	"DWARF stops, FP goes on",
	"both stop",
}

// Key is the class's name in JSON and on the command line.
func (c Class) Key() string { return classKeys[c] }

// String is the class in words.
func (c Class) String() string { return classWords[c] }

// ClassByKey finds a class by its Key.
func ClassByKey(key string) (Class, bool) {
	for c, k := range classKeys {
		if k == key {
			return Class(c), true
		}
	}
	return 0, false
}

// stacks are the two user stacks of a sample: the sampled PC, then return addresses.
type stacks struct {
	dwarf    []uint64
	dwarfEnd profile.End
	fp       []uint64
	fpEnd    unwind.FrameWalkEnd
	// code reports whether the i-th entry of fp is an address of code.
	code func(i int) bool
}

// verdict is what classify finds.
type verdict struct {
	class Class
	// The first index in dwarf whose frame is not at its place in fp; the number of frames in dwarf if fp goes
	// on with others; -1 if the two do not differ.
	parted int
	lost   int // frames of dwarf that are not in fp
}

// classify compares the stacks of a sample by their addresses. It does not know what start code is.
func classify(s *stacks) verdict {
	fp := s.fp
	v := verdict{parted: -1}
	part := func(at int) {
		if v.parted < 0 {
			v.parted = at
		}
	}
	// The index in dwarf; the frames in both; and the frames of dwarf skipped before the last of these.
	at, found, gaps := 0, 0, 0
	astray := false
	for _, ip := range fp {
		next := at
		for next < len(s.dwarf) && s.dwarf[next] != ip {
			next++
		}
		if next == len(s.dwarf) {
			astray = true
			break
		}
		if next > at {
			part(at)
			gaps += next - at
		}
		at = next + 1
		found++
	}
	v.lost = len(s.dwarf) - found
	if at < len(s.dwarf) || astray {
		part(at)
	}
	leafCaller := s.skipsLeafCaller()
	if leafCaller {
		v.parted = 1
	}
	switch {
	case s.dwarfEnd == profile.Ended(unwind.DumpTooShort), s.dwarfEnd == profile.Ended(unwind.NotCopied),
		s.dwarfEnd == profile.Ended(unwind.DepthLimit):
		v.class = Cut
	case s.dwarfEnd != profile.Complete:
		v.class = BothStop
		if astray && at == len(s.dwarf) && s.code(found) {
			v.class = DWARFStops
		}
	case leafCaller:
		v.class = LeafCaller
	case astray:
		v.class = Astray
	case at < len(s.dwarf):
		switch s.fpEnd {
		case unwind.KernelLimit, unwind.CopyEnds:
			v.class = Cut
		case unwind.OffStack:
			v.class = Astray
		default:
			v.class = Early
		}
	case gaps == 0:
		v.class = Same
	default:
		v.class = Middle
	}
	return v
}

// skipsLeafCaller reports whether fp has all of dwarf except the caller of the innermost function. With
// recursion, several callers have the same address, and fp could miss any of them. It must be this one, as
// a recursive function has a frame pointer either in all of its frames or in none.
func (s *stacks) skipsLeafCaller() bool {
	if len(s.dwarf) < 2 || len(s.fp) < 1 || s.fp[0] != s.dwarf[0] {
		return false
	}
	return slices.Equal(s.fp[1:], s.dwarf[2:]) && (len(s.fp) > 1 || s.fpEnd == unwind.NoFrame)
}
