package unwind

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"unspool/unwind/link"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A goBinary is a Go program that is walked over, mapped as its file is.
type goBinary struct {
	t       *testing.T
	data    []byte
	file    contents
	symbols map[string]elf.Symbol
	space   *vmas.Space
	u       *Unwinder
}

const goBinaryBase = 0x7f00_0000_0000

func openGoBinary(t *testing.T) *goBinary {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("skipped for want of go")
	}
	dir := t.TempDir()
	source, name := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(1) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", name, source).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b := &goBinary{t: t, data: data, file: contentsOf(t, name), symbols: make(map[string]elf.Symbol)}
	for _, s := range symbols {
		b.symbols[s.Name] = s
	}
	space, images := asImage(t, name, goBinaryBase)
	b.space, b.u = space, NewUnwinder(images)
	return b
}

// offset is that of a function in the file.
func (b *goBinary) offset(function string) uint64 {
	b.t.Helper()
	off, ok := b.file.offset(b.symbols[function].Value)
	if !ok {
		b.t.Fatalf("no %s", function)
	}
	return off
}

// behindCall is the address behind the last call of a function in another one.
func (b *goBinary) behindCall(function, callee string) uint64 {
	b.t.Helper()
	off := b.offset(function)
	code := b.data[off:][:b.symbols[function].Size]
	for i := len(code) - 5; i >= 0; i-- {
		end := off + uint64(i) + 5
		to := end + uint64(int64(int32(binary.LittleEndian.Uint32(code[i+1:]))))
		if code[i] == 0xe8 && to == b.offset(callee) {
			return goBinaryBase + end
		}
	}
	b.t.Fatalf("%s calls no %s", function, callee)
	return 0
}

// frameSize is how far the CFA is above SP where a call returns to.
func (b *goBinary) frameSize(pc uint64) uint64 {
	b.t.Helper()
	var p place
	w := b.u.begin(b.space, new(Stack))
	if !w.locate(&p, pc-1) {
		b.t.Fatalf("%#x is not mapped", pc)
	}
	r := p.image.Rule(p.m, pc-1)
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
	callees := []uint64{
		b.behindCall("runtime.adjustframe", "runtime.adjustpointers"),
		b.behindCall("runtime.copystack", "runtime.stackfree"),
		b.behindCall("runtime.newstack", "runtime.copystack"),
	}
	morestack := b.behindCall("runtime.morestack.abi0", "runtime.newstack.abi0")
	caller := b.behindCall("runtime.main", "runtime.morestack_noctxt.abi0")
	root := goBinaryBase + b.offset("runtime.goexit.abi0") + 1

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
		{"another call", 2, g, b.behindCall("runtime.gopark", "runtime.mcall"), 0, heap, NotCopied, 4},
		{"no goroutine", 2, 0, caller, 0, heap, Root, 4},
		{"another call of morestack", 2, g, caller, 8, heap, NotCopied, 4},
		{"not read", 2, g, caller, -1, heap, NotCopied, 4},
		{"its stack is copied", 2, g, caller, 0, 0, Root, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var words []uint64
			for i, pc := range callees {
				frame := make([]uint64, b.frameSize(pc)/8)
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
				stack.Growth, stack.Above = Growth{At: at + uint64(c.off), G: c.g}, goroutine
			}
			var regs Regs
			regs.set(rule.IP, callees[0]-1) // as a sampled PC, not as a return address
			regs.set(rule.SP, base)
			for range 2 { // the second one could use what the first one has left
				res := b.u.Unwind(b.space, &regs, &stack)
				want := slices.Concat([]uint64{callees[0] - 1}, callees[1:], []uint64{morestack})
				if c.frames > len(want) {
					want = append(want, caller, root)
				}
				if res.End != c.end || !slices.Equal(res.IPs, want) {
					t.Fatalf("%v: %#x, want %v: %#x", res.End, res.IPs, c.end, want)
				}
				if left := b.u.LeftGo(); left != (c.end == NotCopied) {
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
