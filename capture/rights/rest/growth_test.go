package rest

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"unspool/perfring"
)

// A forged memory is that of this process, made to look as that of Go's runtime when a goroutine gets a
// larger stack. Of all structures, fields are at multiples of 8 below 512.
type forged struct {
	scheduler, m, g [64]uint64
	stack           [32]uint64
}

// forgedGrowth has other offsets than any version of Go.
var forgedGrowth = GrowthOffsets{Return: 0x4711, M: 72, CurG: 200, Sched: 104}

func address(word *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(word))) }

// own is the memory of this process.
func own(t *testing.T) *memory {
	t.Helper()
	opened, err := linux{}.OpenMemory(uint32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	return &memory{ProcessMemory: opened}
}

// newForged is one that is right, for a morestack whose SP is at.
func newForged(at uint64) *forged {
	f := new(forged)
	set := func(of *[64]uint64, offset uint16, v uint64) { of[offset/8] = v }
	set(&f.scheduler, forgedGrowth.Sched, at)
	set(&f.scheduler, forgedGrowth.M, address(&f.m[0]))
	set(&f.m, forgedGrowth.CurG, address(&f.g[0]))
	set(&f.g, 0, address(&f.stack[0]))
	set(&f.g, 8, address(&f.stack[31]))
	set(&f.g, forgedGrowth.Sched, address(&f.stack[10]))
	set(&f.g, forgedGrowth.Sched+8, 0x1234)
	set(&f.g, forgedGrowth.Sched+16, address(&f.g[0]))
	return f
}

// TestGoroutineIsFound follows pointers from R14 to the stack of a goroutine, and gives up where they are not
// what they are in a runtime of Go.
func TestGoroutineIsFound(t *testing.T) {
	const at = 0x7000
	sched := forgedGrowth.Sched / 8
	for _, c := range []struct {
		name   string
		change func(f *forged)
		ok     bool
	}{
		{"it is", func(*forged) {}, true},
		{"all of its stack is free", func(f *forged) { f.g[sched] = address(&f.stack[31]) }, true},
		{"there is none", func(f *forged) { f.m[forgedGrowth.CurG/8] = 0 }, true},
		{"R14 has something else", func(f *forged) { f.scheduler[sched] = at + 8 }, false},
		{"no m", func(f *forged) { f.scheduler[forgedGrowth.M/8] = 0 }, false},
		{"no memory", func(f *forged) { f.m[forgedGrowth.CurG/8] = 1 << 62 }, false},
		{"no g", func(f *forged) { f.g[sched+2]++ }, false},
		{"SP is not aligned", func(f *forged) { f.g[sched]++ }, false},
		{"SP is below", func(f *forged) { f.g[sched] = f.g[0] }, false},
		{"SP is above", func(f *forged) { f.g[sched] = f.g[1] + 8 }, false},
		{"it wraps", func(f *forged) { f.g[0], f.g[sched], f.g[1] = ^uint64(7), 0, ^uint64(0) }, false},
		{"it is in the kernel", func(f *forged) { f.g[1] = 1 << 63 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newForged(at)
			c.change(f)
			regs := binary.LittleEndian.AppendUint64(nil, address(&f.scheduler[0]))
			s := perfring.Sample{PID: uint32(os.Getpid()), RegsMask: 1 << r14, Regs: regs}
			got, ok := forgedGrowth.goroutine(own(t), &s, at)
			if ok != c.ok {
				t.Fatalf("%+v, %v", got, ok)
			}
			want := goroutineStack{g: f.m[forgedGrowth.CurG/8]}
			if want.g != 0 {
				want.sp, want.high, want.returns = f.g[sched], f.g[1], f.g[sched+1]
			}
			if ok && got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			runtime.KeepAlive(f)
		})
	}
	s := perfring.Sample{PID: uint32(os.Getpid())}
	_, ok := forgedGrowth.goroutine(own(t), &s, at)
	if _, isGo := endOfGoroutine(own(t), &s, at); ok || isGo {
		t.Error("without registers")
	}
}

// TestEndOfGoroutine asks where the stack of the goroutine ends that R14 tells of.
func TestEndOfGoroutine(t *testing.T) {
	f := newForged(0)
	low, high := f.g[0], f.g[1]
	regs := binary.LittleEndian.AppendUint64(nil, address(&f.g[0]))
	s := perfring.Sample{PID: uint32(os.Getpid()), RegsMask: 1 << r14, Regs: regs}
	for _, c := range []struct {
		sp, high, want uint64
		ok             bool
	}{
		{low, high, high, true},
		{high - 8, high, high, true},
		{high, high, 0, false},
		{low - 8, high, 0, false},
		{0, high, 0, false},
		{low, low + farthest, low + farthest, true},
		{low, low + farthest + 8, 0, true},
		{low, 1 << 63, 0, false},
	} {
		f.g[1] = c.high
		if got, ok := endOfGoroutine(own(t), &s, c.sp); got != c.want || ok != c.ok {
			t.Errorf("SP at %+d of %d bytes: %#x, %v, want %#x", int64(c.sp-low), c.high-low, got, ok, c.want)
		}
	}
	runtime.KeepAlive(f)
}

// TestMorestackIsSeen looks for the return address in morestack on stacks.
func TestMorestackIsSeen(t *testing.T) {
	const base = 0x1000
	stack := make([]byte, 2*mostGrowing+3)
	for _, c := range []struct {
		at, size int
		found    bool
	}{
		{0, 8, true},
		{0, 7, false},
		{64, 128, true},
		{64, 64, false},
		{60, 128, false},
		{mostGrowing - 8, len(stack), true},
		{mostGrowing, len(stack), false},
		{0, 0, false},
	} {
		clear(stack)
		binary.LittleEndian.PutUint64(stack[c.at:], forgedGrowth.Return)
		s := perfring.Sample{Stack: stack, DynSize: uint64(c.size)}
		want := uint64(0)
		if c.found {
			want = base + uint64(c.at) + 8
		}
		if got := forgedGrowth.at(&s, base); got != want {
			t.Errorf("at %d of %d bytes: %#x, want %#x", c.at, c.size, got, want)
		}
		if got := (&GrowthOffsets{}).at(&s, base); got != 0 {
			t.Errorf("without Go: %#x", got)
		}
	}
}

// TestShapes gives shapes of threads' stacks to a reader, by TID.
func TestShapes(t *testing.T) {
	theirs, ours := pair(t, 64<<10)
	if k := theirs.shape(7); k != (shape{}) {
		t.Errorf("nothing is known: %+v", k)
	}
	ours.Ends(7, 0x9000)
	ours.Skips(7, 0x3000, 0x5000)
	if k, want := theirs.shape(7), (shape{end: 0x9000, large: 0x3000, above: 0x5000, isKnown: true}); k != want {
		t.Errorf("%+v, want %+v", k, want)
	}
	if ours.RunsGo(7) {
		t.Error("it runs no Go")
	}
	ours.Grows(7, forgedGrowth)
	if k := theirs.shape(7); k.growth != forgedGrowth || k.end != 0x9000 || !ours.RunsGo(7) {
		t.Errorf("%+v", k)
	}
	if k, want := theirs.shape(8), (shape{growth: forgedGrowth}); k != want || ours.RunsGo(8) {
		t.Errorf("of a new thread: %+v, want %+v", k, want)
	}
	ours.Ends(7, 0xa000)
	if k := theirs.shape(7); k.growth != forgedGrowth || k.end != 0xa000 {
		t.Errorf("%+v", k)
	}
	ours.Ends(8, 0)
	if k := theirs.shape(8); k != (shape{isKnown: true}) {
		t.Errorf("of a thread that runs no Go: %+v", k)
	}
	ours.Grows(7+uint32(maxThreads), forgedGrowth)
	if k, want := theirs.shape(7+uint32(maxThreads)), (shape{growth: forgedGrowth, isKnown: true}); k != want {
		t.Errorf("in the place of another thread: %+v, want %+v", k, want)
	}
	if k := theirs.shape(7); k.isKnown || k.end != 0 {
		t.Errorf("of a thread whose place was taken: %+v", k)
	}
}

// TestWhatIsFound has what is read of stacks with a morestack, and without.
func TestWhatIsFound(t *testing.T) {
	const at, copyEnd = 0x7000, 0x8000
	f := newForged(at)
	regs := binary.LittleEndian.AppendUint64(nil, address(&f.scheduler[0]))
	s := perfring.Sample{PID: uint32(os.Getpid()), RegsMask: 1 << r14, Regs: regs}
	growing := wanted{above: address(&f.stack[9]), more: f.g[1] - address(&f.stack[9])}
	far := shape{end: copyEnd + 4096, growth: forgedGrowth, isKnown: true}
	within := shape{end: copyEnd, growth: forgedGrowth, isKnown: true}
	for _, c := range []struct {
		name      string
		known     shape
		morestack uint64
		curg      uint64
		want      wanted
		g         uint64
		returns   uint64
	}{
		{"a goroutine grows", far, at, address(&f.g[0]), growing, address(&f.g[0]), 0x1234},
		{"its scheduler's stack is copied", within, at, address(&f.g[0]), growing, address(&f.g[0]), 0x1234},
		{"there is none any more", within, at, 0, wanted{above: at - 8, more: 8}, 0, 0},
		{"it is none", far, at + 8, address(&f.g[0]), wanted{behind: 4096 + aboveRoot}, 0, 0},
		{"it is none, and all is copied", within, at + 8, address(&f.g[0]), wanted{}, 0, 0},
		{"no morestack", far, 0, address(&f.g[0]), wanted{behind: 4096 + aboveRoot}, 0, 0},
	} {
		f.m[forgedGrowth.CurG/8] = c.curg
		h := head{start: copyEnd}
		w, of := find(own(t), &s, &c.known, c.morestack, &h)
		isFound := c.morestack == at
		if w != c.want || isFound && of.returns != c.returns || h.g != c.g || h.above != w.above ||
			(h.morestack == at) != isFound {
			t.Errorf("%s: %+v, %+v, %+v", c.name, w, of, h)
		}
	}
	runtime.KeepAlive(f)
}

// TestGrowthIsHandedOver puts a stack of a goroutine into the memory that two processes share.
func TestGrowthIsHandedOver(t *testing.T) {
	theirs, ours := pair(t, 64<<10)
	clear(theirs.room(16))
	theirs.put(head{more: 16, tid: 7, time: 3, start: 64, above: 0xc000, morestack: 0x7000, g: 0x4000})
	got := ours.Find(7, 3, 64)
	if len(got.Memory) != 0 || len(got.Above) != 16 || got.At != 0xc000 || got.Morestack != 0x7000 ||
		got.G != 0x4000 {
		t.Errorf("%+v", got)
	}
}

// TestShapesAreDistrusted has a reader plan by what somebody else may have written.
func TestShapesAreDistrusted(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	value := func() uint64 {
		return []uint64{0, random.Uint64() >> random.IntN(64), 1<<47 - random.Uint64N(1<<24)}[random.IntN(3)]
	}
	for range 100_000 {
		k := shape{end: value(), large: value(), above: value()}
		w := k.wanted(value(), value())
		if w.behind > mostOfAll || w.more > mostRead {
			t.Fatalf("%+v: %+v", k, w)
		}
	}
}
