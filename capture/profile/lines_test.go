package profile

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/testdata/lane"
)

const inlining = `
#include <algorithm>
#include <vector>
volatile unsigned sink;
static unsigned mix(unsigned a, unsigned b) {
	for (int i = 0; i < 8; i++) a = (a ^ b) * 2654435761u + (a >> 7);
	return a;
}
static unsigned twice(unsigned a) { return mix(a, 1) ^ mix(a, 2); }
struct Shape { virtual unsigned area(unsigned n) const = 0; virtual ~Shape() {} };
struct Square : Shape { unsigned area(unsigned n) const override { return twice(n) + mix(n, n); } };
struct Circle : Shape { unsigned area(unsigned n) const override {
	unsigned s = 0;
	for (unsigned i = 0; i < 20; i++) s += twice(s + n);
	return s;
} };
template <class F> static void each(std::vector<unsigned> &v, F f) { for (auto &x : v) x = f(x); }
__attribute__((noinline)) static void sorted(std::vector<unsigned> v) {
	std::sort(v.begin(), v.end());
	sink += v[7];
}
int main() {
	std::vector<unsigned> v(500);
	Square square; Circle circle;
	const Shape *shapes[] = {&square, &circle};
	for (int i = 0; i < 1200; i++) {
		each(v, [&](unsigned x) { return twice(x) + shapes[x & 1]->area(i); });
		sorted(v);
	}
	return 0;
}
`

// Every sampled address of a program has the functions and lines that llvm-symbolizer finds there.
func TestMachineInlinedFramesAreThoseOfLLVM(t *testing.T) {
	lane.Machine(t, 0.95)
	if _, err := exec.LookPath("llvm-symbolizer"); err != nil {
		t.Skip("llvm-symbolizer is missing")
	}
	dir := t.TempDir()
	src, bin, data := filepath.Join(dir, "inlining.cc"), filepath.Join(dir, "inlining"),
		filepath.Join(dir, "perf.data")
	if err := os.WriteFile(src, []byte(inlining), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, "g++", "-O2", "-g", "-static-pie", "-fno-omit-frame-pointer", "-o", bin, src)
	run(t, "perf", "record", "-q", "-B", "-N", "-F", "1999", "-g", "-e", "cpu-clock:u", "-o", data, "--", bin)
	r, err := perfdata.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := Load(r, symbols.New(symbols.Options{}), Options{Lines: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	have := chainsOf(p, bin)
	pcs := make([]uint64, 0, len(have))
	deep := 0
	for pc, chain := range have {
		pcs = append(pcs, pc)
		if strings.Count(chain, "\n") > 2 {
			deep++
		}
	}
	slices.Sort(pcs)
	t.Logf("%d addresses, %d with functions inlined twice", len(pcs), deep)
	if len(pcs) < 10 || deep < 5 {
		t.Fatalf("%d addresses were sampled, %d of them in functions inlined twice", len(pcs), deep)
	}
	want := symbolized(t, bin, pcs)
	for _, pc := range pcs {
		if have[pc] != want[pc] {
			t.Errorf("%#x:\n%swant\n%s", pc, have[pc], want[pc])
		}
	}
	// The profile by function still has all of these functions.
	if q := p.ByFunction(); q.Count() != p.Count() {
		t.Errorf("%d samples by function, %d by address", q.Count(), p.Count())
	}
}

// chainsOf returns, for each address of an image that was sampled and has a line, the frames there, innermost
// first, a line each.
func chainsOf(p *Profile, path string) map[uint64]string {
	inner := make([]bool, len(p.Nodes)) // a function is inlined into the node
	for _, n := range p.Nodes[1:] {
		if p.Frames[n.Frame].Inlined {
			inner[n.Parent] = true
		}
	}
	chains := map[uint64]string{}
	for i, n := range p.Nodes {
		if i == 0 || inner[i] {
			continue
		}
		var text strings.Builder
		f := &p.Frames[n.Frame]
		if f.Line == 0 || p.Images[f.Image].Path != path {
			continue
		}
		for at := int32(i); ; at = p.Nodes[at].Parent {
			f := &p.Frames[p.Nodes[at].Frame]
			fmt.Fprintf(&text, "%s %s:%d:%d\n", f.Symbol, f.File, f.Line, f.Column)
			if !f.Inlined {
				break
			}
		}
		chains[f.PC] = text.String()
	}
	return chains
}

// symbolized is llvm-symbolizer's answer, in the same form.
func symbolized(t *testing.T, path string, pcs []uint64) map[uint64]string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	args := []string{"--no-demangle", "--inlines", "--obj", path}
	for _, pc := range pcs {
		args = append(args, fmt.Sprintf("%#x", pc))
	}
	all := map[uint64]string{}
	for i, block := range strings.Split(strings.TrimSpace(run(t, "llvm-symbolizer", args...)), "\n\n") {
		lines := strings.Split(block, "\n")
		for j := 0; j+1 < len(lines); j += 2 {
			all[pcs[i]] += lines[j] + " " + lines[j+1] + "\n"
		}
	}
	return all
}

// Loading a recording twice gives the same profile, with its frames in the same order.
func TestLoadIsRepeatable(t *testing.T) {
	t.Parallel()
	path := record(t, "-g", "-e", "page-faults")
	var first *Profile
	for range 3 {
		r, err := perfdata.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Load(r, symbols.New(symbols.Options{Kallsyms: os.DevNull}), Options{Lines: true})
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = p
		} else if !slices.Equal(p.Frames, first.Frames) || !slices.Equal(p.Nodes, first.Nodes) ||
			!slices.Equal(p.Samples, first.Samples) {
			t.Error("another profile")
		}
	}
}
