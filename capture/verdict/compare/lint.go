package compare

import (
	"cmp"
	"errors"
	"slices"

	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/dwarfcfi"
	"unspool/unwind"
)

// Flaw is what is wrong with the CFI of some code.
type Flaw uint8

const (
	NoTable     Flaw = iota // the image has none at all
	NoFDE                   // the image has CFI, but not for this address
	Contradicts             // CFI leads nowhere from here, and frame pointers go on
	numFlaws    = iota
)

var flawWords = [numFlaws]string{"no CFI in the whole image", "no CFI for this address",
	"CFI contradicts the frame pointers"}
var flawKeys = [numFlaws]string{"no_table", "no_fde", "contradicts"}

// String is the flaw in words.
func (f Flaw) String() string { return flawWords[f] }

// Key is the flaw's name in JSON.
func (f Flaw) Key() string { return flawKeys[f] }

// Finding is code whose CFI is flawed, and how often it was on a stack.
type Finding struct {
	Flaw     Flaw
	Image    profile.Image
	Package  string
	Function string // "" for NoTable
	Offset   int64  // of the address from the start of the function, which a part that lies elsewhere may precede
	Addr     uint64 // virtual address of the image
	Samples  uint64 // each once

	image int32 // index in the profiles' Images
}

// Lint finds code on the stacks that CFI does not cover, or where the two stacks contradict each other; the
// most sampled first.
func (c *Comparison) Lint(sym *symbols.Symbolizer) []Finding {
	p := c.DWARF
	counts := onStacks(p, nil)
	images := make(map[int32]*symbols.Image)
	type key struct {
		flaw  Flaw
		image int32
		addr  uint64
	}
	found := make(map[key]*Finding)
	note := func(flaw Flaw, f *profile.Frame, n uint64) {
		k := key{flaw, f.Image, f.PC}
		if flaw == NoTable {
			k.addr = 0
		}
		at := found[k]
		if at == nil {
			at = &Finding{Flaw: flaw, Image: p.Images[f.Image], Addr: k.addr, image: f.Image}
			if flaw != NoTable {
				at.Function = f.Name
				if f.Addr != 0 {
					at.Offset = int64(f.PC - f.Addr)
				}
			}
			found[k] = at
		}
		at.Samples += n
	}
	whole := make(map[int32]int32) // the first frame of each image without a table, by image
	same := make([]int32, len(p.Frames))
	for i, n := range counts {
		same[i] = int32(i)
		f := &p.Frames[i]
		im := &p.Images[f.Image]
		if n == 0 || f.Kind != profile.User || f.PC == 0 || !symbols.IsFile(im.Path) {
			continue
		}
		from, ok := images[f.Image]
		if !ok {
			from = sym.Image(im.Path, im.BuildID, im.File)
			images[f.Image] = from
		}
		if from.LacksCFI() {
			if _, ok := whole[f.Image]; !ok {
				whole[f.Image] = int32(i)
			}
			same[i] = whole[f.Image]
		} else if lacksFDE(from.CFI(), f.PC) {
			note(NoFDE, f, n)
		}
	}
	if len(whole) > 0 {
		counts = onStacks(p, same) // a stack with several frames of such an image counts once
		for _, i := range whole {
			note(NoTable, &p.Frames[i], counts[i])
		}
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		if g.Class != DWARFStops || g.End == profile.Ended(unwind.NoCFI) {
			continue
		}
		// The outermost frame that CFI reached: its rule led nowhere.
		outer := g.DWARF
		for n := g.DWARF; n > 0; n = p.Nodes[n].Parent {
			outer = n
		}
		if f := &p.Frames[p.Nodes[outer].Frame]; f.PC != 0 && f.Kind == profile.User {
			note(Contradicts, f, g.Count)
		}
	}
	var all []Finding
	for _, f := range found {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Image.Path, b.Image.Path),
			cmp.Compare(a.Addr, b.Addr))
	})
	return all
}

// lacksFDE reports whether there is an unwind table, which does not cover an address.
func lacksFDE(cfi *dwarfcfi.Table, pc uint64) bool {
	if cfi == nil {
		return false
	}
	_, err := cfi.FDE(pc)
	return errors.Is(err, dwarfcfi.ErrNoFDE)
}
