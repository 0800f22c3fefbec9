package unwind

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"unspool/unwind/image"
	"unspool/unwind/link"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// behindCall is the address behind the last call of a function in another one.
func behindCall(b *goBinary, function, callee string) uint64 {
	b.t.Helper()
	start, code := b.function(function)
	want, _ := b.function(callee)
	for i := len(code) - 5; i >= 0; i-- {
		end := start + uint64(i) + 5
		if code[i] == 0xe8 && end+uint64(int64(int32(binary.LittleEndian.Uint32(code[i+1:])))) == want {
			return end
		}
	}
	b.t.Fatalf("%s calls no %s", function, callee)
	return 0
}

// frameSize is how far the CFA is above SP where a call returns to.
func frameSize(u *Unwinder, b *goBinary, pc uint64) uint64 {
	b.t.Helper()
	var p place
	w := u.begin(b.space, new(Stack))
	if !w.locate(&p, pc-1) {
		b.t.Fatalf("%#x is not mapped", pc)
	}
	r := p.rule(pc - 1)
	if r.Kind() != rule.FromSP {
		b.t.Fatalf("%#x: %v", pc, r)
	}
	return r.CFA()
}

// TestGoroutineThatGrows walks from the stack of Go's scheduler to that of a goroutine that gets a larger
// one, and does not where what was read is about another goroutine.
func TestGoroutineThatGrows(t *testing.T) {
	const (
		base = 0x7ffc_0000_0000
		heap = 0xc0_0000_0000
		g    = 0xc0_0000_1180
	)
	b := openGoBinary(t)
	u := NewUnwinder(b.images)
	callees := []uint64{
		behindCall(b, "runtime.stackfree", "runtime.stackpoolfree"),
		behindCall(b, "runtime.copystack", "runtime.stackfree"),
		behindCall(b, "runtime.newstack", "runtime.copystack"),
	}
	morestack := behindCall(b, "runtime.morestack.abi0", "runtime.newstack.abi0")
	caller := behindCall(b, "runtime.main", "runtime.morestack_noctxt.abi0")
	root, _ := b.function("runtime.goexit.abi0")
	root++

	for _, c := range []struct {
		name   string
		in     int    // in which callee's frame the g is
		g      uint64 // that was read
		caller uint64
		off    int64  // how far from SP in morestack something was read; it was not if that is negative
		stack  uint64 // of the goroutine, 0 for behind the scheduler's, in the copy
		end    Reason
		frames int
	}{
		{"in newstack", 2, g, caller, 0, heap, Root, 6},
		{"in what newstack has called", 1, g, caller, 0, heap, Root, 6},
		{"in what that has called", 0, g, caller, 0, heap, NotCopied, 4},
		{"another goroutine", 2, g + 0x700, caller, 0, heap, NotCopied, 4},
		{"no call", 2, g, caller + 1, 0, heap, NotCopied, 4},
		{"another call", 2, g, behindCall(b, "runtime.gopark", "runtime.mcall"), 0, heap, NotCopied, 4},
		{"no goroutine", 2, 0, caller, 0, heap, Root, 4},
		{"another call of morestack", 2, g, caller, 8, heap, NotCopied, 4},
		{"not read", 2, g, caller, -1, heap, NotCopied, 4},
		{"its stack is copied", 2, g, caller, 0, 0, Root, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var words []uint64
			for i, pc := range callees {
				frame := make([]uint64, frameSize(u, b, pc)/8)
				if c.in == i {
					frame[0] = g
				}
				if frame[len(frame)-1] = morestack; i+1 < len(callees) {
					frame[len(frame)-1] = callees[i+1]
				}
				words = append(words, frame...)
			}
			at := base + 8*uint64(len(words))
			goroutine := Piece{Addr: c.stack, Data: bytesOf(8, c.caller, root, 0)}
			if c.stack == 0 {
				goroutine.Addr = at + 64
			}
			words = append(words, 0, 0, 0, 0, 0, 0, 0, 0, c.caller, root, 0)
			stack := Stack{Base: base, Data: bytesOf(8, words...), Asked: 1 << 14, Thread: 7}
			if c.off >= 0 {
				stack.Growth, stack.Above = GrownStack{At: at + uint64(c.off), G: c.g}, goroutine
			}
			var regs Regs
			regs.set(rule.IP, callees[0]-1) // as a sampled PC, not as a return address
			regs.set(rule.SP, base)
			for range 2 { // the second one could use what the first one has left
				res := u.Unwind(b.space, &regs, &stack)
				want := slices.Concat([]uint64{callees[0] - 1}, callees[1:], []uint64{morestack})
				if c.frames > len(want) {
					want = append(want, caller, root)
				}
				if res.End != c.end || !slices.Equal(res.IPs, want) {
					t.Fatalf("%v: %#x, want %v: %#x", res.End, res.IPs, c.end, want)
				}
				if left := res.LeftGo(); left != (c.end == NotCopied) {
					t.Errorf("left Go: %v", left)
				}
				isRead := c.end == Root
				if found := res.MarkRest(&stack); found != isRead {
					t.Errorf("found in what was read: %v", found)
				}
				for i, f := range res.Frames {
					if (f.Source == ByLive) != (i > 3) {
						t.Errorf("frame %d: %v", i, f.Source)
					}
				}
				short := stack
				short.Data = nil // so that all frames are behind the copy
				if sp, cfa := res.LargestFrame(&short, 8); sp != 0 && c.frames > 4 {
					t.Errorf("a frame from %#x to %#x", sp, cfa)
				}
				res.links(func(_, _ uint64, run []link.Frame, whole bool) {
					if whole && run[len(run)-1].PC == morestack {
						t.Error("morestack is always a root")
					}
					for i := 1; i < len(run); i++ {
						if run[i-1].PC == morestack {
							t.Error("morestack is always called from there")
						}
					}
				}, 1, 1, nil)
			}
		})
	}
}

// counted counts how often work on tables or code was begun.
type counted struct {
	*image.Store
	begun int
}

func (c *counted) Begin() (time.Time, bool) {
	c.begun++
	return c.Store.Begin()
}

// TestGrowthIsFreeOutsideGo asks for the growth after walks of a C program, as a recording does after each whole stack
// of a thread: nothing is begun for that, so no clock is read. In Go's runtime something is.
func TestGrowthIsFreeOutsideGo(t *testing.T) {
	b := openGoBinary(t)
	goexit, _ := b.function("runtime.goexit.abi0")
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	nop
in_start:
	nop
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	for _, c := range []struct {
		name   string
		space  *vmas.Space
		images *image.Store
		pc     uint64
		isGo   bool
	}{
		{"C", space, images, at["in_start"], false},
		{"Go", b.space, b.images, goexit + 1, true},
	} {
		source := &counted{Store: c.images}
		u := NewUnwinder(source)
		var regs Regs
		regs.set(rule.IP, c.pc)
		regs.set(rule.SP, madeSP)
		res := u.Unwind(c.space, &regs, madeCopy(true, 0, 0))
		source.begun = 0
		if _, ok := res.Growth(); ok != c.isGo || (source.begun > 0) != c.isGo {
			t.Errorf("%s: %v, begun %d times", c.name, ok, source.begun)
		}
	}
}
