package profile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// named is the number of samples with a frame of a name in them, and an example of such a frame.
func named(p *Profile, name string) (n uint64, example Frame) {
	for _, s := range p.Samples {
		for node := s.Node; node > 0; node = p.Nodes[node].Parent {
			if f := p.Frames[p.Nodes[node].Frame]; strings.Contains(f.Name, name) {
				n += s.Count
				example = f
				break
			}
		}
	}
	return n, example
}

// ending counts the samples that end in a function of a source file.
func ending(leaves map[string]uint64, source string) (n uint64) {
	for name, count := range leaves {
		if strings.Contains(name, source) {
			n += count
		}
	}
	return n
}

const fibJS = `
const pages = new Uint8Array(4096 << 12);
let left = 2000;
function fib(n) { pages[left-- << 12] = 1; return n < 2 ? n : fib(n - 1) + fib(n - 2); }
while (left > 0) fib(3);
`

// V8 writes the names of the code that it generates to a perf map or a jitdump.
func TestNamesOfGeneratedCode(t *testing.T) {
	for _, c := range []struct{ name, option string }{{"perf map", "--perf-basic-prof"},
		{"jitdump", "--perf-prof"}} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath("node"); err != nil {
				t.Skip("node is missing")
			}
			t.Chdir(t.TempDir())
			if err := os.WriteFile("fib.js", []byte(fibJS), 0o666); err != nil {
				t.Fatal(err)
			}
			data := filepath.Join(t.TempDir(), "perf.data")
			run(t, "perf", "record", "-q", "-B", "-N", "-m", "16M", "-o", data, "-c", "1", "-g", "-k", "mono",
				"-e", "page-faults:u", "--", "node", "--always-sparkplug", c.option, "fib.js")
			p := load(t, data)
			t.Cleanup(func() { // the map stays where it was written
				for _, thread := range p.Threads {
					os.Remove(fmt.Sprintf("/tmp/perf-%d.map", thread.PID))
				}
			})
			n, f := named(p, "fib ")
			if n < 1900 { // of 2000; the other samples are from the start of node
				t.Fatalf("%d of %d samples are in fib, %d were lost; %q", n, p.Count(), p.Lost(), p.Problems)
			}
			if f.Kind != JIT || !f.Known || !strings.Contains(f.Name, "fib.js") {
				t.Errorf("%+v", f)
			}
			if c.name != "perf map" {
				return
			}
			// perf script reads these, too.
			counts, _ := scriptLeaves(t, data)
			if have, want := ending(leaves(p), "fib.js"), ending(counts, "fib.js"); have != want {
				t.Errorf("%d samples end in code of fib.js, perf script says %d", have, want)
			}
		})
	}
}
