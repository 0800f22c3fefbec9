package profile

import (
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/perfdata/replay"
	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/testdata/programs"
	"unspool/vmas"
)

const kernelStart uint64 = 0xffffffff81000000

// within is a loader that has bounds, and two processes with code in files that are gone.
func within(t *testing.T, b bounds) *loader {
	t.Helper()
	l := newLoader(symbols.New(symbols.Options{Kallsyms: kallsymsOf(t, 1000), Modules: "/nonexistent"}))
	l.bound(b)
	l.event = func(uint64) int { return 0 }
	l.p.Events = []Event{{Name: "cpu-clock"}}
	for pid := uint32(7); pid <= 8; pid++ {
		l.table.Mmap(pid, vmas.Map{Addr: 0x100000, Len: 0x100000, Prot: vmas.ProtExec, Name: []byte("/gone/many")})
		l.table.Mmap(pid, vmas.Map{Addr: 0x200000, Len: 0x100000, Prot: vmas.ProtExec, Name: []byte("/gone/few")})
	}
	return l
}

// kallsymsOf writes symbols of the kernel, each of 16 bytes.
func kallsymsOf(t *testing.T, n uint64) string {
	t.Helper()
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "%x T kernel_function_%d\n", kernelStart+16*i, i)
	}
	path := filepath.Join(t.TempDir(), "kallsyms")
	if err := os.WriteFile(path, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// sampleOf adds a sample of a process with a callchain, leaf first.
func (l *loader) sampleOf(pid uint32, context uint64, chain ...uint64) {
	l.sample.PID, l.sample.TID, l.sample.Callchain = pid, pid, words(append([]uint64{context}, chain...)...)
	l.addSample()
}

// valid finishes the profile, which still has all samples.
func (l *loader) valid(t *testing.T, samples uint64) *Profile {
	t.Helper()
	p := l.finish()
	if err := p.CheckValid(); err != nil || p.Count() != samples {
		t.Fatalf("%v; %d samples, want %d", err, p.Count(), samples)
	}
	return p
}

// says looks for a problem, which has all of the texts.
func says(p *Profile, texts ...string) bool {
	return slices.ContainsFunc(p.Problems, func(problem string) bool {
		for _, text := range texts {
			if !strings.Contains(problem, text) {
				return false
			}
		}
		return true
	})
}

// random are addresses of a range, in no order.
func random(r *rand.Rand, n int, from, to uint64) (chain []uint64) {
	for range n {
		chain = append(chain, from+r.Uint64N(to-from))
	}
	return chain
}

// TestAddressesWithoutFunctions: of an image with too many of them all are one function, stacks included, and
// another image keeps its own. That is counted and said.
func TestAddressesWithoutFunctions(t *testing.T) {
	b := usual
	b.unnamed = 500
	l, r := within(t, b), rand.New(rand.NewPCG(1, 2))
	const samples, depth = 100, 200
	for range samples {
		l.sampleOf(7, perfring.ContextUser, random(r, depth, 0x100000, 0x200000)...)
		l.sampleOf(8, perfring.ContextUser, random(r, 2, 0x200000, 0x200080)...)
	}
	p := l.valid(t, 2*samples)
	own := map[string]int{}
	for _, f := range p.Frames {
		own[f.Name]++
	}
	// What is told apart until there are too many makes stacks, and then one is added of the one function.
	if own["[many]"] != b.unnamed+1 || own["[few]"] < 100 || len(p.Nodes) > b.unnamed+depth+3*samples {
		t.Errorf("frames %v, %d nodes", own, len(p.Nodes))
	}
	if !says(p, "19,500 frames are shown by function or by file", "most are of /gone/many") {
		t.Errorf("%q", p.Problems)
	}
}

// TestTooManyAddresses: frames beyond the bound are those of functions, which are as many as before, and an image
// that comes late still has addresses.
func TestTooManyAddresses(t *testing.T) {
	b := usual
	b.addresses = 400
	l, r := within(t, b), rand.New(rand.NewPCG(1, 2))
	all := within(t, usual)
	for _, l := range []*loader{l, all} {
		for pid := range uint32(2) {
			l.comm(&replay.Change{PID: 7 + pid, TID: 7 + pid, Comm: []byte("app")})
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			l.sampleOf(7, perfring.ContextKernel, random(r, 20, kernelStart, kernelStart+16*900)...)
		}
	}
	l.sampleOf(8, perfring.ContextUser, random(r, 10, 0x200000, 0x300000)...)
	all.sampleOf(8, perfring.ContextUser, random(rand.New(rand.NewPCG(1, 2)), 10, 0x200000, 0x300000)...)
	p, whole := l.valid(t, 51), all.valid(t, 51)
	told := map[string]int{}
	for _, f := range p.Frames {
		if f.PC != 0 {
			told[p.Images[f.Image].Name]++
		}
	}
	if told["[kernel]"] != 3*b.addresses/4 || told["few"] != 10 {
		t.Errorf("addresses %v", told)
	}
	got, want := weights(p.ByFunction()), weights(whole.ByFunction())
	for stack, n := range want {
		if got[stack] != n {
			t.Fatalf("%d times %s, want %d", got[stack], stack, n)
		}
	}
	if len(whole.Problems) > 1 || !says(p, "frames are shown by function or by file", "[kernel]") {
		t.Errorf("%q, without bound %q", p.Problems, whole.Problems)
	}
}

// TestTooManyFunctions: those beyond the bound are all code of the image.
func TestTooManyFunctions(t *testing.T) {
	b := usual
	b.functions = 100
	l := within(t, b)
	l.functions = true
	for i := range uint64(200) {
		l.sampleOf(7, perfring.ContextKernel, kernelStart+16*i)
	}
	p := l.valid(t, 200)
	if n := len(p.Frames); n != 3*b.functions/4+1 {
		t.Errorf("%d frames", n)
	}
	if w := weights(p); w["[kernel]"] != 125 || w["kernel_function_7"] != 1 || !says(p, "125 frames are shown") {
		t.Errorf("%v, %q", w, p.Problems)
	}
}

// TestNamesThatFillTheMemory: functions whose names have no room have none.
func TestNamesThatFillTheMemory(t *testing.T) {
	b := usual
	b.names = 20_000
	l := within(t, b)
	for i := range uint64(500) {
		l.sampleOf(7, perfring.ContextKernel, kernelStart+16*i)
	}
	p := l.valid(t, 500)
	size := 0
	for _, f := range p.Frames {
		size += len(f.Symbol)
	}
	w := weights(p)
	if size > b.names || w["kernel_function_7"] != 1 || w["[kernel]"] < 300 || !says(p, "have no name") {
		t.Errorf("%d bytes; %d without name; %q", size, w["[kernel]"], p.Problems)
	}
}

// TestTooManyStacks: a process that makes as many as it can has three quarters, the rest of its stacks is one
// function, and another one that comes late has all of its own.
func TestTooManyStacks(t *testing.T) {
	b := usual
	b.nodes = 4000
	l, r := within(t, b), rand.New(rand.NewPCG(1, 2))
	for range 300 {
		l.sampleOf(7, perfring.ContextKernel, random(r, 50, kernelStart, kernelStart+16*900)...)
	}
	for i := range uint64(20) {
		l.sampleOf(8, perfring.ContextUser, 0x200000+16*i, 0x200000)
	}
	p := l.valid(t, 320)
	cut := uint64(0)
	for _, s := range p.Samples {
		stack := stackOf(p, s.Node)
		if stack[0] == otherStacks {
			cut += s.Count
		}
		if s.Thread == 1 && !slices.Equal(stack, []string{"[few]", "[few]"}) {
			t.Errorf("the other process has the stack %q", stack)
		}
	}
	if len(p.Nodes) > b.nodes+300 || len(p.Nodes) < 3*b.nodes/4 || cut < 200 || cut > 299 {
		t.Errorf("%d nodes, %d samples cut off", len(p.Nodes), cut)
	}
	if !says(p, fmt.Sprintf("the stacks of %d samples end early, in [other stacks]", cut), "4,000 calls") {
		t.Errorf("%d samples cut off, %q", cut, p.Problems)
	}
}

// TestStacksOfManyProcesses: however many processes make as many stacks as they can, one that comes late has some.
func TestStacksOfManyProcesses(t *testing.T) {
	b := usual
	b.nodes = 40_000
	l, r := within(t, b), rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		l.sampleOf(uint32(100+i%10), perfring.ContextKernel,
			random(r, 200, kernelStart, kernelStart+16*900)...)
	}
	chain := random(r, 200, 0x100000, 0x200000)
	l.sampleOf(7, perfring.ContextUser, chain...)
	p := l.valid(t, 401)
	last := stackOf(p, p.Samples[len(p.Samples)-1].Node)
	if len(last) != len(chain) || last[0] != "[many]" {
		t.Errorf("the last process has %d of %d frames", len(last), len(chain))
	}
}

// TestFramesThatAreForgotten: addresses that are looked up again have the same frames.
func TestFramesThatAreForgotten(t *testing.T) {
	b := usual
	b.looked = 3
	var profiles []*Profile
	for _, b := range []bounds{usual, b} {
		l, r := within(t, b), rand.New(rand.NewPCG(1, 2))
		for range 50 {
			l.sampleOf(7, perfring.ContextKernel, random(r, 10, kernelStart, kernelStart+0x400)...)
			l.sampleOf(8, perfring.ContextUser, random(r, 10, 0x100000, 0x100020)...)
		}
		if n := len(l.kernel); b.looked == 3 && n > 4 {
			t.Errorf("%d addresses of the kernel are remembered", n)
		}
		profiles = append(profiles, l.valid(t, 100))
	}
	if a, b := profiles[0], profiles[1]; !slices.Equal(a.Frames, b.Frames) || !slices.Equal(a.Nodes, b.Nodes) {
		t.Errorf("%d frames and %d nodes, %d and %d when some are forgotten", len(a.Frames), len(a.Nodes), len(b.Frames),
			len(b.Nodes))
	}
}

// TestTooManyInlined: of an image whose inlined functions would make too many nodes, the innermost are left out.
func TestTooManyInlined(t *testing.T) {
	l := within(t, bounds{inlined: 1000, withInlined: 1000})
	p := l.p
	p.Images = []Image{{Name: "deep"}, {Name: "flat"}}
	inlined := make([]frameRun, 2)
	for image, depth := range []int32{100, 2} {
		p.Frames = append(p.Frames, Frame{Name: "f", Image: int32(image), PC: 1})
		l.grown(0, int32(image))
		inlined[image] = frameRun{2 + 100*int32(image), depth}
	}
	for image, n := range []int{100, 2} {
		for range n {
			p.Frames = append(p.Frames, Frame{Name: "i", Image: int32(image), PC: 1, Inlined: true})
		}
	}
	for at := int32(1); len(p.Nodes) < 31; {
		at = l.grown(at, 0)
	}
	l.fitInlined(inlined)
	now := p.insert(inlined)
	// Of the room for 969 nodes, 2 are the other image's, and 725 may be the 29 times 25 of this one.
	if inlined[0].n != 24 && inlined[0].n != 25 || inlined[1].n != 2 || l.flattened != 1 || len(p.Nodes) > 1000 {
		t.Errorf("%v, %d nodes, %d", inlined, len(p.Nodes), l.flattened)
	}
	if err := p.CheckIndices(); err != nil || len(now) != 31 {
		t.Errorf("%v; %d nodes", err, len(now))
	}
}

// TestTooManyInlinedFrames: addresses beyond the bound keep their function and its line.
func TestTooManyInlinedFrames(t *testing.T) {
	bin := programs.BuildFile(t, "testdata/inlined.c", "-O1", "-g", "-no-pie")
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	outer := syms[slices.IndexFunc(syms, func(s elf.Symbol) bool { return s.Name == "outer" })]
	text := f.Progs[slices.IndexFunc(f.Progs, func(p *elf.Prog) bool { return p.Flags&elf.PF_X != 0 })]
	const at = 0x400000
	inlined := func(b bounds) (n int, p *Profile) {
		l := within(t, b)
		l.options.Lines = true
		l.table.Mmap(9, vmas.Map{Addr: at, Len: text.Filesz, Offset: text.Off, Prot: vmas.ProtExec, Name: []byte(bin)})
		for i := range outer.Size {
			l.sampleOf(9, perfring.ContextUser, at+outer.Value-text.Vaddr+i)
		}
		p = l.valid(t, outer.Size)
		for _, f := range p.Frames {
			if f.Inlined {
				n++
			}
			if f.Name == "outer" && f.Line == 0 {
				t.Errorf("%+v", f)
			}
		}
		return n, p
	}
	all, _ := inlined(usual)
	b := usual
	b.inlined = 8
	if some, p := inlined(b); some != 6 || all < 20 || !says(p, "inlined functions are left out") {
		t.Errorf("%d of %d inlined frames, %q", some, all, p.Problems)
	}
	b = usual
	b.withInlined = int(outer.Size) + 9 // nodes
	if _, p := inlined(b); len(p.Nodes) > b.withInlined || !says(p, "inlined functions are left out") {
		t.Errorf("%d nodes, %q", len(p.Nodes), p.Problems)
	}
}
