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

	image      int32  // index in the profiles' Images
	wrong      uint64 // those of the samples that are False
	wrongCause Cause  // the most frequent one of these
}

// Blames returns the functions to blame, and the images to blame (with an empty Function), those with the
// most samples first.
func (c *Comparison) Blames(sym *symbols.Symbolizer) (functions, images []Blame) {
	causes := causeFinder{p: c.DWARF, sym: sym, known: make(map[int32]Cause)}
	return c.blames(causes.lookup)
}

// blames returns what Blames does. cause returns the cause at a frame.
func (c *Comparison) blames(cause func(frame int32) Cause) (functions, images []Blame) {
	p := c.DWARF
	byFunction, byImage := make(map[function]*tally), make(map[function]*tally)
	for i := range c.Groups {
		g := &c.Groups[i]
		f := c.blamed(g)
		if f < 0 {
			continue
		}
		frame, why := &p.Frames[f], cause(f)
		for _, to := range []struct {
			sums map[function]*tally
			key  function
		}{{byFunction, function{frame.Name, frame.Image}}, {byImage, function{"", frame.Image}}} {
			t := to.sums[to.key]
			if t == nil {
				t = new(tally)
				to.sums[to.key] = t
			}
			t.lost += g.Count * uint64(g.Missed)
			t.all[why] += g.Count
			if g.False {
				t.wrong[why] += g.Count
			}
		}
	}
	list := func(sums map[function]*tally) (all []Blame) {
		for k, t := range sums {
			b := Blame{Function: k.name, Image: p.Images[k.image], Lost: t.lost, image: k.image}
			b.Cause, b.Samples = t.all.most()
			b.wrongCause, b.wrong = t.wrong.most()
			all = append(all, b)
		}
		slices.SortFunc(all, func(a, b Blame) int {
			return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Function, b.Function),
				cmp.Compare(a.Image.Path, b.Image.Path))
		})
		return all
	}
	return list(byFunction), list(byImage)
}

// tally adds up the samples of a Blame.
type tally struct {
	lost       uint64
	all, wrong byCause
}

// byCause are samples by their cause.
type byCause [numCauses]uint64

// most returns the most frequent cause, and the number of all samples.
func (n *byCause) most() (best Cause, all uint64) {
	for c, samples := range n {
		all += samples
		if samples > n[best] {
			best = Cause(c)
		}
	}
	return best, all
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
