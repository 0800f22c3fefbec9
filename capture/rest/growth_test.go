package rest

import (
	"encoding/binary"
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
var forgedGrowth = Growth{Return: 0x4711, M: 72, CurG: 200, Sched: 104}

func address(word *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(word))) }

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
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newForged(at)
			c.change(f)
			regs := binary.LittleEndian.AppendUint64(nil, address(&f.scheduler[0]))
			s := perfring.Sample{PID: uint32(os.Getpid()), RegsMask: 1 << r14, Regs: regs}
			got, ok := forgedGrowth.goroutine(&s, at)
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
	if _, ok := forgedGrowth.goroutine(&s, at); ok || forgedGrowth.endOfGoroutine(&s, at) != 0 {
		t.Error("without registers")
	}
}

// TestEndOfGoroutine asks where the stack of the goroutine ends that R14 tells of.
func TestEndOfGoroutine(t *testing.T) {
	f := newForged(0)
	low, high := f.g[0], f.g[1]
	regs := binary.LittleEndian.AppendUint64(nil, address(&f.g[0]))
	s := perfring.Sample{PID: uint32(os.Getpid()), RegsMask: 1 << r14, Regs: regs}
	for _, c := range []struct{ sp, want uint64 }{
		{low, high}, {high - 8, high}, {high, 0}, {low - 8, 0}, {0, 0},
	} {
		if got := forgedGrowth.endOfGoroutine(&s, c.sp); got != c.want {
			t.Errorf("SP at %+d: %#x, want %#x", int64(c.sp-low), got, c.want)
		}
		if got := (&Growth{}).endOfGoroutine(&s, c.sp); got != 0 {
			t.Errorf("without Go: %#x", got)
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
		if got := (&Growth{}).at(&s, base); got != 0 {
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
	isNew := ours.Ends(7, 0x9000)
	ours.Skips(7, 0x3000, 0x5000)
	if k, want := theirs.shape(7), (shape{end: 0x9000, large: 0x3000, above: 0x5000}); !isNew || k != want {
		t.Errorf("%+v, want %+v", k, want)
	}
	ours.Grows(7, forgedGrowth)
	if k := theirs.shape(7); k.growth != forgedGrowth {
		t.Errorf("%+v", k)
	}
	if k, want := theirs.shape(8), (shape{growth: forgedGrowth}); k != want {
		t.Errorf("of a new thread: %+v, want %+v", k, want)
	}
	if ours.Ends(7, 0xa000) || !ours.Ends(8, 0) || !ours.Ends(7+uint32(maxThreads), 0x8000) {
		t.Error("which threads are new")
	}
	if k := theirs.shape(8); k != (shape{}) {
		t.Errorf("of a thread that runs no Go: %+v", k)
	}
	if k, want := theirs.shape(7+uint32(maxThreads)), (shape{end: 0x8000}); k != want {
		t.Errorf("in the place of another thread: %+v, want %+v", k, want)
	}
	if k := theirs.shape(7); k.end != 0 {
		t.Errorf("of a thread whose place was taken: %+v", k)
	}
}
