package check

import (
	"fmt"
	"iter"
	"strings"

	"unspool/capture/symbols"
	"unspool/dwarfcfi"
	"unspool/unwind/asm"
	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A binary is an image with what is known of its functions.
type binary struct {
	*symbols.Image
	exports map[string][]symbols.Export // nil before they are asked for
	exits   map[uint64]exits            // of functions, by their first address
	// padded has the ends of functions that no table has, by their first address; 0 where that is unknown.
	padded map[uint64]uint64
}

// exits are the ways by which a function is left without a call.
type exits struct {
	targets  []uint64
	open     bool // and there may be others
	indirect bool // a jump, if only by a table as it seems, goes where the code does not say
}

// maxExits bounds for how many functions of an image exits are kept.
const maxExits = 1 << 16

// A spot is a place in an image.
type spot struct {
	bin  *binary
	code *asm.Code // nil where the code cannot be read; valid until the next record
	addr uint64    // a virtual address of the image
	long bool      // the code is x86-64
	lost bool      // a file is mapped there that is not at hand
}

func (s *spot) readable() bool { return s.code != nil }

// A function is the code around an address as far as anybody knows where it begins and ends.
type function struct {
	name   string
	entry  uint64    // where it begins, by the symbol: elsewhere if it is a part of another function
	parts  [2]extent // by the unwind table, and by the symbol
	signal bool      // it is what signal handlers return to
}

type extent struct{ lo, hi uint64 }

func (e extent) holds(addr uint64) bool { return addr >= e.lo && addr < e.hi }

func (f *function) holds(addr uint64) bool { return f.parts[0].holds(addr) || f.parts[1].holds(addr) }

func (f *function) known() bool { return f.parts != [2]extent{} }

// extent is all of the function.
func (f *function) extent() extent {
	a, b := f.parts[0], f.parts[1]
	switch {
	case a == extent{}:
		return b
	case b == extent{}:
		return a
	}
	return extent{min(a.lo, b.lo), max(a.hi, b.hi)}
}

// function gives the function at a virtual address of the image.
func (b *binary) function(addr uint64) (f function) {
	if t := b.Table(); t != nil {
		if s, ok := t.Lookup(addr); ok {
			f.name, f.entry = s.Name, s.Entry
			f.parts[1] = extent{s.Addr, s.Addr + s.Size}
		}
	}
	if cfi := b.CFI(); cfi != nil {
		if d, err := cfi.FDE(addr); err == nil && d.Covers(addr) {
			f.parts[0] = extent{d.Start, d.End}
			f.signal = d.CIE.Signal
		}
	}
	return f
}

// stub is the name of the function to which the stub of a procedure linkage table jumps, if f is one.
func (f *function) stub() (name string, ok bool) { return strings.CutSuffix(f.name, "@plt") }

// exported gives the functions that the image defines by a name. Reading all of them costs the budget one
// each.
func (b *binary) exported(name string, budget *uint64) []symbols.Export {
	if b.exports == nil && *budget > 0 {
		b.exports = b.Exports()
		*budget -= min(*budget, uint64(len(b.exports)))
	}
	return b.exports[name]
}

// padding gives the function that begins at addr by the padding behind it, for images that lack unwind tables
// and symbols, as browsers do. Looking for it costs its length of the budget.
func (b *binary) padding(code *asm.Code, addr uint64, budget *uint64) (f function) {
	const span = 64 << 10
	end, known := b.padded[addr]
	if !known {
		if *budget < span || len(b.padded) >= maxExits {
			return f
		}
		end, known = code.PaddedEnd(addr, span)
		*budget -= span
		if known {
			*budget += span - min(span, end-addr)
		}
		b.padded[addr] = end
	}
	if end != 0 {
		f.parts[0] = extent{addr, end}
	}
	return f
}

// leaves gives the ways out of a function that do not call. Reading it costs its length of the budget.
func (b *binary) leaves(code *asm.Code, f *function, budget *uint64) exits {
	all := f.extent()
	if known, ok := b.exits[all.lo]; ok {
		return known
	}
	if all.hi-all.lo > *budget {
		return exits{open: true, indirect: true}
	}
	*budget -= all.hi - all.lo
	var out exits
	jumps, known := code.Exits(all.lo, all.hi)
	out.open = !known
	for _, j := range jumps {
		if j.Indirect {
			out.indirect = true
			out.open = out.open || b.mayLeave(j.At)
		} else {
			out.targets = append(out.targets, j.Target)
		}
	}
	if len(b.exits) >= maxExits {
		clear(b.exits)
	}
	b.exits[all.lo] = out
	return out
}

// mayLeave reports whether an indirect jump may be a tail call: whether nothing but the return address is on the
// stack. Otherwise it is a jump within the function, by a table.
func (b *binary) mayLeave(addr uint64) bool {
	const sp, word = 7, 8
	cfi := b.CFI()
	if cfi == nil {
		return true
	}
	var row dwarfcfi.Row
	if cfi.Row(addr, &row) != nil || row.CFA.Kind != dwarfcfi.CFARegister {
		return true
	}
	return row.CFA.Reg == sp && row.CFA.Offset == word
}

// images finds what is mapped.
type images struct {
	store    *image.Store
	symbols  *symbols.Symbolizer
	binaries map[*symbols.Image]*binary

	identified bool // mappings are recorded with build IDs

	// Budgets: bytes of code that may still be read for jumps, names of functions, and steps of searches.
	code, names, steps uint64

	// Where the images of an address space are that was asked about last.
	space      *vmas.Space
	generation uint32
	starts     []uint64
}

// What all images of a recording together may cost: some seconds, and some hundred megabytes.
const (
	codeBudget  = 512 << 20
	namesBudget = 4 << 20
	stepsBudget = 1 << 26
)

// step takes one step of a search, if there are any left.
func (i *images) step() bool {
	if i.steps == 0 {
		return false
	}
	i.steps--
	return true
}

// at finds what is at an address of a process. The spot has no image where no file is mapped there.
func (i *images) at(space *vmas.Space, pc uint64) (s spot) {
	m := space.Find(pc)
	if m == nil || !i.step() || m.Copied != nil || !m.File.Kind.HasImage() {
		return s
	}
	im := i.store.Lookup(space.PID, m)
	if im == nil {
		return s
	}
	if im.Parse() != nil || !i.known(m.File, im) {
		s.lost = true
		return s
	}
	s.bin = i.binary(m.File, im)
	if code, addr := im.CodeAt(m, pc); code != nil {
		s.code, s.addr, s.long = code, addr, im.Arch() == rule.AMD64
	}
	return s
}

// known reports whether an image can be what was mapped: not if it has a build ID that the recording
// lacks, though its mappings have theirs. Then the file was written to during the recording.
func (i *images) known(f *vmas.File, im *image.Image) bool {
	if i.store.Identifies(f) {
		i.identified = i.identified || !f.BuildID.IsZero()
		return true
	}
	return !i.identified || im.BuildID == nil || f.Kind != vmas.Regular
}

// binary gives what is known of an image's functions.
func (i *images) binary(f *vmas.File, im *image.Image) *binary {
	from := i.symbols.Image(f.Name(), im.BuildID, f.FileID)
	b := i.binaries[from]
	if b == nil {
		b = &binary{Image: from, exits: make(map[uint64]exits), padded: make(map[uint64]uint64)}
		i.binaries[from] = b
	}
	return b
}

// mapped gives a spot in an image that the process maps, with nothing but the image and its code.
func (i *images) mapped(space *vmas.Space, bin *binary) spot {
	for b, in := range i.all(space) {
		if b == bin {
			return in
		}
	}
	return spot{}
}

// all gives the images that a process maps as code, each once.
func (i *images) all(space *vmas.Space) iter.Seq2[*binary, spot] {
	if (i.space != space || i.generation != space.Generation()) && i.steps > 0 {
		i.find(space)
	}
	return func(yield func(*binary, spot) bool) {
		for _, start := range i.starts {
			if s := i.at(space, start); s.bin != nil && s.readable() && !yield(s.bin, s) {
				return
			}
		}
	}
}

// find notes where the images of an address space are.
func (i *images) find(space *vmas.Space) {
	i.space, i.generation, i.starts = space, space.Generation(), i.starts[:0]
	seen := make(map[*binary]bool)
	for m := range space.Mappings() {
		if s := i.at(space, m.Start); s.readable() && !seen[s.bin] {
			seen[s.bin] = true
			i.starts = append(i.starts, m.Start)
		}
	}
}

// place returns where an address of the image is, in words.
func (b *binary) place(addr uint64, f *function) string {
	if !f.known() {
		return fmt.Sprintf("%s+%#x", b.Name(), addr)
	}
	name := f.name
	if name == "" {
		name = fmt.Sprintf("[%s+%#x]", b.Name(), f.extent().lo)
	}
	return fmt.Sprintf("%s+%#x (%s)", name, addr-f.extent().lo, b.Name())
}

func (s *spot) place(f *function) string {
	switch {
	case s.bin == nil:
		return "code of no file"
	case !s.readable():
		return s.bin.Name()
	}
	return s.bin.place(s.addr, f)
}
