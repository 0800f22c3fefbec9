package unwind

import (
	"encoding/binary"
	"slices"
	"testing"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/unwind/image"
	"unspool/unwind/rule"
)

// TestFollowFramePointers walks stacks whose words are given from the sampled SP, 0x10000, upwards.
func TestFollowFramePointers(t *testing.T) {
	const sp, pc = 0x10_0000, 0x40_0000
	at := func(word uint64) uint64 { return sp + 8*word }
	for _, c := range []struct {
		name  string
		words []uint64
		bp    uint64
		asked int // words that were to be copied; 0: as many as there are
		room  int // 0: 127
		want  []uint64
		end   FrameWalkEnd
	}{
		{"to the root", []uint64{at(2), 1, at(4), 2, 0, 3}, at(0), 0, 0, []uint64{pc, 1, 2, 3}, NoFrame},
		{"no frame pointer at all", []uint64{7, 7}, 0, 0, 0, []uint64{pc}, NoFrame},
		{"a small number in BP", []uint64{7, 7}, 1<<16 - 1, 0, 0, []uint64{pc}, NoFrame},
		{"an address of the kernel", []uint64{7, 7}, ^uint64(0), 0, 0, []uint64{pc}, NoFrame},
		{"the last address of the kernel's side", []uint64{7, 7}, ^uint64(7), 0, 0, []uint64{pc}, NoFrame},
		{"the end of user memory", []uint64{7, 7}, 1<<47 - 4096 - 15, 0, 0, []uint64{pc}, NoFrame},
		{"just before that", []uint64{7, 7}, 1<<47 - 4096 - 16, 0, 0, []uint64{pc}, OffStack},
		{"below SP", []uint64{7, 7}, sp - 8, 0, 0, []uint64{pc}, OffStack},
		{"the heap", []uint64{at(2), 1, 0x7_0000, 2}, at(0), 0, 0, []uint64{pc, 1, 2}, OffStack},
		{"far above", []uint64{at(2), 1, sp + 8<<20 + 1, 2}, at(0), 0, 0, []uint64{pc, 1, 2}, OffStack},
		{"as far as stacks go", []uint64{at(2), 1, sp + 8<<20, 2}, at(0), 0, 0, []uint64{pc, 1, 2}, CopyEnds},
		{"beyond the copy", []uint64{at(2), 1, at(4), 2}, at(0), 0, 0, []uint64{pc, 1, 2}, CopyEnds},
		{"half a frame in the copy", []uint64{at(2), 1, at(4)}, at(0), 0, 0, []uint64{pc, 1}, CopyEnds},
		{"beyond what the kernel could copy", []uint64{at(2), 1, at(4), 2}, at(0), 5, 0, []uint64{pc, 1, 2},
			NoFrame},
		{"in the page that it could not copy", []uint64{at(511), 1}, at(0), 500, 0, []uint64{pc, 1}, NoFrame},
		{"beyond the page that it could not copy", []uint64{at(512), 1}, at(0), 600, 0, []uint64{pc, 1}, CopyEnds},
		{"half a frame of what it could copy", []uint64{at(2), 1, at(4)}, at(0), 4, 0, []uint64{pc, 1}, NoFrame},
		{"nothing copied", nil, at(0), 10, 0, []uint64{pc}, NoFrame},
		{"to itself", []uint64{at(0), 1}, at(0), 0, 5, []uint64{pc, 1, 1, 1, 1}, KernelLimit},
		{"in a circle", []uint64{at(2), 1, at(0), 2}, at(0), 0, 6, []uint64{pc, 1, 2, 1, 2, 1}, KernelLimit},
		{"downwards", []uint64{0, 1, at(0), 2}, at(2), 0, 0, []uint64{pc, 2, 1}, NoFrame},
		{"as many as there is room for", []uint64{at(2), 1, 0, 2}, at(0), 0, 3, []uint64{pc, 1, 2}, NoFrame},
		{"one more", []uint64{at(2), 1, at(4), 2, 0, 3}, at(0), 0, 3, []uint64{pc, 1, 2}, KernelLimit},
		{"room for the sampled PC", []uint64{at(2), 1, 0, 2}, at(0), 0, 1, []uint64{pc}, KernelLimit},
		{"no room", []uint64{at(2), 1, 0, 2}, at(0), 0, -1, []uint64{}, KernelLimit},
		{"a return address of 0", []uint64{at(2), 0, 0, 0}, at(0), 0, 0, []uint64{pc, 0, 0}, NoFrame},
		{"words that are no code", []uint64{at(2), 0xdead, 0, ^uint64(0)}, at(0), 0, 0,
			[]uint64{pc, 0xdead, ^uint64(0)}, NoFrame},
		{"misaligned", []uint64{0, 5 << 32, 0}, at(1) - 4, 0, 0, []uint64{pc, 5}, NoFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			stack := Stack{Base: sp, Data: bytesOf(8, c.words...), Asked: 8 * uint64(max(c.asked, len(c.words)))}
			if c.room == 0 {
				c.room = 127
			}
			var regs Regs
			regs.set(rule.IP, pc)
			regs.set(rule.BP, c.bp)
			w := NewUnwinder(image.NewStore("/proc")).FollowFramePointers(&regs, &stack, c.room, 8)
			if !slices.Equal(w.IPs, c.want) || w.End != c.end {
				t.Errorf("%#x, end %d, want %#x, end %d", w.IPs, w.End, c.want, c.end)
			}
		})
	}
}

// TestFollowFramePointers32 walks a stack of words of four bytes.
func TestFollowFramePointers32(t *testing.T) {
	const sp, pc = 0xfff0_0000, 0x804_8000
	stack := Stack{Base: sp, Data: bytesOf(4, 9, sp+12, 1, sp+20, 2, 0, 0, 3), Asked: 32}
	for _, c := range []struct {
		name string
		bp   uint64
		want []uint64
		end  FrameWalkEnd
	}{
		{"to the root", sp + 4, []uint64{pc, 1, 2, 0}, NoFrame},
		{"the last frame that fits", sp + 24, []uint64{pc, 3}, NoFrame},
		{"half a frame", sp + 28, []uint64{pc}, CopyEnds},
	} {
		t.Run(c.name, func(t *testing.T) {
			var regs Regs
			regs.set(rule.IP, pc)
			regs.set(rule.BP, c.bp)
			w := NewUnwinder(image.NewStore("/proc")).FollowFramePointers(&regs, &stack, 127, 4)
			if !slices.Equal(w.IPs, c.want) || w.End != c.end {
				t.Errorf("%#x, end %d, want %#x, end %d", w.IPs, w.End, c.want, c.end)
			}
		})
	}
}

// TestFollowFramePointersAllocatesNothing holds for a walk after the first.
func TestFollowFramePointersAllocatesNothing(t *testing.T) {
	stack := Stack{Base: 1 << 20, Data: bytesOf(8, 1<<20, 7), Asked: 16}
	var regs Regs
	regs.set(rule.BP, 1<<20)
	u := NewUnwinder(image.NewStore("/proc"))
	if n := testing.AllocsPerRun(10, func() { u.FollowFramePointers(&regs, &stack, 127, 8) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFollowFramePointers walks any memory: it must end with no more entries than there is room for, each of
// them but the first read from the copy.
func FuzzFollowFramePointers(f *testing.F) {
	f.Add(bytesOf(8, 1<<20+16, 1, 0, 2), uint64(1<<20), uint64(1<<20), uint64(32), 127, false)
	f.Add(bytesOf(4, 1<<20, 1), uint64(1<<20), uint64(1<<20), uint64(8), 16, true)
	f.Add(bytesOf(8, ^uint64(0), 1), ^uint64(15), ^uint64(15), uint64(16), 16, false)
	f.Fuzz(inputs.Many(f, func(t *testing.T, data []byte, base, bp, asked uint64, room int, narrow bool) {
		defer costs.For(len(data)).Check(t)()
		room, size := min(room, 1024), 8
		if narrow {
			size = 4
		}
		var regs Regs
		regs.set(rule.IP, 42)
		regs.set(rule.BP, bp)
		w := NewUnwinder(image.NewStore("/proc")).FollowFramePointers(&regs,
			&Stack{Base: base, Data: data, Asked: asked}, room, size)
		if len(w.IPs) > max(room, 0) || len(w.IPs) > 0 && w.IPs[0] != 42 ||
			w.End == KernelLimit && len(w.IPs) < room {
			t.Fatalf("%d entries of %d, end %d", len(w.IPs), room, w.End)
		}
		for _, ip := range w.IPs[min(1, len(w.IPs)):] {
			found := false
			for i := 0; i+size <= len(data) && !found; i++ {
				var word [8]byte
				copy(word[:], data[i:i+size])
				found = binary.LittleEndian.Uint64(word[:]) == ip
			}
			if !found {
				t.Fatalf("%#x is not in the copy", ip)
			}
		}
	}))
}

// bytesOf puts words of size bytes behind each other.
func bytesOf(size int, words ...uint64) []byte {
	var b []byte
	for _, w := range words {
		b = append(b, binary.LittleEndian.AppendUint64(nil, w)[:size]...)
	}
	return b
}
