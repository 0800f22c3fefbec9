package unwind

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"unspool/testdata/programs"
	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A stackBuilder makes stacks from the root downwards, of functions of a real library
// whose rules say what has to lie where.
type stackBuilder struct {
	rng   *rand.Rand
	base  uint64
	data  []byte
	calls []builtFrame // return addresses in the library, with their rules
	roots []uint64
	stack []builtFrame // of the stack, the root first

	direct []uint64 // return addresses behind calls of one function each

	mayLeave func(pc uint64) bool // whether what is called there can be generated code
}

// generatedAt is where memory lies that no file is behind.
const generatedAt = 0x5000_0000_0000

type builtFrame struct {
	pc, sp, bp uint64
	rule       rule.Rule
}

// newStackBuilder returns a builder of stacks of im, which is mapped at m in the space of w. The return addresses
// of its frames follow indirect calls, which may have led to whatever is below them.
func newStackBuilder(t *testing.T, library string, im *image.Image, m *vmas.Mapping, w *walk) *stackBuilder {
	b := &stackBuilder{rng: rand.New(rand.NewPCG(3, 4)), base: 0x7ffc_0000_0000, data: make([]byte, 1<<16)}
	b.mayLeave = func(pc uint64) bool { return pc-generatedAt < 1<<16 || w.mayLeave(pc) }
	file := contentsOf(t, library)
	for fde, err := range file.cfi.FDEs() {
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range fde.Rows() {
			if err != nil {
				t.Fatal(err)
			}
			off, ok := file.offset(row.Start)
			if !ok || row.End-row.Start < 2 {
				continue
			}
			code, addr := im.CodeAt(m, m.Start+off)
			for n := uint64(1); n < row.End-row.Start; n++ {
				switch call := code.CallBefore(addr + n); {
				case call.Indirect:
					b.add(m.Start+off+n, rule.Compile(row, row.Start))
				case call.Direct:
					b.direct = append(b.direct, m.Start+off+n)
				}
			}
		}
	}
	if len(b.calls) < 500 || len(b.roots) == 0 {
		t.Fatalf("%d calls and %d roots in the library", len(b.calls), len(b.roots))
	}
	return b
}

// add adds a return address with its rule.
func (b *stackBuilder) add(pc uint64, r rule.Rule) {
	switch r.Kind() {
	case rule.FromSP, rule.FromBP:
		if r.CFA() >= 16 && r.CFA() <= 256 && (r.BP() == 0 || r.BP() <= r.CFA()) {
			b.calls = append(b.calls, builtFrame{pc: pc, rule: r})
		}
	case rule.EndOfStack:
		b.roots = append(b.roots, pc)
	}
}

func (b *stackBuilder) put(addr, v uint64) { binary.LittleEndian.PutUint64(b.data[addr-b.base:], v) }

// begin leaves only the root.
func (b *stackBuilder) begin() {
	b.stack = append(b.stack[:0], builtFrame{
		pc: b.roots[b.rng.IntN(len(b.roots))], sp: b.base + uint64(len(b.data)) - 64, rule: rule.EndOfStack,
	})
}

// call adds a frame below the last one.
func (b *stackBuilder) call() {
	caller := b.stack[len(b.stack)-1]
	f := b.calls[b.rng.IntN(len(b.calls))]
	if b.rng.IntN(4) == 0 && b.mayLeave(caller.pc) { // generated code, which has a frame pointer
		f = builtFrame{pc: generatedAt + b.rng.Uint64N(1<<16), rule: rule.FromBP | 2<<4 | 2<<16}
	}
	cfa := caller.sp
	f.bp = caller.bp
	if f.rule.Kind() == rule.FromBP {
		f.bp = cfa - f.rule.CFA()
		f.sp = f.bp - b.rng.Uint64N(8)*8
	} else {
		f.sp = cfa - f.rule.CFA()
		if f.rule.BP() != 0 {
			f.bp = b.rng.Uint64()
		}
	}
	b.put(cfa-8, caller.pc)
	if slot := f.rule.BP(); slot != 0 && cfa-slot >= f.sp {
		b.put(cfa-slot, caller.bp)
	} else {
		f.bp = caller.bp
		if f.rule.Kind() == rule.FromBP { // its BP would be lost: another one
			b.put(cfa-8, 0)
			return
		}
	}
	b.stack = append(b.stack, f)
}

func (b *stackBuilder) sample() (regs Regs, stack Stack) {
	f := b.stack[len(b.stack)-1]
	regs.set(rule.IP, f.pc)
	regs.set(rule.SP, f.sp)
	regs.set(rule.BP, f.bp)
	return regs, Stack{Base: f.sp, Data: b.data[f.sp-b.base:], Asked: 1 << 16}
}

// TestWalksOfAThreadAreWalksOfAnyThread compares walks that reuse the last walk of a thread with walks that
// do not, on stacks that change at one end, in the middle, or not at all.
func TestWalksOfAThreadAreWalksOfAnyThread(t *testing.T) {
	const at = 0x7f00_0000_0000
	library := programs.System(t)[0]
	info, err := os.Stat(library)
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 1 << 30 // no PID
	table, images := vmas.NewTable(""), image.NewStore("/proc")
	table.Comm(nobody, nobody, []byte("test"), true)
	prot := uint32(vmas.ProtExec | vmas.ProtRead)
	table.Mmap(nobody, vmas.Map{Addr: at, Len: uint64(info.Size()+4095) &^ 4095, Prot: prot,
		Name: []byte(library)})
	table.Mmap(nobody, vmas.Map{Addr: generatedAt, Len: 1 << 17, Prot: prot, Name: []byte("//anon")})
	space := table.Space(nobody)
	im := images.Lookup(nobody, space.Find(at))
	if err := im.Parse(); err != nil {
		t.Fatal(err)
	}
	b := newStackBuilder(t, library, im, space.Find(at), NewUnwinder(images).begin(space, nil))
	with, without := NewUnwinder(images), NewUnwinder(images)
	complete, shared := 0, 0
	b.begin()
	walks := 4_000
	if programs.AllOracles() {
		walks = 20_000
	}
	for n := range walks {
		switch what := b.rng.IntN(100); {
		case what < 2:
			b.begin()
		case what < 90: // return from some functions
			b.stack = b.stack[:1+b.rng.IntN(len(b.stack))]
		}
		for range b.rng.IntN(24) {
			if b.stack[len(b.stack)-1].sp > b.base+1024 {
				b.call()
			}
		}
		regs, stack := b.sample()
		spoilt, before := uint64(0), uint64(0)
		if b.rng.IntN(10) == 0 {
			spoilt = stack.Base + b.rng.Uint64N(uint64(len(stack.Data))/8)*8
		}
		if spoilt != 0 {
			before = binary.LittleEndian.Uint64(b.data[spoilt-b.base:])
			if other := b.direct[b.rng.IntN(len(b.direct))]; b.rng.IntN(2) == 0 {
				b.put(spoilt, other)
			} else {
				b.put(spoilt, b.calls[b.rng.IntN(len(b.calls))].pc)
			}
		}
		if b.rng.IntN(10) == 0 {
			stack.Data = stack.Data[:b.rng.IntN(len(stack.Data))]
		}
		if b.rng.IntN(50) == 0 {
			with.MaxFrames = 1 + b.rng.IntN(40)
		} else {
			with.MaxFrames = 2048
		}
		without.MaxFrames = with.MaxFrames

		stack.Thread = 1 + uint32(b.rng.IntN(100))/99
		known := with.memos.lookup(stack.Thread, space).frames()
		alone := without.Unwind(space, &regs, &Stack{Base: stack.Base, Data: stack.Data, Asked: stack.Asked})
		got := with.Unwind(space, &regs, &stack)
		alone.walk, got.walk = nil, nil // which are not the same one
		want := fmt.Sprint(alone)
		if s := fmt.Sprint(got); s != want {
			t.Fatalf("walk %d, which follows %v:\n%s\n%s", n, known, s, want)
		}
		if got.End == Root {
			complete++
		}
		if len(known) > 1 && slices.Contains(got.Frames, known[len(known)-1]) {
			shared++
		}
		if spoilt != 0 {
			b.put(spoilt, before)
		}
	}
	t.Logf("%d complete, %d with the root of the one before", complete, shared)
	if complete < walks/2 || shared < walks/2 {
		t.Errorf("%d complete, %d with the root of the one before", complete, shared)
	}
}
