package flamegraph

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"unspool/capture/human"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/browser"
)

const program = `#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <vector>

static inline __attribute__((always_inline)) unsigned mix(unsigned x)
{
	for (int i = 0; i < 20; i++)
		x = x * 1664525u + (x >> 7);
	return x;
}

__attribute__((noinline)) unsigned hashed(const std::vector<unsigned> &v)
{
	unsigned h = 0;
	for (unsigned x : v)
		h += mix(x);
	return h;
}

__attribute__((noinline)) void sorted(std::vector<unsigned> v)
{
	std::sort(v.begin(), v.end());
}

int main()
{
	std::vector<unsigned> v(20000);
	for (unsigned &x : v)
		x = rand();
	while (clock() < CLOCKS_PER_SEC / 8) {
		v[0] = hashed(v);
		sorted(v);
	}
}
`

// A recording of a real program, with inlined functions and lines of its source.
func TestProgram(t *testing.T) {
	for _, tool := range []string{"g++", "perf"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("no " + tool)
		}
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("program.cc", []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"g++", "-O2", "-g", "-fno-omit-frame-pointer", "-o", "program", "program.cc"},
		// -B: perf 6.1 now and then aborts over the build IDs that it collects at the end.
		{"perf", "record", "-q", "-B", "-o", "data", "-F", "999", "-g", "-e", "cpu-clock:u", "--", "./program"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
	r, err := perfdata.Open("data")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(symbols.Options{}), profile.Options{Lines: true})
	if err != nil {
		t.Fatal(err)
	}

	// The number of samples in a function's frames, by the profile.
	in := func(name string) uint64 {
		var n uint64
		for _, s := range p.Samples {
			for node := s.Node; node > 0; node = p.Nodes[node].Parent {
				if p.Frames[p.Nodes[node].Frame].Name == name {
					n += s.Count
					break
				}
			}
		}
		return n
	}
	mix, hashed := in("mix"), in("hashed")
	if mix == 0 || mix > hashed || hashed == 0 {
		t.Fatalf("%d samples in hashed, %d in mix", hashed, mix)
	}
	for _, o := range []Options{{Format: HTML}, {Format: SVG}} {
		page := open(t, p, o)
		page.PressCtrl("f")
		page.Press("mix")
		if o.Format == SVG {
			page.Until("document.querySelector('#found').textContent.includes(" +
				browser.Quote(fmt.Sprintf("%.1f %% of samples", 100*float64(mix)/float64(p.Count()))) + ")")
			continue
		}
		page.Until("document.querySelector('#found').textContent.includes('of samples')")
		page.Press("\r")
		page.text("#detail .name", "mix")
		place := browser.Eval[string](page.Page, "document.querySelector('#detail .place').textContent")
		if want := "inlined · program · "; len(place) < len(want) || place[:len(want)] != want {
			t.Errorf("mix is %q", place)
		}
		page.text("dd", human.Plural(p.Count(), "sample")+" of 1 thread in "+human.Duration(p.Duration))
	}
}
