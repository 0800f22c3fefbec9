package profile

import (
	"fmt"
	"strings"
	"time"

	"unspool/capture/symbols"
	"unspool/vmas"
)

// builder interns the parts of a Profile.
type builder struct {
	tree
	sym      *symbols.Symbolizer
	buildIDs map[string][]byte // of files, by name, for mmap records that have none

	functions bool // see Options.Functions

	threads  map[Thread]int32
	frames   *index[frameKey] // of p.Frames
	images   map[imageKey]int32
	opened   map[*symbols.Image]*image
	kernel   map[uint64]int32 // looked-up address → frame, which may be folded
	signal   []bool           // by frame: it is the code that signal handlers return to
	fixed    map[string]int32 // frames without a function: by name
	programs map[string]int32 // frames of processes: by name

	bounds   bounds
	room     rooms
	inKernel shares          // of the kernel's code
	names    map[string]name // of functions, by symbol
	known    int             // looked-up addresses that have a frame in maps
	folded   []uint64        // by image: frames of samples that stand for more than their address
	nameless uint64          // addresses whose functions have no name, as there was no room

	flattened uint64 // addresses whose inlined functions are not all shown
	cut       uint64 // samples for whose stacks there was no room

	time       uint64                // of the sample, in ns
	dumps      map[uint32]string     // jitdumps that are mapped, by process
	generated  map[uint32]*generated // by process
	generators map[uint32]Generator  // by process, also those that have ended
	reread     time.Duration         // how old names of generated code may be; 0 for any age
}

type frameKey struct {
	image int32
	name  string
	addr  uint64
	pc    uint64
}

// image is an image that samples lie in. vmas.File.Image points to it, so that one map lookup finds a frame.
type image struct {
	*symbols.Image
	of        *builder
	index     int32
	kind      Kind
	frames    map[uint64]int32 // offset in the file, twice, plus one for return addresses → frame, or folded
	functions map[uint64]int32 // address of a function → its frame, or folded, where frames have no PC
	shares    shares

	sampled []int32 // frames with a PC
}

func newBuilder(sym *symbols.Symbolizer) *builder {
	p := &Profile{}
	b := &builder{
		tree:    tree{p: p},
		sym:     sym,
		threads: make(map[Thread]int32),
		frames:  newIndex(0, func(i int32) frameKey { return keyOf(&p.Frames[i]) }),
		images:  make(map[imageKey]int32),
		opened:  make(map[*symbols.Image]*image),
		kernel:  make(map[uint64]int32),
		fixed:   make(map[string]int32),

		programs: make(map[string]int32),
		names:    make(map[string]name),

		dumps:      make(map[uint32]string),
		generated:  make(map[uint32]*generated),
		generators: make(map[uint32]Generator),
	}
	b.bound(usual)
	return b
}

// bound begins a profile within bounds.
func (b *builder) bound(within bounds) {
	b.bounds = within
	b.room = rooms{room{within.addresses}, room{within.functions}, room{within.names}}
	b.plantAnew()
}

// plantAnew begins the tree and its weights.
func (b *builder) plantAnew() {
	b.grow(0, 0)
	b.within(b.bounds.nodes)
	b.cut = 0
}

// others is the frame that stands for the rest of stacks for which there was no room, until nameOthers. Then its
// name is otherStacks.
const (
	others      int32 = -2
	otherStacks       = "[other stacks]"
)

// nameOthers gives it one of the profile, once all samples are in the tree.
func (b *builder) nameOthers() {
	if b.cut == 0 {
		return
	}
	frame := b.fixedFrame(otherStacks, Other)
	for i := range b.p.Nodes {
		if n := &b.p.Nodes[i]; n.Frame == others {
			n.Frame = frame
		}
	}
}

// imageKey is the key of an image. A file without a build ID is identified by the number of its inode,
// without the device: on overlayfs, a recording may have two device numbers for one file.
type imageKey struct {
	path, buildID string
	inode         uint64
}

func (b *builder) image(im Image) int32 {
	key := imageKey{im.Path, string(im.BuildID), im.File.Inode}
	i, ok := b.images[key]
	if !ok {
		i = int32(len(b.p.Images))
		b.p.Images = append(b.p.Images, im)
		b.images[key] = i
	}
	return i
}

// inMemory is the image of code that is in no file.
func (b *builder) inMemory(name string) int32 { return b.image(Image{Name: name, Path: name}) }

func keyOf(f *Frame) frameKey { return frameKey{f.Image, f.Name, f.Addr, f.PC} }

func (b *builder) frame(f Frame) int32 {
	key := keyOf(&f)
	i, ok := b.frames.find(key)
	if !ok {
		i = int32(len(b.p.Frames))
		b.p.Frames = append(b.p.Frames, f)
		b.signal = append(b.signal, f.Known && isSignalReturn(f.Name))
		b.frames.add(key)
	}
	return i
}

// isSignalReturn recognizes the code that signal handlers return to. No call leads there: the handler's
// return address is its first instruction, and the next address on the stack is that of the interrupted
// instruction.
func isSignalReturn(name string) bool {
	switch name {
	case symbols.SignalReturn, "restore_rt", "__restore", "__kernel_rt_sigreturn", "__default_rt_sa_restorer":
		return true
	}
	return false
}

// fixedFrame is a frame without a function.
func (b *builder) fixedFrame(name string, kind Kind) int32 {
	i, ok := b.fixed[name]
	if !ok {
		i = b.frame(Frame{Name: name, Image: b.inMemory(name), Kind: kind})
		b.fixed[name] = i
	}
	return i
}

// userFrame is the frame at an address of a process. A return address belongs to the call before it.
func (b *builder) userFrame(space *vmas.Space, addr uint64, returned bool) int32 {
	var m *vmas.Mapping
	if space != nil {
		m = space.Find(addr)
		if m == nil && returned {
			m = space.Find(addr - 1) // the call may be at the end of its mapping
		}
	}
	if m == nil {
		return b.fixedFrame("[unmapped]", Unmapped)
	}
	im, _ := m.File.Image.(*image)
	if im == nil || im.of != b {
		im = b.open(m.File)
		m.File.Image = im
	}
	if im.kind == JIT {
		if f, ok := b.generatedFrame(space, im, addr-one(returned)); ok {
			return f
		}
	}
	off := addr - m.Start + m.Offset
	key := off << 1
	if returned {
		key |= 1
	}
	f, ok := im.frames[key]
	if !ok {
		f = b.resolve(im, off, returned)
		b.looked()
		im.frames[key] = f
	}
	return b.unfolded(f)
}

// open returns the image of a mapping's file. Several files may have the same image.
func (b *builder) open(f *vmas.File) *image {
	id := f.BuildID.Bytes()
	if id == nil {
		id = b.buildIDs[f.Name()]
	}
	from := b.sym.Image(f.Name(), id, f.FileID)
	im := b.opened[from]
	if im == nil {
		recorded := Image{Name: from.Name(), Path: f.Name(), BuildID: from.BuildID}
		im = &image{Image: from, of: b, frames: make(map[uint64]int32), functions: make(map[uint64]int32)}
		switch f.Kind {
		case vmas.Anonymous, vmas.Heap, vmas.Stack, vmas.Shared, vmas.Memfd:
			if !from.IsInMemory() {
				im.kind = JIT
			}
		default:
			if id == nil {
				recorded.File = f.FileID
			}
		}
		im.index = b.image(recorded)
		b.opened[from] = im
	}
	return im
}

func (b *builder) resolve(im *image, off uint64, returned bool) int32 {
	off -= one(returned)
	pc, _ := im.Vaddr(off)
	fn, ok := im.Lookup(off)
	// The address itself may be the first one of the code that signal handlers return to.
	doubtful := returned && (!ok || pc+1-fn.Addr >= fn.Size || isSignalReturn(fn.Name))
	if f, known := im.functions[fn.Addr]; known && ok && !doubtful {
		return f
	}
	if doubtful {
		if at, found := im.Lookup(off + 1); found && isSignalReturn(at.Name) {
			fn, ok = at, true
			pc++
		}
	}
	if im.kind == JIT {
		pc = 0
	}
	f := Frame{Name: im.Label(), Image: im.index, Kind: im.kind, PC: pc}
	if ok {
		b.function(&f, fn, im.Image.Name(), &im.shares)
	}
	before := len(b.p.Frames)
	i := b.place(f, &im.shares, im.Label())
	if ok && b.functions && len(im.functions) < b.bounds.functions {
		im.functions[fn.Addr] = i
	}
	// Files with the same image share frames.
	if isNew := len(b.p.Frames) > before; isNew && b.p.Frames[before].PC != 0 {
		im.sampled = append(im.sampled, i)
	}
	return i
}

// function returns which function of an image a frame is in. Without room for names it stays one without a function.
func (b *builder) function(f *Frame, fn symbols.Func, image string, has *shares) {
	if n, ok := b.named(fn.Name, has); ok {
		f.Name, f.Symbol, f.Known, f.Addr = n.text, n.symbol, true, fn.Entry
		return
	}
	if fn.Name != "" {
		b.nameless++
	}
	if n, ok := b.named(fmt.Sprintf("[%s+%#x]", image, fn.Entry), has); ok {
		f.Name, f.Addr = n.text, fn.Entry
	}
}

// kernelFrame is the frame at an address of the kernel.
func (b *builder) kernelFrame(addr uint64, returned bool) int32 {
	addr -= one(returned)
	f, ok := b.kernel[addr]
	if !ok {
		fn, image, known := b.sym.Kernel(addr)
		at := Frame{Name: image, Image: b.inMemory(image), Kind: Kernel, PC: addr}
		if known {
			b.function(&at, fn, strings.Trim(image, "[]"), &b.inKernel)
		}
		f = b.place(at, &b.inKernel, image)
		b.looked()
		b.kernel[addr] = f
	}
	return b.unfolded(f)
}

func one(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}

func (b *builder) thread(t Thread) int32 {
	i, ok := b.threads[t]
	if !ok {
		i = int32(len(b.p.Threads))
		b.p.Threads = append(b.p.Threads, t)
		b.threads[t] = i
	}
	return i
}
