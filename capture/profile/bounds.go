package profile

import (
	"fmt"

	"unspool/capture/output/human"
)

// bounds are how much of a recording is told apart. Who is recorded, or makes a recording, decides how many
// addresses, functions and stacks it has: a file of 96 MB can have 12 million of each.
type bounds struct {
	addresses int // frames with a PC, which have a source line and inlined functions
	unnamed   int // of these, addresses of one image in no known function
	functions int // frames without a PC
	names     int // bytes of the names of functions
	nodes     int
	looked    int // addresses whose frames are found without looking them up again

	inlined     int // frames of inlined functions
	withInlined int // nodes with those of inlined functions
}

// MostNodes is how many nodes stacks have at most.
const MostNodes = 1 << 22

// usual are the bounds of a recording. Recordings of 26,000 samples of compilers and tests have some 17,000
// addresses and 45,000 nodes; more samples add fewer.
var usual = bounds{
	addresses: 1 << 20, unnamed: 1 << 16, functions: 1 << 20, names: 128 << 20, nodes: MostNodes, looked: 1 << 20,
	inlined: 1 << 20, withInlined: 1 << 23,
}

// room is what is left of a bound that several share, such as processes. One can have three times as much as it
// leaves to the others: three quarters if it is alone in wanting much, and whoever comes later always has some.
type room struct{ left int }

// take takes n for who has some already.
func (r *room) take(has *int, n int) bool {
	if n > r.left || *has+n > 3*(r.left-n) {
		return false
	}
	r.left -= n
	*has += n
	return true
}

// rooms are what is left of the bounds on frames.
type rooms struct{ addresses, functions, names room }

// shares are what an image has of the rooms.
type shares struct {
	addresses, unnamed, functions, names int

	oneUnnamed bool // all code without a known function has the image's frame without a PC
}

// folded is the complement of a frame that stands for more than what is looked up, where there is no room to
// tell it apart.
func folded(frame int32) int32 { return ^frame }

// unfolded is a frame that was looked up. Those that stand for more are counted.
func (b *builder) unfolded(frame int32) int32 {
	if frame >= 0 {
		return frame
	}
	image := b.p.Frames[^frame].Image
	for int(image) >= len(b.folded) {
		b.folded = append(b.folded, 0)
	}
	b.folded[image]++
	return ^frame
}

// place returns a frame of an image's code: that of f, or where there is no room for its address the one of its
// function, or of all the image's code, which is folded. label is the name of that.
func (b *builder) place(f Frame, has *shares, label string) int32 {
	if b.functions {
		f.PC = 0
	}
	unnamed := !f.Known && f.Addr == 0
	if i, ok := b.frames.find(keyOf(&f)); ok && !(unnamed && has.oneUnnamed && f.PC != 0) {
		return i
	}
	if f.PC != 0 {
		if b.hasAddress(has, unnamed) {
			return b.frame(f)
		}
		f.PC = 0
		if i, ok := b.frames.find(keyOf(&f)); ok {
			return folded(i)
		}
		if unnamed || b.room.functions.take(&has.functions, 1) {
			return folded(b.frame(f))
		}
	} else if unnamed || b.room.functions.take(&has.functions, 1) {
		return b.frame(f)
	}
	return folded(b.frame(Frame{Name: label, Image: f.Image, Kind: f.Kind}))
}

// hasAddress reports whether there is room for a frame with a PC. Once there are too many addresses without a
// function, all of the image are one: stacks that differ in these alone are one then.
func (b *builder) hasAddress(has *shares, unnamed bool) bool {
	if !unnamed {
		return b.room.addresses.take(&has.addresses, 1)
	}
	if has.oneUnnamed {
		return false
	}
	if has.unnamed++; has.unnamed > b.bounds.unnamed || !b.room.addresses.take(&has.addresses, 1) {
		has.oneUnnamed = true
		b.forgetFrames()
		return false
	}
	return true
}

// named returns the name and the symbol of a function, each once in memory; ok is false if there is no room for
// them, or no name.
func (b *builder) named(symbol string, has *shares) (n name, ok bool) {
	if symbol == "" {
		return n, false
	}
	n, ok = b.names[symbol]
	if ok {
		return n, true
	}
	const inMap = 64 // bytes, about, of an entry
	n = name{b.sym.Name(symbol), symbol}
	if !b.room.names.take(&has.names, len(n.text)+len(n.symbol)+inMap) {
		return name{}, false
	}
	b.names[symbol] = n
	return n, true
}

// name is a function's name, as in Frame.
type name struct{ text, symbol string }

// looked notes that the frame of one more address is known, and forgets those of all if they are too many.
func (b *builder) looked() {
	if b.known++; b.known > b.bounds.looked {
		b.forgetFrames()
	}
}

// forgetFrames forgets which addresses have which frames, so that they are looked up again.
func (b *builder) forgetFrames() {
	b.known = 0
	for _, im := range b.opened {
		clear(im.frames)
	}
	clear(b.kernel)
}

// overBounds says in words what of the recording is not told apart.
func (b *builder) overBounds() (said []string) {
	say := func(n uint64, format string, args ...any) {
		if n > 0 {
			said = append(said, fmt.Sprintf(format, args...))
		}
	}
	var frames uint64
	most := 0 // the image that has most of them
	for image, n := range b.folded {
		if frames += n; n > b.folded[most] {
			most = image
		}
	}
	if frames > 0 {
		say(frames, "%s are shown by function or by file, without address and line, as the recording has too many "+
			"different addresses: most are of %s", human.Plural(frames, "frame"), b.p.Images[most].Path)
	}
	say(b.flattened, "of %s, inlined functions are left out, as there are too many",
		human.Plural(b.flattened, "address"))
	say(b.nameless, "functions at %s have no name, as those of others take %d MiB", human.Plural(b.nameless, "address"),
		b.bounds.names>>20)
	say(b.cut, "the stacks of %s end early, in %s, as the recording has too many different ones: %s calls are told "+
		"apart, three quarters of these at most of one process", human.Plural(b.cut, "sample"), otherStacks,
		human.Number(uint64(b.bounds.nodes)))
	return said
}
