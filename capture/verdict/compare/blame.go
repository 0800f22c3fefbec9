package compare

import (
	"cmp"
	"slices"

	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/dwarfcfi"
)

// Cause is why frame pointers miss the caller of a function.
type Cause uint8

const (
	NoFramePointer Cause = iota // the function sets up no frame pointer anywhere
	Prologue                    // it has not set it up yet
	Epilogue                    // it has restored the caller's already
	ShrinkWrapped               // it sets one up on other paths only
	Unexplained                 // it has one here, or is not known: a function that it called has lost it
	numCauses      = iota
)

var causeWords = [numCauses]string{"no frame pointer", "prologue", "epilogue",
	"frame pointer on other paths only", "unexplained"}
var causeKeys = [numCauses]string{"no_frame_pointer", "prologue", "epilogue", "shrink_wrapped", "unexplained"}

// String is the cause in words.
func (c Cause) String() string { return causeWords[c] }

// Key is the cause's name in JSON.
func (c Cause) Key() string { return causeKeys[c] }

// Blame is a function at which frame pointers first differ from CFI: they miss its caller.
type Blame struct {
	Function string
	Image    profile.Image
	Package  string // with its version, "" if not known
	Cause    Cause  // the most frequent one
	Samples  uint64
	Lost     uint64 // frames, in all these samples

	image int32 // index in the profiles' Images
}

// Blames returns the functions to blame, and the images to blame (with an empty Function), those with the
// most samples first.
func (c *Comparison) Blames(sym *symbols.Symbolizer) (functions, images []Blame) {
	type key struct {
		function string
		image    int32
	}
	p := c.DWARF
	causes := causeFinder{p: p, sym: sym, known: make(map[int32]Cause)}
	byFunction, byImage := make(map[key]*tally), make(map[key]*tally)
	for i := range c.Groups {
		g := &c.Groups[i]
		f := c.blamed(g)
		if f < 0 {
			continue
		}
		frame, cause := &p.Frames[f], causes.lookup(f)
		for _, to := range []struct {
			sums map[key]*tally
			key  key
		}{{byFunction, key{frame.Name, frame.Image}}, {byImage, key{"", frame.Image}}} {
			t := to.sums[to.key]
			if t == nil {
				t = new(tally)
				to.sums[to.key] = t
			}
			t.samples += g.Count
			t.lost += g.Count * uint64(g.Missed)
			t.causes[cause] += g.Count
		}
	}
	list := func(sums map[key]*tally) (all []Blame) {
		for k, t := range sums {
			all = append(all, Blame{Function: k.function, Image: p.Images[k.image], Cause: t.cause(),
				Samples: t.samples, Lost: t.lost, image: k.image})
		}
		slices.SortFunc(all, func(a, b Blame) int {
			return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Function, b.Function),
				cmp.Compare(a.Image.Path, b.Image.Path))
		})
		return all
	}
	return list(byFunction), list(byImage)
}

type tally struct {
	samples, lost uint64
	causes        [numCauses]uint64
}

func (t *tally) cause() Cause {
	best := Cause(0)
	for c, n := range t.causes {
		if n > t.causes[best] {
			best = Cause(c)
		}
	}
	return best
}

// blamed is the first frame whose caller frame pointers miss, -1 if they miss none.
func (c *Comparison) blamed(g *PairGroup) int32 {
	switch g.Class {
	case LeafCaller, Middle, Early, Astray:
	default:
		return -1
	}
	node := above(c.DWARF, g.DWARF, g.Kernel+max(g.Parted, 1)-1)
	if node == 0 {
		return -1
	}
	return c.DWARF.Nodes[node].Frame
}

// causeFinder finds out from CFI where functions have a frame pointer.
type causeFinder struct {
	p     *profile.Profile
	sym   *symbols.Symbolizer
	known map[int32]Cause // by frame
}

func (c *causeFinder) lookup(frame int32) Cause {
	cause, ok := c.known[frame]
	if !ok {
		f := &c.p.Frames[frame]
		im := &c.p.Images[f.Image]
		cause = Unexplained
		if cfi := c.sym.Image(im.Path, im.BuildID, im.File).CFI(); cfi != nil && f.PC != 0 {
			cause = causeAt(cfi, f.PC)
		}
		c.known[frame] = cause
	}
	return cause
}

// regBP is the DWARF number of RBP.
const regBP = 6

// causeAt reads the rows of the function that contains pc. Where a function has a frame pointer, the CFA is
// computed from it.
func causeAt(cfi *dwarfcfi.Table, pc uint64) Cause {
	d, err := cfi.FDE(pc)
	if err != nil {
		return Unexplained
	}
	here, before, after := false, false, false
	const mostRows = 4096
	n := 0
	for row, err := range d.Rows() {
		if err != nil {
			return Unexplained
		}
		if n++; n > mostRows {
			break
		}
		if row.CFA.Kind != dwarfcfi.CFARegister || row.CFA.Reg != regBP {
			continue
		}
		switch {
		case row.End <= pc:
			before = true
		case row.Start > pc:
			after = true
		default:
			here = true
		}
	}
	switch {
	case here:
		return Unexplained
	case before && after:
		return ShrinkWrapped
	case before:
		return Epilogue
	case after:
		return Prologue
	}
	return NoFramePointer
}
